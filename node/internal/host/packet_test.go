package host

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"
)

var testFlow = flow{netip.MustParseAddrPort("10.100.0.7:4000"), netip.MustParseAddrPort("192.0.2.1:53")}

// newPacket returns the packet of a datagram.
func newPacket(f flow, payload string) []byte {
	packet := append(make([]byte, headersLength), payload...)
	writeHeaders(packet, f, 7)
	return packet
}

func TestParseDatagram(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(packet []byte) []byte
		want   string // nothing if it is no datagram
	}{
		{"as it was written", func(p []byte) []byte { return p }, "hello"},
		{"not to be fragmented", func(p []byte) []byte { p[6] = 0x40; return p }, "hello"},
		{"something behind it", func(p []byte) []byte { return append(p, 1, 2, 3) }, "hello"},
		{"options", func(p []byte) []byte {
			p[0]++
			binary.BigEndian.PutUint16(p[2:], uint16(len(p)+4))
			return bytes.Join([][]byte{p[:ipLength], make([]byte, 4), p[ipLength:]}, nil)
		}, "hello"},
		{"another version of IP", func(p []byte) []byte { p[0] = 6 << 4; return p }, ""},
		{"another protocol", func(p []byte) []byte { p[9] = 1; return p }, ""},
		{"the first fragment", func(p []byte) []byte { p[6] = 0x20; return p }, ""},
		{"the last fragment", func(p []byte) []byte { p[7] = 9; return p }, ""},
		{"cut off", func(p []byte) []byte { return p[:len(p)-1] }, ""},
		{"less than a header", func(p []byte) []byte { return p[:12] }, ""},
		{"nothing", func([]byte) []byte { return nil }, ""},
		{"a header that is too short", func(p []byte) []byte { p[0] = 4<<4 | 4; return p }, ""},
		{"no room for a datagram", func(p []byte) []byte { binary.BigEndian.PutUint16(p[2:], headersLength-1); return p }, ""},
		{"a datagram longer than the packet", func(p []byte) []byte { p[ipLength+5]++; return p }, ""},
		{"a datagram shorter than its header", func(p []byte) []byte { p[ipLength+5] = 7; return p }, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, payload, ok := parseDatagram(test.change(newPacket(testFlow, "hello")))
			if want := test.want != ""; ok != want || string(payload) != test.want || want && f != testFlow {
				t.Errorf("got %+v, %q, %t", f, payload, ok)
			}
		})
	}
}

func TestChecksum(t *testing.T) {
	if sum := checksum(newPacket(testFlow, "hello")[:ipLength]); sum != 0 {
		t.Errorf("the header does not add up: %x", sum)
	}
}
