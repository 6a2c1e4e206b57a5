package network

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	resolvFile = "/etc/resolv.conf"
	// resolvAge is how long the host's list of name servers is used.
	resolvAge = 5 * time.Second

	maxNameServers = 3 // as resolv.conf(5)
	attemptTimeout = 2 * time.Second
	// maxResolving bounds the queries of all machines.
	maxResolving = 256
)

// resolver asks the name servers of the host.
type resolver struct {
	file   string
	port   uint16
	active limit

	mu      sync.Mutex
	until   time.Time
	servers []netip.Addr
}

func newResolver() *resolver { return &resolver{file: resolvFile, port: portDNS} }

// nameServers returns those of the host.
func (r *resolver) nameServers() []netip.Addr {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if now.Before(r.until) {
		return r.servers
	}
	r.until = now.Add(resolvAge)
	content, err := os.ReadFile(r.file)
	if errors.Is(err, fs.ErrPermission) && len(r.servers) > 0 {
		return r.servers // the file was replaced by one that the sandbox does not know
	}
	r.servers = parseResolv(content) // without the file, names are resolved by this host, resolv.conf(5)
	return r.servers
}

// parseResolv reads resolv.conf(5).
func parseResolv(content []byte) []netip.Addr {
	var servers []netip.Addr
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() && len(servers) < maxNameServers {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil {
			servers = append(servers, addr)
		}
	}
	if len(servers) == 0 {
		servers = []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	}
	return servers
}

var (
	errResolver = errors.New("no name server of the host has answered")
	errAnswer   = errors.New("the answer is not one to the question")
)

// ask asks one name server after another, and returns the answer as it is, for the client. The question is written anew: what
// else a machine has put into its query goes nowhere.
func (r *resolver) ask(ctx context.Context, q *query, tcp bool) ([]byte, error) {
	if !r.active.take(maxResolving) {
		return nil, errTooMany
	}
	defer r.active.give()
	for _, server := range r.nameServers() {
		answer, err := r.askOne(ctx, server, q, tcp)
		if err == nil {
			binary.BigEndian.PutUint16(answer, q.id)
			return answer, nil
		}
	}
	return nil, errResolver
}

func (r *resolver) askOne(ctx context.Context, server netip.Addr, q *query, tcp bool) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	id, message, err := q.upstream()
	if err != nil {
		return nil, err
	}
	network := "udp"
	if tcp {
		network = "tcp"
		message = append(binary.BigEndian.AppendUint16(nil, uint16(len(message))), message...)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, netip.AddrPortFrom(server, r.port).String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := conn.Write(message); err != nil {
		return nil, err
	}
	buffer := make([]byte, 4<<10)
	for {
		answer, err := readAnswer(conn, buffer, tcp)
		if err != nil {
			return nil, err
		}
		if q.matches(answer, id) {
			return answer, nil
		}
		if tcp {
			return nil, errAnswer
		}
	}
}

func readAnswer(conn net.Conn, buffer []byte, tcp bool) ([]byte, error) {
	if !tcp {
		n, err := conn.Read(buffer)
		return buffer[:n], err
	}
	if _, err := io.ReadFull(conn, buffer[:2]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(buffer))
	_, err := io.ReadFull(conn, answer)
	return answer, err
}

// upstream returns the query for a name server, with an identifier that a machine cannot guess.
func (q *query) upstream() (uint16, []byte, error) {
	var random [2]byte
	_, _ = rand.Read(random[:]) // it never fails
	id := binary.BigEndian.Uint16(random[:])
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: id, RecursionDesired: true},
		Questions: []dnsmessage.Question{q.question},
	}
	if q.extended {
		var option dnsmessage.ResourceHeader
		if err := option.SetEDNS0(q.size, dnsmessage.RCodeSuccess, false); err != nil {
			return 0, nil, err
		}
		message.Additionals = []dnsmessage.Resource{{Header: option, Body: &dnsmessage.OPTResource{}}}
	}
	b, err := message.Pack()
	return id, b, err
}

// matches reports whether a message answers the question that was asked with an identifier.
func (q *query) matches(b []byte, id uint16) bool {
	var parser dnsmessage.Parser
	header, err := parser.Start(b)
	if err != nil || header.ID != id || !header.Response {
		return false
	}
	question, err := parser.Question()
	return err == nil && question.Type == q.question.Type && question.Class == q.question.Class &&
		strings.EqualFold(question.Name.String(), q.question.Name.String())
}
