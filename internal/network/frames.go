package network

import (
	"encoding/binary"
	"net/netip"
)

// Sizes and numbers of Ethernet, ARP, IPv4, ICMP and UDP. RFC 826, 791, 792, 768.
const (
	macLen     = 6
	etherLen   = 14
	ipv4Len    = 20
	udpLen     = 8
	icmpLen    = 8
	arpLen     = 28
	maxFrame   = etherLen + mtu
	minimalTTL = 64

	etherIPv4 = 0x0800
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	protocolICMP = 1
	protocolTCP  = 6
	protocolUDP  = 17

	portDNS        = 53
	portDHCPServer = 67
	portDHCPClient = 68

	icmpEchoReply          = 0
	icmpUnreachable        = 3
	icmpEcho               = 8
	icmpPortUnreachable    = 3
	icmpAdminProhibited    = 13
	arpRequest             = 1
	arpReply               = 2
	moreFragments          = 0x2000
	fragmentOffsetMask     = 0x1fff
	unreachableQuote       = ipv4Len + 8 // what an ICMP error has to quote at least
	ipv4DontFragment       = 0x4000
	maxUnfragmentedPayload = mtu - ipv4Len - udpLen
)

// mtu is that of the network, which machines learn by DHCP. Full frames of six times the usual size halve the time that
// emulated machines need for a stream. TCP of a machine that does not listen has segments that it can take.
const mtu = 9000

var (
	// gatewayMAC is that of the gateway, the same in all networks: locally administered.
	gatewayMAC = [macLen]byte{0x0e, 0x6b, 0x65, 0x6c, 0x00, 0x01}

	broadcastMAC  = [macLen]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	broadcastAddr = netip.AddrFrom4([4]byte{255, 255, 255, 255})
)

// ipv4Packet is an IPv4 packet whose header and length were checked by parseIPv4.
type ipv4Packet []byte

// parseIPv4 returns the packet without the padding of the frame, or false if it is malformed.
func parseIPv4(b []byte) (ipv4Packet, bool) {
	if len(b) < ipv4Len || b[0]>>4 != 4 {
		return nil, false
	}
	headerLen, total := int(b[0]&0xf)*4, int(binary.BigEndian.Uint16(b[2:]))
	if headerLen < ipv4Len || total < headerLen || total > len(b) {
		return nil, false
	}
	return b[:total], true
}

func (p ipv4Packet) source() netip.Addr      { return netip.AddrFrom4([4]byte(p[12:16])) }
func (p ipv4Packet) destination() netip.Addr { return netip.AddrFrom4([4]byte(p[16:20])) }
func (p ipv4Packet) protocol() byte          { return p[9] }
func (p ipv4Packet) payload() []byte         { return p[int(p[0]&0xf)*4:] }

// isFragment reports whether it is a part of a packet; isFirst whether it has the beginning.
func (p ipv4Packet) isFragment() bool {
	return binary.BigEndian.Uint16(p[6:])&(moreFragments|fragmentOffsetMask) != 0
}

func (p ipv4Packet) isFirst() bool { return binary.BigEndian.Uint16(p[6:])&fragmentOffsetMask == 0 }

// udp returns the ports and the data of a whole UDP datagram, or of the first fragment of one.
func (p ipv4Packet) udp() (source, destination uint16, data []byte, ok bool) {
	b := p.payload()
	if p.protocol() != protocolUDP || !p.isFirst() || len(b) < udpLen {
		return 0, 0, nil, false
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < udpLen || !p.isFragment() && length > len(b) {
		return 0, 0, nil, false
	}
	return binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]), b[udpLen:min(length, len(b))], true
}

// appendEthernet appends the header of a frame.
func appendEthernet(b []byte, destination, source [macLen]byte, kind uint16) []byte {
	b = append(b, destination[:]...)
	b = append(b, source[:]...)
	return binary.BigEndian.AppendUint16(b, kind)
}

// appendIPv4 appends the header of a packet that is not fragmented.
func appendIPv4(b []byte, source, destination netip.Addr, protocol byte, payload int) []byte {
	start := len(b)
	from, to := source.As4(), destination.As4()
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(ipv4Len+payload))
	b = append(b, 0, 0, ipv4DontFragment>>8, 0, minimalTTL, protocol, 0, 0)
	b = append(b, from[:]...)
	b = append(b, to[:]...)
	binary.BigEndian.PutUint16(b[start+10:], ^sum(b[start:], 0))
	return b
}

// appendUDP appends a packet with a datagram, which must not need fragmentation.
func appendUDP(b []byte, source, destination netip.AddrPort, data []byte) []byte {
	b = appendIPv4(b, source.Addr(), destination.Addr(), protocolUDP, udpLen+len(data))
	start := len(b)
	b = binary.BigEndian.AppendUint16(b, source.Port())
	b = binary.BigEndian.AppendUint16(b, destination.Port())
	b = binary.BigEndian.AppendUint16(b, uint16(udpLen+len(data)))
	b = append(b, 0, 0)
	b = append(b, data...)
	from, to := source.Addr().As4(), destination.Addr().As4()
	pseudo := uint32(protocolUDP) + uint32(udpLen+len(data))
	for _, half := range [][]byte{from[:2], from[2:], to[:2], to[2:]} {
		pseudo += uint32(binary.BigEndian.Uint16(half))
	}
	checksum := ^sum(b[start:], pseudo)
	if checksum == 0 {
		checksum = 0xffff // 0 would mean that there is none
	}
	binary.BigEndian.PutUint16(b[start+6:], checksum)
	return b
}

// appendICMP appends a packet with a message. rest are the four bytes after the checksum.
func appendICMP(b []byte, source, destination netip.Addr, kind, code byte, rest [4]byte, data []byte) []byte {
	b = appendIPv4(b, source, destination, protocolICMP, icmpLen+len(data))
	start := len(b)
	b = append(b, kind, code, 0, 0)
	b = append(b, rest[:]...)
	b = append(b, data...)
	binary.BigEndian.PutUint16(b[start+2:], ^sum(b[start:], 0))
	return b
}

// appendARP appends a message about an address.
func appendARP(b []byte, operation uint16, senderMAC [macLen]byte, sender netip.Addr, targetMAC [macLen]byte, target netip.Addr) []byte {
	from, to := sender.As4(), target.As4()
	b = append(b, 0, 1, etherIPv4>>8, etherIPv4&0xff, macLen, 4)
	b = binary.BigEndian.AppendUint16(b, operation)
	b = append(b, senderMAC[:]...)
	b = append(b, from[:]...)
	b = append(b, targetMAC[:]...)
	return append(b, to[:]...)
}

// sum is the ones' complement sum of the Internet checksum. RFC 1071.
func sum(b []byte, total uint32) uint16 {
	for len(b) >= 2 {
		total += uint32(binary.BigEndian.Uint16(b))
		b = b[2:]
	}
	if len(b) == 1 {
		total += uint32(b[0]) << 8
	}
	for total > 0xffff {
		total = total>>16 + total&0xffff
	}
	return uint16(total)
}
