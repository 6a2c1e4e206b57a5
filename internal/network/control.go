package network

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
)

// maxConfig bounds a configuration: a thousand machines with ten ports each have 2 MB.
const maxConfig = 16 << 20

// control is the control socket. Only the user of this process can reach it: the directory belongs to nobody else.
type control struct {
	s *netswitch
	// store keeps a configuration for the next start.
	store func(Config) error
}

func (c *control) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /config", c.putConfig)
	mux.HandleFunc("GET /status", c.getStatus)
	mux.HandleFunc("GET /wanted", c.wanted)
	mux.HandleFunc("POST /dial", c.dial)
	mux.HandleFunc("POST /peer", c.peer)
	mux.HandleFunc("GET /name", c.name)
	return mux
}

func (c *control) putConfig(w http.ResponseWriter, r *http.Request) {
	var config Config
	if err := json.NewDecoder(io.LimitReader(r.Body, maxConfig)).Decode(&config); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if err := c.s.apply(config); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if err := c.store(config); err != nil {
		http.Error(w, fmt.Sprintf("the configuration is in effect, but could not be stored: %v", err), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (c *control) getStatus(w http.ResponseWriter, _ *http.Request) { writeJSON(w, c.s.status()) }

func writeJSON(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // the client is gone
}

// dial connects the manager to a port of a machine.
func (c *control) dial(w http.ResponseWriter, r *http.Request) {
	p := c.s.table.Load().byUID[r.FormValue("uid")]
	if p == nil {
		http.Error(w, fmt.Sprintf("the network has no machine with the UID %q", r.FormValue("uid")), http.StatusNotFound)
		return
	}
	c.connect(w, r, p, &flow{kind: flowDial})
}

// peer connects a machine of another namespace to a port of a machine that is open to it.
func (c *control) peer(w http.ResponseWriter, r *http.Request) {
	t := c.s.table.Load()
	from := r.FormValue("from")
	addr, err := netip.ParseAddr(r.FormValue("address"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p := t.openTo(from, t.byAddr[addr])
	if p == nil {
		http.Error(w, fmt.Sprintf("%s is not open to namespace %s", addr, from), http.StatusForbidden)
		return
	}
	c.connect(w, r, p, &flow{kind: flowPeerIn, peer: from})
}

// name returns the address of a machine that is open to another namespace.
func (c *control) name(w http.ResponseWriter, r *http.Request) {
	t := c.s.table.Load()
	name := foldName(r.FormValue("name"))
	p := t.openTo(r.FormValue("from"), t.byAddr[t.names[name]])
	if p == nil {
		http.Error(w, fmt.Sprintf("no machine %s is open to namespace %s", name, r.FormValue("from")), http.StatusNotFound)
		return
	}
	writeJSON(w, nameAnswer{Address: p.addr})
}

// connect makes the connection of a request one to a port of a machine.
func (c *control) connect(w http.ResponseWriter, r *http.Request, p *port, one *flow) {
	number, err := strconv.ParseUint(r.FormValue("port"), 10, 16)
	protocol := Protocol(r.FormValue("protocol"))
	if err != nil || number == 0 || protocol != TCP && protocol != UDP {
		http.Error(w, "port or protocol is not one", http.StatusBadRequest)
		return
	}
	one.protocol = protocol
	of, maximum := &p.limits.tcpIn, maxConnections
	if protocol == UDP {
		of, maximum = &p.limits.udpIn, maxUDPFlows
	}
	if !c.s.takeConnection(of, maximum, c.s.table.Load()) {
		p.drop(dropLimit)
		http.Error(w, "the machine has too many connections", http.StatusServiceUnavailable)
		return
	}
	defer c.s.giveConnection(of)
	inside, err := c.s.dialGuestPort(r.Context(), p, protocol, uint16(number))
	if err != nil {
		code := http.StatusGatewayTimeout // it does not answer
		if errors.Is(err, ErrRefused) {
			code = http.StatusBadGateway
		}
		http.Error(w, fmt.Sprintf("connect to %s port %d/%s: %v", p.addr, number, protocol, err), code)
		return
	}
	outside, err := hijack(w)
	if err != nil {
		inside.abort()
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.s.track(p, one, inside, outside, func() {
		if packets, ok := inside.(*guestPackets); ok {
			exchange(packets, newDatagrams(outside), udpIdle)
			return
		}
		splice(inside, outside)
	})
}

// hijack takes the connection of a request over, and tells the client so.
func hijack(w http.ResponseWriter) (net.Conn, error) {
	hijacker, ok := w.(http.Hijacker)
	if !ok {
		return nil, errors.New("the connection cannot be taken over")
	}
	conn, buffered, err := hijacker.Hijack()
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+upgradeName+"\r\n\r\n")
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	var reader *bufio.Reader
	if buffered.Reader.Buffered() > 0 {
		reader = buffered.Reader
	}
	return &bufferedConn{Conn: conn, reader: reader}, nil
}
