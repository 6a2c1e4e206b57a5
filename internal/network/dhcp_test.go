package network

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

// dhcpMessage is a message of a client.
func dhcpMessage(hardware [macLen]byte, kind byte, options ...[]byte) []byte {
	b := make([]byte, dhcpOptions)
	b[0], b[1], b[2] = 1, 1, macLen
	copy(b[dhcpXID:], "xid!")
	copy(b[dhcpHardware:], hardware[:])
	copy(b[dhcpCookie:], dhcpMagic)
	b = append(b, optionType, 1, kind)
	for _, option := range options {
		b = append(b, option...)
	}
	return append(b, optionEnd)
}

func dhcpFrame(source [macLen]byte, from netip.Addr, message []byte) []byte {
	return appendUDP(appendEthernet(nil, broadcastMAC, source, etherIPv4), netip.AddrPortFrom(from, portDHCPClient), netip.AddrPortFrom(broadcastAddr, portDHCPServer), message)
}

// dhcpReply waits for an answer of the DHCP server.
func dhcpReply(g *guest) []byte {
	frame := g.next("answer of the DHCP server", func(b []byte) bool {
		return len(b) > etherLen+ipv4Len+udpLen+dhcpOptions && b[etherLen+9] == protocolUDP &&
			binary.BigEndian.Uint16(b[etherLen+ipv4Len:]) == portDHCPServer
	})
	return frame[etherLen+ipv4Len+udpLen:]
}

// dhcp asks for an address as a machine does that starts; wanted is the one that it remembers.
func dhcp(t *testing.T, g *guest, wanted []byte) (kind byte, addr netip.Addr) {
	t.Helper()
	none := netip.IPv4Unspecified()
	if wanted == nil {
		g.send(dhcpFrame(g.mac(), none, dhcpMessage(g.mac(), dhcpDiscover)))
		offer := dhcpReply(g)
		if got := dhcpOption(offer, optionType); !bytes.Equal(got, []byte{dhcpOffer}) {
			t.Fatalf("got message %v", got)
		}
		wanted = offer[dhcpYour : dhcpYour+4]
	}
	g.send(dhcpFrame(g.mac(), none, dhcpMessage(g.mac(), dhcpRequest, append([]byte{optionRequested, 4}, wanted...))))
	reply := dhcpReply(g)
	return dhcpOption(reply, optionType)[0], netipAddr(reply[dhcpYour : dhcpYour+4])
}

func TestDHCP(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	if status := w.machine(a); status.Leased {
		t.Errorf("status %+v", status)
	}
	a.send(dhcpFrame(a.mac(), netip.IPv4Unspecified(), dhcpMessage(a.mac(), dhcpDiscover)))
	offer := dhcpReply(a)
	for code, want := range map[byte][]byte{
		optionType: {dhcpOffer}, optionServer: {10, 77, 1, 1}, optionRouter: {10, 77, 1, 1}, optionDNS: {10, 77, 1, 1},
		optionMask: {255, 255, 255, 0}, optionMTU: {0x23, 0x28}, optionLease: {0, 1, 0x51, 0x80}, optionDomain: []byte("one.vm.internal"),
		optionSearch: []byte("\x03one\x02vm\x08internal\x00\x02vm\x08internal\x00"),
	} {
		if got := dhcpOption(offer, code); !bytes.Equal(got, want) {
			t.Errorf("option %d is %v, want %v", code, got, want)
		}
	}
	if string(offer[dhcpXID:dhcpXID+4]) != "xid!" || !bytes.Equal(offer[dhcpYour:dhcpYour+4], []byte{10, 77, 1, 2}) {
		t.Errorf("offer %v", offer[:dhcpCookie])
	}
	if kind, addr := dhcp(t, a, nil); kind != dhcpAck || addr != a.machine.Address {
		t.Errorf("got %d %s", kind, addr)
	}
	if status := w.machine(a); !status.Leased || status.LeasedAt == nil {
		t.Errorf("status %+v", status)
	}
	// It remembers an address of another network.
	if kind, _ := dhcp(t, a, []byte{10, 0, 2, 15}); kind != dhcpNak {
		t.Errorf("got %d", kind)
	}
}

func TestDHCPMessagesThatNeedNoAnswer(t *testing.T) {
	own := identity{mac: [macLen]byte{2, 0, 0, 0, 0, 1}, addr: netip.MustParseAddr("10.77.1.2")}
	l := lease{prefix: netip.MustParsePrefix("10.77.1.0/24"), gateway: netip.MustParseAddr("10.77.1.1"), identity: own, namespaceDomain: "one.vm.internal", search: []string{"one.vm.internal", Zone}}
	for name, message := range map[string][]byte{
		"release":                 dhcpMessage(own.mac, 7),
		"decline":                 dhcpMessage(own.mac, 4),
		"an offer":                dhcpMessage(own.mac, dhcpOffer),
		"an answer to another":    dhcpMessage(own.mac, dhcpRequest, []byte{optionServer, 4, 10, 77, 1, 9}),
		"an option beyond":        append(dhcpMessage(own.mac, 99)[:dhcpOptions], optionType, 200, 1),
		"an option cut off":       append(dhcpMessage(own.mac, 99)[:dhcpOptions], optionType),
		"no type, padding to end": append(dhcpMessage(own.mac, 99)[:dhcpOptions], 0, 0, 0),
	} {
		if reply, _ := l.answer(message); reply != nil {
			t.Errorf("%s is answered", name)
		}
	}
	if reply, granted := l.answer(dhcpMessage(own.mac, dhcpInform)); granted || reply == nil || !bytes.Equal(reply[dhcpYour:dhcpYour+4], make([]byte, 4)) || dhcpOption(reply, optionLease) != nil {
		t.Errorf("inform: %v", reply)
	}
}
