package launcher

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

const (
	// maxProbes is the maximum number of connections from outside of the Pod at a time, and maxProbesOfOne of those from one address: kubelet
	// has one or two, and another Pod cannot keep it out.
	maxProbes, maxProbesOfOne = 64, 4
	// maxLocal is the maximum number of connections from within the Pod at a time. The manager has one, which has many streams.
	maxLocal = 64
	// probeTimeout limits a connection from outside, in addition to the time that a probe waits.
	probeTimeout = 10 * time.Second
)

// gate accepts the connections of a port: those from within the Pod, where the port forwarding of the API server ends, for the manager, and
// others for probes. It closes those beyond its limits at once: every Pod of the cluster may reach the port.
type gate struct {
	listener       net.Listener
	local, outside *side

	mu sync.Mutex
	// open are the numbers of open connections by the addresses of the clients. All clients within the Pod count as one, localClient.
	open map[netip.Addr]int
	// outsiders is the number of those from outside.
	outsiders int
}

// localClient is the address that all clients within the Pod count as.
var localClient = netip.IPv6Loopback()

func newGate(listener net.Listener) *gate {
	newSide := func() *side { return &side{Listener: listener, conns: make(chan net.Conn), done: make(chan struct{})} }
	return &gate{listener: listener, local: newSide(), outside: newSide(), open: map[netip.Addr]int{}}
}

// serve serves both sides until the gate is closed.
func (g *gate) serve(manager, probes http.Handler) {
	local := &http.Server{Handler: manager, ReadHeaderTimeout: monitorTimeout, MaxHeaderBytes: 16 << 10, Protocols: new(http.Protocols)}
	local.Protocols.SetHTTP1(true)
	local.Protocols.SetUnencryptedHTTP2(true)
	outside := &http.Server{Handler: probes, ReadHeaderTimeout: probeTimeout, MaxHeaderBytes: 4 << 10, Protocols: new(http.Protocols)}
	outside.Protocols.SetHTTP1(true)
	outside.SetKeepAlivesEnabled(false) // kubelet has a connection for each probe
	go func() { _ = local.Serve(g.local) }()
	go func() { _ = outside.Serve(g.outside) }()
	for {
		conn, err := g.listener.Accept()
		if err != nil { // it is closed
			_, _ = local.Close(), outside.Close()
			return
		}
		if to, counted := g.admit(conn); to != nil {
			to.conns <- counted
		} else {
			_ = conn.Close()
		}
	}
}

func (g *gate) close() { _ = g.listener.Close() }

// admit counts a connection, and returns the side that it is for; nil if there are too many.
func (g *gate) admit(conn net.Conn) (*side, net.Conn) {
	from, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return nil, nil
	}
	client, isOutside, limit := from.Addr().Unmap(), 1, maxProbesOfOne
	if client.IsLoopback() {
		client, isOutside, limit = localClient, 0, maxLocal
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open[client] >= limit || g.outsiders+isOutside > maxProbes {
		return nil, nil
	}
	g.open[client]++
	g.outsiders += isOutside
	counted := &countedConn{Conn: conn, leave: sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.outsiders -= isOutside
		if g.open[client]--; g.open[client] == 0 {
			delete(g.open, client)
		}
	})}
	if isOutside == 0 {
		return g.local, counted
	}
	time.AfterFunc(maxWait+probeTimeout, func() { _ = counted.Close() })
	return g.outside, counted
}

// countedConn is a connection that counts until it is closed.
type countedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}

// side is the listener of the server of one side.
type side struct {
	net.Listener
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

// Accept implements net.Listener.
func (s *side) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.done:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (s *side) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil // the gate closes the port
}
