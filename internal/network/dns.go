package network

import (
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	// dnsTTL is short: names of machines come and go. In seconds.
	dnsTTL = 5

	minDNSAnswer = 512  // what every client takes over UDP, RFC 1035 2.3.4
	maxDNSAnswer = 1232 // what is sent over UDP, and asked for from name servers: no fragments
	maxDNSQuery  = 1024
	dnsTCPIdle   = 10 * time.Second
)

// query is a question of a machine.
type query struct {
	id       uint16
	recurse  bool
	question dnsmessage.Question
	size     int  // of the answer that the client takes
	extended bool // it knows EDNS, RFC 6891
}

// parseQuery reads a message with one question. Everything else is not answered.
func parseQuery(b []byte) (*query, bool) {
	var parser dnsmessage.Parser
	header, err := parser.Start(b)
	if err != nil || len(b) > maxDNSQuery || header.Response || header.OpCode != 0 {
		return nil, false
	}
	questions, err := parser.AllQuestions()
	if err != nil || len(questions) != 1 {
		return nil, false
	}
	q := &query{id: header.ID, recurse: header.RecursionDesired, question: questions[0], size: minDNSAnswer}
	if parser.SkipAllAnswers() != nil || parser.SkipAllAuthorities() != nil {
		return nil, false
	}
	for {
		record, err := parser.AdditionalHeader()
		if err != nil {
			return q, true // there are no more
		}
		if record.Type == dnsmessage.TypeOPT {
			q.extended = true
			q.size = max(minDNSAnswer, min(int(record.Class), maxDNSAnswer))
		}
		if parser.SkipAdditional() != nil {
			return nil, false
		}
	}
}

// respond returns an answer with these records, which fit into any message.
func (q *query) respond(code dnsmessage.RCode, authoritative bool, records ...dnsmessage.Resource) []byte {
	message := dnsmessage.Message{
		Header: dnsmessage.Header{
			ID: q.id, Response: true, Authoritative: authoritative, RecursionDesired: q.recurse, RecursionAvailable: true, RCode: code,
		},
		Questions: []dnsmessage.Question{q.question},
		Answers:   records,
	}
	b, err := message.Pack()
	if err != nil {
		return nil // no name that was parsed is too long to be written
	}
	return b
}

// truncated returns an answer that says: ask again over TCP.
func (q *query) truncated() []byte {
	b := q.respond(dnsmessage.RCodeSuccess, false)
	if len(b) > 2 {
		b[2] |= 0x02 // TC
	}
	return b
}

// local returns the answer for names of machines, or false for names that are not ours. It may have to ask another network.
func (s *netswitch) local(t *table, p *port, q *query) ([]byte, bool) {
	name := strings.TrimSuffix(foldName(q.question.Name.String()), ".")
	if addr, ok := reverseName(name); ok && t.config.Prefix.Contains(addr) {
		return t.reverse(q, addr), true
	}
	inZone := name == Zone || strings.HasSuffix(name, "."+Zone)
	short := strings.TrimSuffix(name, "."+Zone)
	if name == Zone {
		return q.respond(dnsmessage.RCodeSuccess, true), true
	}
	machine, namespace, qualified := strings.Cut(short, ".")
	addr, found := netip.Addr{}, false
	switch {
	case !qualified && (inZone && short == foldName(t.config.Namespace)):
		return q.respond(dnsmessage.RCodeSuccess, true), true // the domain itself
	case !qualified || equalName(namespace, t.config.Namespace):
		addr, found = t.names[machine]
	default:
		if peer := t.peerNamed(namespace); peer != nil && p.machine.Load().consents(namespace) {
			addr, found = s.peerName(peer, t.config.Namespace, machine)
		}
	}
	switch {
	case found && q.question.Type == dnsmessage.TypeA:
		return q.respond(dnsmessage.RCodeSuccess, true, addressRecord(q.question.Name, addr)), true
	case found:
		return q.respond(dnsmessage.RCodeSuccess, true), true // it has no records of that type
	case inZone || !qualified:
		return q.respond(dnsmessage.RCodeNameError, true), true // never asked elsewhere
	default:
		return nil, false
	}
}

func addressRecord(name dnsmessage.Name, addr netip.Addr) dnsmessage.Resource {
	return dnsmessage.Resource{
		Header: dnsmessage.ResourceHeader{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET, TTL: dnsTTL},
		Body:   &dnsmessage.AResource{A: addr.As4()},
	}
}

// reverse answers for the name of an address of the network.
func (t *table) reverse(q *query, addr netip.Addr) []byte {
	for name, other := range t.names {
		if other != addr {
			continue
		}
		full, err := dnsmessage.NewName(name + "." + t.domain + ".")
		if err != nil || q.question.Type != dnsmessage.TypePTR {
			return q.respond(dnsmessage.RCodeSuccess, true)
		}
		return q.respond(dnsmessage.RCodeSuccess, true, dnsmessage.Resource{
			Header: dnsmessage.ResourceHeader{Name: q.question.Name, Type: dnsmessage.TypePTR, Class: dnsmessage.ClassINET, TTL: dnsTTL},
			Body:   &dnsmessage.PTRResource{PTR: full},
		})
	}
	return q.respond(dnsmessage.RCodeNameError, true)
}

// reverseName returns the address in a name such as 4.3.2.1.in-addr.arpa.
func reverseName(name string) (netip.Addr, bool) {
	text, ok := strings.CutSuffix(name, ".in-addr.arpa")
	if !ok {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || !addr.Is4() {
		return netip.Addr{}, false
	}
	b := addr.As4()
	return netip.AddrFrom4([4]byte{b[3], b[2], b[1], b[0]}), true
}

// resolve returns the answer to a query, or nil if there is none.
func (s *netswitch) resolve(t *table, p *port, q *query, tcp bool) []byte {
	if answer, ok := s.local(t, p, q); ok {
		return answer
	}
	if t.config.Egress.Mode == EgressNone {
		return q.respond(dnsmessage.RCodeRefused, false)
	}
	answer, err := s.dns.ask(s.ctx, q, tcp)
	if err != nil {
		return q.respond(dnsmessage.RCodeServerFailure, false)
	}
	return answer
}

// answerDNS answers a query over UDP. It returns at once.
func (s *netswitch) answerDNS(t *table, p *port, source uint16, data []byte) {
	if p.machine.Load().Isolated {
		p.drop(dropIsolated)
		return
	}
	q, ok := parseQuery(data)
	if !ok {
		p.drop(dropMalformed)
		return
	}
	if !p.limits.queries.take(maxQueries) {
		p.drop(dropLimit) // the machine asks again
		return
	}
	go func() {
		defer p.limits.queries.give()
		answer := s.resolve(t, p, q, false)
		if len(answer) > q.size {
			answer = q.truncated()
		}
		if answer != nil {
			p.sendUDP(t.gateway, portDNS, p.mac, p.addr, source, answer)
		}
	}()
}

// serveDNS answers queries on a TCP connection of a machine. RFC 1035 4.2.2.
func (s *netswitch) serveDNS(p *port, conn net.Conn) {
	buffer := make([]byte, maxDNSQuery)
	for {
		_ = conn.SetDeadline(time.Now().Add(dnsTCPIdle)) // a closed connection fails below
		if _, err := io.ReadFull(conn, buffer[:2]); err != nil {
			return
		}
		size := int(binary.BigEndian.Uint16(buffer))
		if size > len(buffer) {
			return
		}
		if _, err := io.ReadFull(conn, buffer[:size]); err != nil {
			return
		}
		q, ok := parseQuery(buffer[:size])
		if !ok || !p.limits.queries.take(maxQueries) {
			return
		}
		answer := s.resolve(s.table.Load(), p, q, true)
		p.limits.queries.give()
		if answer == nil || len(answer) > 1<<16-1 {
			return
		}
		if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}
