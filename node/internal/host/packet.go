package host

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Packets of IP version 4, RFC 791, that have a datagram, RFC 768.
const (
	ipLength      = 20 // of the header of IP without options
	udpLength     = 8
	headersLength = ipLength + udpLength
	maxPacket     = 1<<16 - 1
	// In the word with the offset of a fragment.
	moreFragments, fragmentOffset = 0x2000, 0x1fff
	// hops is how many hops a packet may still make.
	hops = 64
)

// parseDatagram reads a packet that has a whole datagram. The payload is a part of the packet.
func parseDatagram(packet []byte) (f flow, payload []byte, ok bool) {
	if len(packet) < ipLength || packet[0]>>4 != 4 || packet[9] != unix.IPPROTO_UDP {
		return flow{}, nil, false
	}
	header, whole := int(packet[0]&0xf)*4, int(binary.BigEndian.Uint16(packet[2:]))
	isFragment := binary.BigEndian.Uint16(packet[6:])&(moreFragments|fragmentOffset) != 0
	if isFragment || header < ipLength || whole < header+udpLength || len(packet) < whole {
		return flow{}, nil, false
	}
	datagram := packet[header:whole]
	length := int(binary.BigEndian.Uint16(datagram[4:]))
	if length < udpLength || length > len(datagram) {
		return flow{}, nil, false
	}
	end := func(address, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(address)), binary.BigEndian.Uint16(port))
	}
	return flow{end(packet[12:16], datagram), end(packet[16:20], datagram[2:])}, datagram[udpLength:length], true
}

// writeHeaders makes a packet of a datagram whose payload is in place. The id distinguishes the fragments of different packets.
// The datagram has no checksum of its own: it goes from this kernel to this kernel.
func writeHeaders(packet []byte, f flow, id uint16) {
	from, to := f.from.Addr().As4(), f.to.Addr().As4()
	order := binary.BigEndian
	clear(packet[:headersLength])
	packet[0] = 4<<4 | ipLength/4
	order.PutUint16(packet[2:], uint16(len(packet)))
	order.PutUint16(packet[4:], id)
	packet[8], packet[9] = hops, unix.IPPROTO_UDP
	copy(packet[12:], from[:])
	copy(packet[16:], to[:])
	order.PutUint16(packet[10:], checksum(packet[:ipLength]))
	datagram := packet[ipLength:]
	order.PutUint16(datagram, f.from.Port())
	order.PutUint16(datagram[2:], f.to.Port())
	order.PutUint16(datagram[4:], uint16(len(datagram)))
}

// checksum is that of a header of IP, RFC 1071, in which its place is empty.
func checksum(header []byte) uint16 {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
