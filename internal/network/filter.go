package network

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// reason says why a frame was dropped or a connection refused.
type reason int

const (
	passed reason = iota
	dropMalformed
	dropOversized
	dropSourceMAC
	dropSourceAddress
	dropARP
	dropDHCP
	dropIPv6
	dropProtocol
	dropUnknown
	dropIsolated
	dropOverflow
	dropEgress
	dropLimit
	reasons
)

// names of the reasons in MachineStatus.DropsBy.
var reasonNames = [reasons]string{
	dropMalformed:     "malformed",     // no valid frame or packet
	dropOversized:     "oversized",     // longer than the MTU allows
	dropSourceMAC:     "sourceMAC",     // from another MAC address
	dropSourceAddress: "sourceAddress", // from another IPv4 address
	dropARP:           "arp",           // ARP in the name of another
	dropDHCP:          "dhcp",          // DHCP for another, or as a server
	dropIPv6:          "ipv6",          // the network is IPv4 only; guests try IPv6 anyway
	dropProtocol:      "protocol",      // neither IPv4 nor ARP, or an IP protocol that the gateway does not carry
	dropUnknown:       "unknown",       // no machine has the destination MAC address
	dropIsolated:      "isolated",      // from or to an isolated machine
	dropOverflow:      "overflow",      // the machine does not read as fast as others send
	dropEgress:        "refused",       // a destination that the machine may not reach
	dropLimit:         "limit",         // too many connections, flows or queries
}

// kind is what a frame that passed the filter is.
type kind int

const (
	kindARP kind = iota
	kindDHCP
	kindIPv4
)

// identity is what a machine may use.
type identity struct {
	mac  [macLen]byte
	addr netip.Addr
}

// inspect decides about a frame that a machine has sent. It may come from itself only: from its MAC address, from its IPv4
// address, with ARP and DHCP for itself.
func inspect(frame []byte, own identity) (kind, reason) {
	if len(frame) < etherLen {
		return 0, dropMalformed
	}
	if len(frame) > maxFrame {
		return 0, dropOversized
	}
	if !bytes.Equal(frame[macLen:2*macLen], own.mac[:]) {
		return 0, dropSourceMAC
	}
	switch binary.BigEndian.Uint16(frame[2*macLen:]) {
	case etherARP:
		return kindARP, inspectARP(frame[etherLen:], own)
	case etherIPv4:
		return inspectIPv4(frame[etherLen:], own)
	case etherIPv6:
		return 0, dropIPv6
	default:
		return 0, dropProtocol
	}
}

func inspectARP(b []byte, own identity) reason {
	if len(b) < arpLen || !bytes.Equal(b[:6], []byte{0, 1, etherIPv4 >> 8, etherIPv4 & 0xff, macLen, 4}) {
		return dropMalformed
	}
	sender := netip.AddrFrom4([4]byte(b[14:18]))
	// 0.0.0.0 asks whether an address is in use. RFC 5227.
	if !bytes.Equal(b[8:14], own.mac[:]) || sender != own.addr && !sender.IsUnspecified() {
		return dropARP
	}
	return passed
}

func inspectIPv4(b []byte, own identity) (kind, reason) {
	packet, ok := parseIPv4(b)
	if !ok {
		return 0, dropMalformed
	}
	source, destination, data, isUDP := packet.udp()
	if packet.protocol() == protocolUDP && packet.isFirst() {
		if !isUDP {
			return 0, dropMalformed
		}
		// Nobody but the gateway is a DHCP server.
		if source == portDHCPServer || destination == portDHCPClient {
			return 0, dropDHCP
		}
		if destination == portDHCPServer {
			return inspectDHCP(packet, source, data, own)
		}
	}
	if packet.source() != own.addr {
		return 0, dropSourceAddress
	}
	return kindIPv4, passed
}

// inspectDHCP allows requests of the machine itself: from its address, or from none while it has none.
func inspectDHCP(packet ipv4Packet, source uint16, data []byte, own identity) (kind, reason) {
	from := packet.source()
	switch {
	case from != own.addr && !from.IsUnspecified():
		return 0, dropSourceAddress
	case source != portDHCPClient || packet.isFragment() || !ownDHCP(data, own):
		return 0, dropDHCP
	default:
		return kindDHCP, passed
	}
}
