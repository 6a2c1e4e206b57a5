package network

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

func questionFor(name string, kind dnsmessage.Type) []byte {
	message := dnsmessage.Message{
		Header:    dnsmessage.Header{ID: 4711, RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(name), Type: kind, Class: dnsmessage.ClassINET}},
	}
	b, err := message.Pack()
	if err != nil {
		panic(err)
	}
	return b
}

// ask asks the DNS server of the network over UDP.
func ask(t *testing.T, g *guest, name string, kind dnsmessage.Type) dnsmessage.Message {
	t.Helper()
	gateway := g.machine.Address.As4()
	gateway[3] = 1
	conn := g.dialUDP(netip.AddrPortFrom(netip.AddrFrom4(gateway), portDNS).String())
	defer func() { _ = conn.Close() }()
	b := make([]byte, 1500)
	for range 20 {
		if _, err := conn.Write(questionFor(name, kind)); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(3 * time.Second))
		n, err := conn.Read(b)
		if err != nil {
			continue
		}
		var message dnsmessage.Message
		if err := message.Unpack(b[:n]); err != nil || message.ID != 4711 {
			t.Fatalf("answer %+v, %v", message, err)
		}
		return message
	}
	t.Fatalf("no answer for %s", name)
	return dnsmessage.Message{}
}

// lookup returns the address of a name.
func lookup(t *testing.T, g *guest, name string) (netip.Addr, bool) {
	t.Helper()
	message := ask(t, g, name, dnsmessage.TypeA)
	if len(message.Answers) == 0 {
		return netip.Addr{}, false
	}
	return netip.AddrFrom4(message.Answers[0].Body.(*dnsmessage.AResource).A), true
}

func TestNames(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "web", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	w.apply(func(c *Config) { c.Egress.Mode = EgressNone })
	names := []string{"web.", "WEB.", "web.one.", "web.vm.internal.", "web.one.vm.internal."}
	for _, name := range names {
		if addr, found := lookup(t, a, name); !found || addr != b.machine.Address {
			t.Errorf("%s is %s", name, addr)
		}
	}
	if message := ask(t, a, "web.one.vm.internal.", dnsmessage.TypeAAAA); message.RCode != dnsmessage.RCodeSuccess || len(message.Answers) != 0 {
		t.Errorf("AAAA: %+v", message)
	}
	if message := ask(t, a, "3.1.77.10.in-addr.arpa.", dnsmessage.TypePTR); len(message.Answers) != 1 || message.Answers[0].Body.(*dnsmessage.PTRResource).PTR.String() != "web.one.vm.internal." {
		t.Errorf("PTR: %+v", message)
	}
	for _, name := range []string{"other.", "other.one.vm.internal.", "web.two.vm.internal.", "9.1.77.10.in-addr.arpa."} {
		if message := ask(t, a, name, dnsmessage.TypeA); message.RCode != dnsmessage.RCodeNameError {
			t.Errorf("%s: %+v", name, message)
		}
	}
	// Without egress, other names are not even asked for.
	if message := ask(t, a, "example.com.", dnsmessage.TypeA); message.RCode != dnsmessage.RCodeRefused {
		t.Errorf("example.com: %+v", message)
	}
	// The names of a machine go with it.
	w.apply(func(c *Config) { c.Machines = c.Machines[:1] })
	for _, name := range names {
		if addr, found := lookup(t, a, name); found {
			t.Errorf("%s is still %s", name, addr)
		}
	}
}

// nameServer is one of the host's: it knows example.com over UDP, and over TCP a long answer.
func nameServer(t *testing.T) uint16 {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := packets.LocalAddr().(*net.UDPAddr).AddrPort().Port()
	stream, err := net.Listen("tcp", packets.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = packets.Close()
		_ = stream.Close()
	})
	answer := func(query []byte, records int) []byte {
		var message dnsmessage.Message
		if message.Unpack(query) != nil || len(message.Questions) != 1 {
			return nil
		}
		message.Response = true
		message.Additionals = nil
		for range records {
			message.Answers = append(message.Answers, addressRecord(message.Questions[0].Name, netip.MustParseAddr("93.184.216.34")))
		}
		b, _ := message.Pack()
		return b
	}
	go func() {
		b := make([]byte, 1500)
		for {
			n, from, err := packets.ReadFrom(b)
			if err != nil {
				return
			}
			reply := answer(b[:n], 1)
			wrong := append([]byte(nil), reply...)
			wrong[0] ^= 0xff // somebody who guesses identifiers
			_, _ = packets.WriteTo(wrong, from)
			_, _ = packets.WriteTo(reply, from)
		}
	}()
	go func() {
		for {
			conn, err := stream.Accept()
			if err != nil {
				return
			}
			b := make([]byte, 1500)
			if _, err := io.ReadFull(conn, b[:2]); err == nil {
				n, _ := io.ReadFull(conn, b[2:2+binary.BigEndian.Uint16(b)])
				reply := answer(b[2:2+n], 100)
				_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...))
			}
			_ = conn.Close()
		}
	}()
	return port
}

func TestOtherNames(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	w.stop()
	port := nameServer(t)
	w.prepare = func(s *netswitch) { s.dns = &resolver{file: "/does/not/exist", port: port} } // that is 127.0.0.1
	w.start()
	a.wait()
	if addr, found := lookup(t, a, "example.com."); !found || addr.String() != "93.184.216.34" {
		t.Errorf("example.com is %s", addr)
	}
	conn, err := a.dial("10.77.1.1:53")
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(patience))
	for range 2 { // two questions on one connection
		query := questionFor("example.com.", dnsmessage.TypeA)
		_, _ = conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...))
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, binary.BigEndian.Uint16(length[:]))
		var message dnsmessage.Message
		if _, err := io.ReadFull(conn, b); err != nil || message.Unpack(b) != nil || len(message.Answers) != 100 || message.ID != 4711 {
			t.Errorf("got %d answers, %v", len(message.Answers), err)
		}
	}
}

func TestQueriesThatAreNotAnswered(t *testing.T) {
	good := questionFor("example.com.", dnsmessage.TypeA)
	response := append([]byte(nil), good...)
	response[2] |= 0x80
	two := append([]byte(nil), good...)
	two[5] = 2
	for name, b := range map[string][]byte{"empty": nil, "short": good[:11], "a response": response, "more questions than there are": two, "long": make([]byte, maxDNSQuery+1)} {
		if _, ok := parseQuery(b); ok {
			t.Errorf("%s is answered", name)
		}
	}
	if q, ok := parseQuery(good); !ok || q.size != minDNSAnswer || q.id != 4711 {
		t.Errorf("query %+v", q)
	}
}

func TestResolv(t *testing.T) {
	servers := parseResolv([]byte("# mine\nnameserver 192.0.2.1\nsearch a b\nnameserver fe80::1%eth0\nnameserver x\nnameserver\n nameserver 192.0.2.3\nnameserver 192.0.2.4\n"))
	if len(servers) != 3 || servers[0].String() != "192.0.2.1" || servers[1].String() != "fe80::1%eth0" || servers[2].String() != "192.0.2.3" {
		t.Errorf("got %s", servers)
	}
	r := &resolver{file: "/does/not/exist"}
	for range maxResolving {
		if !r.active.take(maxResolving) {
			t.Fatal("too early")
		}
	}
	if _, err := r.ask(t.Context(), &query{}, false); !errors.Is(err, errTooMany) {
		t.Errorf("got %v", err)
	}
}
