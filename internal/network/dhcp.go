package network

import (
	"bytes"
	"encoding/binary"
	"math"
	"net"
	"net/netip"
	"strings"
	"time"
)

// The parts of a DHCP message, and the options that the server knows. RFC 2131, 2132, 3397.
const (
	dhcpOp       = 0
	dhcpXID      = 4
	dhcpFlags    = 10
	dhcpClient   = 12 // ciaddr
	dhcpYour     = 16 // yiaddr
	dhcpHardware = 28 // chaddr
	dhcpCookie   = 236
	dhcpOptions  = 240

	optionPad         = 0
	optionMask        = 1
	optionRouter      = 3
	optionDNS         = 6
	optionDomain      = 15
	optionMTU         = 26
	optionRequested   = 50
	optionLease       = 51
	optionType        = 53
	optionServer      = 54
	optionRenewal     = 58
	optionRebinding   = 59
	optionSearch      = 119
	optionEnd         = 255
	dhcpMinimumLength = 300 // BOOTP's, which some clients insist on

	dhcpDiscover = 1
	dhcpOffer    = 2
	dhcpRequest  = 3
	dhcpAck      = 5
	dhcpNak      = 6
	dhcpInform   = 8
)

// leaseTime is long because a lease never ends while the machine is there.
const leaseTime = 24 * time.Hour

var dhcpMagic = []byte{99, 130, 83, 99}

// ownDHCP reports whether a message is a request in the name of the machine that sent it.
func ownDHCP(b []byte, own identity) bool {
	return len(b) >= dhcpOptions && b[dhcpOp] == 1 && b[1] == 1 && b[2] == macLen &&
		bytes.Equal(b[dhcpHardware:dhcpHardware+macLen], own.mac[:]) && bytes.Equal(b[dhcpCookie:dhcpOptions], dhcpMagic)
}

// dhcpOption returns the value of an option of a message, or nil.
func dhcpOption(b []byte, code byte) []byte {
	for options := b[dhcpOptions:]; len(options) > 0 && options[0] != optionEnd; {
		if options[0] == optionPad {
			options = options[1:]
			continue
		}
		if len(options) < 2 || len(options) < 2+int(options[1]) {
			return nil
		}
		value := options[2 : 2+int(options[1])]
		if options[0] == code {
			return value
		}
		options = options[2+len(value):]
	}
	return nil
}

// lease is what a machine gets from the DHCP server.
type lease struct {
	prefix          netip.Prefix
	gateway         netip.Addr
	identity        identity
	namespaceDomain string
	// search are the domains in which the machine looks names up.
	search []string
}

// answer returns the reply to a message of the machine, and whether it grants the address. It returns nil for messages that
// need no answer. The message has passed ownDHCP.
func (l *lease) answer(request []byte) (reply []byte, granted bool) {
	kind := dhcpOption(request, optionType)
	if len(kind) != 1 {
		return nil, false
	}
	if server := dhcpOption(request, optionServer); server != nil && !isAddr(server, l.gateway) {
		return nil, false // an answer to another server
	}
	switch kind[0] {
	case dhcpDiscover:
		return l.message(request, dhcpOffer), false
	case dhcpInform:
		return l.message(request, dhcpAck), false
	case dhcpRequest:
		wanted := dhcpOption(request, optionRequested)
		if wanted == nil {
			wanted = request[dhcpClient : dhcpClient+4]
		}
		if !isAddr(wanted, l.identity.addr) {
			return l.message(request, dhcpNak), false // it remembers an address of another network
		}
		return l.message(request, dhcpAck), true
	default:
		return nil, false // release and decline change nothing: the address is the machine's
	}
}

func isAddr(b []byte, addr netip.Addr) bool {
	want := addr.As4()
	return bytes.Equal(b, want[:])
}

func (l *lease) message(request []byte, kind byte) []byte {
	b := make([]byte, dhcpOptions, dhcpMinimumLength)
	b[dhcpOp], b[1], b[2] = 2, 1, macLen
	copy(b[dhcpXID:dhcpXID+4], request[dhcpXID:])
	copy(b[dhcpFlags:dhcpFlags+2], request[dhcpFlags:])
	copy(b[dhcpHardware:dhcpHardware+macLen], l.identity.mac[:])
	copy(b[dhcpCookie:], dhcpMagic)
	gateway := l.gateway.As4()
	option := func(code byte, value ...byte) { b = append(append(b, code, byte(len(value))), value...) }
	option(optionType, kind)
	option(optionServer, gateway[:]...)
	if kind != dhcpNak {
		isInform := bytes.Equal(dhcpOption(request, optionType), []byte{dhcpInform})
		copy(b[dhcpClient:dhcpClient+4], request[dhcpClient:])
		if !isInform {
			addr := l.identity.addr.As4()
			copy(b[dhcpYour:dhcpYour+4], addr[:])
			seconds := func(d time.Duration) []byte { return binary.BigEndian.AppendUint32(nil, uint32(d/time.Second)) }
			option(optionLease, seconds(leaseTime)...)
			option(optionRenewal, seconds(leaseTime/2)...)
			option(optionRebinding, seconds(leaseTime*7/8)...)
		}
		option(optionMask, net.CIDRMask(l.prefix.Bits(), 32)...)
		option(optionRouter, gateway[:]...)
		option(optionDNS, gateway[:]...)
		option(optionMTU, mtu>>8, mtu&0xff)
		option(optionDomain, []byte(l.namespaceDomain)...)
		option(optionSearch, encodeSearch(l.search)...)
	}
	b = append(b, optionEnd)
	for len(b) < dhcpMinimumLength {
		b = append(b, optionPad)
	}
	return b
}

// encodeSearch writes domains, as many as an option takes.
func encodeSearch(domains []string) (value []byte) {
	for _, domain := range domains {
		if name := encodeName(domain); len(value)+len(name) <= math.MaxUint8 {
			value = append(value, name...)
		}
	}
	return value
}

// replyAddr returns where a reply goes. RFC 2131 4.1: to the address that the client has, by broadcast if it asks for that or
// is told that it has none, and else to the address that it is about to have.
func (l *lease) replyAddr(request, reply []byte) netip.Addr {
	client := netip.AddrFrom4([4]byte(request[dhcpClient : dhcpClient+4]))
	isNak := bytes.Equal(dhcpOption(reply, optionType), []byte{dhcpNak})
	switch {
	case !isNak && client == l.identity.addr:
		return client
	case isNak || request[dhcpFlags]&0x80 != 0:
		return broadcastAddr
	default:
		return l.identity.addr
	}
}

// encodeName writes a domain as labels with their lengths. RFC 1035 3.1.
func encodeName(domain string) []byte {
	var b []byte
	for label := range strings.SplitSeq(domain, ".") {
		b = append(append(b, byte(len(label))), label...)
	}
	return append(b, 0)
}
