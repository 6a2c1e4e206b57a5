package network

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestInspect(t *testing.T) {
	own := identity{mac: [macLen]byte{0x52, 0x54, 0, 0, 1, 2}, addr: netip.MustParseAddr("10.77.1.2")}
	other := identity{mac: [macLen]byte{0x52, 0x54, 0, 0, 1, 3}, addr: netip.MustParseAddr("10.77.1.3")}
	none := netip.IPv4Unspecified()
	ether := func(source [macLen]byte, kind uint16) []byte { return appendEthernet(nil, other.mac, source, kind) }
	datagram := func(source netip.Addr, from, to uint16, destination netip.Addr, data []byte) []byte {
		return appendUDP(ether(own.mac, etherIPv4), netip.AddrPortFrom(source, from), netip.AddrPortFrom(destination, to), data)
	}
	arp := func(operation uint16, sender, target identity) []byte {
		return appendARP(ether(own.mac, etherARP), operation, sender.mac, sender.addr, target.mac, target.addr)
	}
	patched := func(b []byte, at int, value ...byte) []byte {
		copy(b[at:], value)
		return b
	}
	plain := func() []byte { return datagram(own.addr, 1, 2, other.addr, nil) }
	for _, one := range []struct {
		name  string
		frame []byte
		kind  kind
		why   reason
	}{
		{"a packet", plain(), kindIPv4, passed},
		{"a packet and padding", append(plain(), 0, 0, 0), kindIPv4, passed},
		{"nothing", nil, 0, dropMalformed},
		{"half a header", make([]byte, etherLen-1), 0, dropMalformed},
		{"a giant", make([]byte, maxFrame+1), 0, dropOversized},
		{"another's MAC", appendUDP(ether(other.mac, etherIPv4), netip.AddrPortFrom(own.addr, 1), netip.AddrPortFrom(other.addr, 2), nil), 0, dropSourceMAC},
		{"the gateway's MAC", appendUDP(ether(gatewayMAC, etherIPv4), netip.AddrPortFrom(own.addr, 1), netip.AddrPortFrom(other.addr, 2), nil), 0, dropSourceMAC},
		{"another's address", datagram(other.addr, 1, 2, other.addr, nil), 0, dropSourceAddress},
		{"no address", datagram(none, 1, 2, other.addr, nil), 0, dropSourceAddress},
		{"another's address in a fragment", patched(datagram(other.addr, 1, 2, other.addr, nil), etherLen+6, 0, 9), kindIPv4, dropSourceAddress},
		{"IPv6", ether(own.mac, etherIPv6), 0, dropIPv6},
		{"VLAN", append(ether(own.mac, 0x8100), plain()[etherLen-2:]...), 0, dropProtocol},
		{"half a packet", plain()[:etherLen+ipv4Len-1], 0, dropMalformed},
		{"version 6 in IPv4", patched(plain(), etherLen, 0x65), 0, dropMalformed},
		{"a header shorter than a header", patched(plain(), etherLen, 0x44), 0, dropMalformed},
		{"longer than the frame", patched(plain(), etherLen+2, 0x22, 0x00), 0, dropMalformed},
		{"shorter than its header", patched(plain(), etherLen+2, 0, 19), 0, dropMalformed},
		{"a datagram longer than the packet", patched(plain(), etherLen+ipv4Len+4, 0xff, 0xff), 0, dropMalformed},
		{"a datagram shorter than its header", patched(plain(), etherLen+ipv4Len+4, 0, 7), 0, dropMalformed},

		{"an ARP request", arp(arpRequest, own, other), kindARP, passed},
		{"an ARP probe", arp(arpRequest, identity{own.mac, none}, own), kindARP, passed},
		{"an ARP reply", arp(arpReply, own, other), kindARP, passed},
		{"ARP for another's address", arp(arpReply, identity{own.mac, other.addr}, other), kindARP, dropARP},
		{"ARP for the gateway", arp(arpReply, identity{own.mac, netip.MustParseAddr("10.77.1.1")}, other), kindARP, dropARP},
		{"ARP for another's MAC", arp(arpReply, identity{other.mac, own.addr}, other), kindARP, dropARP},
		{"half an ARP message", arp(arpRequest, own, other)[:etherLen+arpLen-1], kindARP, dropMalformed},
		{"ARP of other lengths", patched(arp(arpRequest, own, other), etherLen+4, 8), kindARP, dropMalformed},

		{"DHCP", dhcpFrame(own.mac, none, dhcpMessage(own.mac, dhcpDiscover)), kindDHCP, passed},
		{"DHCP to renew", dhcpFrame(own.mac, own.addr, dhcpMessage(own.mac, dhcpRequest)), kindDHCP, passed},
		{"DHCP for another", dhcpFrame(own.mac, none, dhcpMessage(other.mac, dhcpDiscover)), 0, dropDHCP},
		{"DHCP from another's address", dhcpFrame(own.mac, other.addr, dhcpMessage(own.mac, dhcpRequest)), 0, dropSourceAddress},
		{"an answer of a DHCP server", datagram(own.addr, portDHCPServer, portDHCPClient, other.addr, dhcpMessage(own.mac, dhcpOffer)), 0, dropDHCP},
		{"one to the client's port", datagram(own.addr, 1, portDHCPClient, other.addr, nil), 0, dropDHCP},
		{"half a DHCP message", dhcpFrame(own.mac, none, make([]byte, dhcpOptions-1)), 0, dropDHCP},
		{"DHCP from another port", datagram(none, 1, portDHCPServer, broadcastAddr, dhcpMessage(own.mac, dhcpDiscover)), 0, dropDHCP},
	} {
		kind, why := inspect(one.frame, own)
		if why != one.why || why == passed && kind != one.kind {
			t.Errorf("%s: got kind %d, %q, want %d, %q", one.name, kind, reasonNames[why], one.kind, reasonNames[one.why])
		}
	}
}

// FuzzInspect: whatever passes the filter is handled without a crash, and has the machine's own addresses.
func FuzzInspect(f *testing.F) {
	own := identity{mac: [macLen]byte{0x52, 0x54, 0, 0, 1, 2}, addr: netip.MustParseAddr("10.77.1.2")}
	l := lease{prefix: netip.MustParsePrefix("10.77.1.0/24"), gateway: netip.MustParseAddr("10.77.1.1"), identity: own, namespaceDomain: "one.vm.internal", search: []string{"one.vm.internal", Zone}}
	f.Add(dhcpFrame(own.mac, netip.IPv4Unspecified(), dhcpMessage(own.mac, dhcpDiscover)))
	f.Add(appendARP(appendEthernet(nil, broadcastMAC, own.mac, etherARP), arpRequest, own.mac, own.addr, own.mac, own.addr))
	f.Add(appendUDP(appendEthernet(nil, gatewayMAC, own.mac, etherIPv4), netip.AddrPortFrom(own.addr, 1), netip.AddrPortFrom(l.gateway, portDNS), questionFor("a.", 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		kind, why := inspect(b, own)
		if why != passed {
			return
		}
		if [macLen]byte(b[macLen:]) != own.mac {
			t.Fatal("another's MAC")
		}
		if kind == kindARP {
			return
		}
		packet, ok := parseIPv4(b[etherLen:])
		if !ok || packet.source() != own.addr && kind != kindDHCP {
			t.Fatal("another's address")
		}
		_, _, data, isUDP := packet.udp()
		if kind == kindDHCP {
			if reply, _ := l.answer(data); reply != nil {
				l.replyAddr(data, reply)
			}
		}
		if isUDP {
			parseQuery(data)
		}
	})
}

// FuzzReceive: nothing that a machine sends to the gateway crashes it. The frames have the machine's own addresses, which the
// filter would insist on.
func FuzzReceive(f *testing.F) {
	config := Config{Namespace: "one", Prefix: netip.MustParsePrefix("10.77.1.0/24"),
		Machines: []Machine{{UID: "a", Name: "a", MAC: "52:54:00:00:01:02", Address: netip.MustParseAddr("10.77.1.2"), Socket: "/does/not/exist"}}}
	s, err := newSwitch(f.Context(), config)
	if err != nil {
		f.Fatal(err)
	}
	s.dial = func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("there is no Internet")
	}
	s.dns = &resolver{file: "/does/not/exist", port: 1}
	if err := s.apply(config); err != nil {
		f.Fatal(err)
	}
	p := s.table.Load().ports[0]
	gateway, public := netip.MustParseAddr("10.77.1.1"), netip.MustParseAddr("93.184.216.34")
	for _, frame := range [][]byte{
		appendUDP(nil, netip.AddrPortFrom(p.addr, 1), netip.AddrPortFrom(gateway, portDNS), questionFor("a.", 1)),
		appendUDP(nil, netip.AddrPortFrom(p.addr, 1), netip.AddrPortFrom(public, 1000), []byte("data")),
		appendICMP(nil, p.addr, gateway, icmpEcho, 0, [4]byte{}, []byte("ping")),
		appendICMP(nil, p.addr, gateway, icmpUnreachable, 3, [4]byte{}, appendUDP(nil, netip.AddrPortFrom(gateway, 1), netip.AddrPortFrom(p.addr, 1), nil)),
		append(appendIPv4(nil, p.addr, public, protocolTCP, 20), 1, 2, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 1, 0, 0, 0, 0),
	} {
		f.Add(frame)
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		if len(b) > mtu {
			return
		}
		one := newFrame(etherLen + len(b))
		copy(one.bytes(), appendEthernet(nil, gatewayMAC, p.mac, etherIPv4))
		copy(one.bytes()[etherLen:], b)
		if from := p.addr.As4(); len(b) >= ipv4Len {
			copy(one.bytes()[etherLen+12:], from[:])
		}
		s.receive(p, one)
	})
}

// TestForgedFrames sends what the filter has to refuse to a switch, and looks at what the victim sees.
func TestForgedFrames(t *testing.T) {
	attacker, victim := newGuest(t, "attacker", "10.77.1.2"), newGuest(t, "victim", "10.77.1.3")
	third := newGuest(t, "third", "10.77.1.4")
	w := newWorld(t, "one", "10.77.1.0/24", attacker, victim, third)
	own, to := attacker.mac(), victim.mac()
	packet := func(mac [macLen]byte, source string, port uint16) []byte {
		return appendUDP(appendEthernet(nil, to, mac, etherIPv4), netip.AddrPortFrom(netip.MustParseAddr(source), 1), netip.AddrPortFrom(victim.machine.Address, port), []byte("forged"))
	}
	for _, frame := range [][]byte{
		packet(third.mac(), "10.77.1.2", 1000),
		packet(gatewayMAC, "10.77.1.1", 1000),
		packet(own, "10.77.1.4", 1000),
		packet(own, "10.77.1.1", 1000),
		packet(own, "8.8.8.8", 1000),
		appendARP(appendEthernet(nil, to, own, etherARP), arpReply, own, netip.MustParseAddr("10.77.1.1"), to, victim.machine.Address),
		appendARP(appendEthernet(nil, broadcastMAC, own, etherARP), arpRequest, own, netip.MustParseAddr("10.77.1.4"), to, victim.machine.Address),
		// Even what is its own is not shown to others: the switch answers.
		appendARP(appendEthernet(nil, broadcastMAC, own, etherARP), arpRequest, own, attacker.machine.Address, to, victim.machine.Address),
		dhcpFrame(own, netip.IPv4Unspecified(), dhcpMessage(to, dhcpDiscover)),
		appendUDP(appendEthernet(nil, to, own, etherIPv4), netip.AddrPortFrom(attacker.machine.Address, portDHCPServer), netip.AddrPortFrom(victim.machine.Address, portDHCPClient), dhcpMessage(to, dhcpOffer)),
		appendEthernet(nil, to, own, etherIPv6),
	} {
		attacker.send(frame)
	}
	attacker.send(packet(own, "10.77.1.2", 2000)) // the first one that is honest
	victim.next("honest packet, and nothing forged before it", func(b []byte) bool {
		honest := len(b) > etherLen+ipv4Len+udpLen && b[etherLen+9] == protocolUDP && binary.BigEndian.Uint16(b[etherLen+ipv4Len+2:]) == 2000
		if announcement := b[12] == etherARP>>8 && b[13] == etherARP&0xff && [4]byte(b[28:32]) == [4]byte(b[38:42]); !honest && !announcement {
			t.Errorf("the victim sees %x", b)
		}
		return honest
	})
	drops := w.machine(attacker).DropsBy
	for name, want := range map[string]uint64{"sourceMAC": 2, "sourceAddress": 3, "arp": 2, "dhcp": 2, "ipv6": 1} {
		if drops[name] < want {
			t.Errorf("%s: %d were counted, want %d", name, drops[name], want)
		}
	}
}

// TestLyingLengths: what a length promises and does not keep ends the connection of that machine, and of no other.
func TestLyingLengths(t *testing.T) {
	attacker, a, b := newGuest(t, "attacker", "10.77.1.2"), newGuest(t, "a", "10.77.1.3"), newGuest(t, "b", "10.77.1.4")
	w := newWorld(t, "one", "10.77.1.0/24", attacker, a, b)
	b.echoes(80)
	conn, err := a.dial("10.77.1.4:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "b")
	first := attacker.wait()
	attacker.send(make([]byte, maxFrame+500)) // too long for the network, and skipped
	w.eventually("it is counted", func() bool { return w.machine(attacker).DropsBy["oversized"] == 1 })
	if _, err := first.Write([]byte{0xff, 0xff, 0xff, 0xff}); err != nil {
		t.Fatal(err)
	}
	w.eventually("it has a new connection", func() bool {
		attacker.mu.Lock()
		defer attacker.mu.Unlock()
		return attacker.conn != nil && attacker.conn != first
	})
	talkOn(t, conn)
	if kind, _ := dhcp(t, attacker, nil); kind != dhcpAck {
		t.Errorf("DHCP: %d", kind)
	}
}

// TestFlood: a machine that sends as fast as it can, to one that never reads and to all, does not keep others from theirs.
func TestFlood(t *testing.T) {
	attacker, a, b, deaf := newGuest(t, "attacker", "10.77.1.2"), newGuest(t, "a", "10.77.1.3"), newGuest(t, "b", "10.77.1.4"), newDeafGuest(t, "deaf", "10.77.1.5")
	w := newWorld(t, "one", "10.77.1.0/24", attacker, a, b, deaf)
	b.echoes(80)
	own := attacker.mac()
	data := make([]byte, 1400)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, to := range [][macLen]byte{deaf.mac(), broadcastMAC} {
				attacker.send(appendUDP(appendEthernet(nil, to, own, etherIPv4), netip.AddrPortFrom(attacker.machine.Address, 9), netip.AddrPortFrom(broadcastAddr, 9), data))
			}
		}
	}()
	w.eventually("the queue of the deaf one overflows", func() bool { return w.machine(deaf).DropsBy["overflow"] > 100 })
	for range 3 {
		conn, err := a.dial("10.77.1.4:80")
		if err != nil {
			t.Fatal(err)
		}
		talk(t, conn, "b")
		_ = conn.Close()
	}
	dialed, err := w.client.Dial(context.Background(), b.machine.UID, TCP, 80)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, dialed, "b")
	close(stop)
	<-stopped
}

// TestManyConnections: a machine has its limits, and the others have theirs.
func TestManyConnections(t *testing.T) {
	attacker, a := newGuest(t, "attacker", "10.77.1.2"), newGuest(t, "a", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", attacker, a)
	public := internet(t, w)
	attacker.wait()
	a.wait()
	w.s.maxConnections = 40 // shared by two machines
	for range 40 {
		conn, err := attacker.dial(public)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	w.eventually("it has its share and no more", func() bool {
		status := w.machine(attacker)
		return status.Connections == 20 && status.DropsBy["limit"] > 0
	})
	conn, err := a.dial(public)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "internet")
}

// TestHalfOpenConnections: connections that the machine begins and does not complete are bounded, and it gets no more.
func TestHalfOpenConnections(t *testing.T) {
	attacker, a := newGuest(t, "attacker", "10.77.1.2"), newGuest(t, "a", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", attacker, a)
	public := internet(t, w)
	attacker.wait()
	a.wait()
	target := netip.MustParseAddrPort(public)
	for port := range uint16(3 * maxHalfOpen) {
		attacker.send(syn(attacker, 1000+port, target))
	}
	w.eventually("attempts are dropped", func() bool { return w.machine(attacker).DropsBy["limit"] > 0 })
	begin := time.Now()
	conn, err := a.dial(public)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "internet")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("another machine waited %s", took)
	}
	if used := w.s.table.Load().byUID[attacker.machine.UID].limits.halfOpen.used.Load(); used > maxHalfOpen {
		t.Errorf("%d are half open", used)
	}
}
