package network

import (
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/icmp"
)

// echoIdle ends the pings of a destination.
const echoIdle = 10 * time.Second

// sendUDP sends a datagram of the gateway to the machine.
func (p *port) sendUDP(source netip.Addr, sourcePort uint16, mac [macLen]byte, destination netip.Addr, destinationPort uint16, data []byte) {
	p.sendFrom(func(b []byte) []byte {
		b = appendEthernet(b, mac, gatewayMAC, etherIPv4)
		return appendUDP(b, netip.AddrPortFrom(source, sourcePort), netip.AddrPortFrom(destination, destinationPort), data)
	})
}

// sendICMP sends a message to the machine.
func (p *port) sendICMP(source netip.Addr, kind, code byte, rest [4]byte, data []byte) {
	p.sendFrom(func(b []byte) []byte {
		return appendICMP(appendEthernet(b, p.mac, gatewayMAC, etherIPv4), source, p.addr, kind, code, rest, data)
	})
}

// sendUnreachable tells the machine that its packet does not get to its destination.
func (p *port) sendUnreachable(gateway netip.Addr, packet []byte, code byte) {
	p.sendICMP(gateway, icmpUnreachable, code, [4]byte{}, packet[:min(len(packet), unreachableQuote)])
}

// answerEcho answers a ping of the gateway, and carries others to where they may go.
func (s *netswitch) answerEcho(t *table, p *port, packet ipv4Packet) {
	machine := p.machine.Load()
	to := packet.destination()
	body := packet.payload()
	if machine.Isolated {
		p.drop(dropIsolated)
		return
	}
	if to == t.gateway {
		p.sendICMP(t.gateway, icmpEchoReply, 0, [4]byte(body[4:8]), body[icmpLen:])
		return
	}
	if t.config.Prefix.Contains(to) || t.peerOf(to) != nil || !s.leaves(&t.config.Egress, to) {
		p.drop(dropEgress)
		p.sendUnreachable(t.gateway, packet, icmpAdminProhibited)
		return
	}
	if err := p.echo.send(s, p, to, body); err != nil {
		// The kernel allows no pings of unprivileged processes, or there are too many.
		p.drop(dropLimit)
		p.sendUnreachable(t.gateway, packet, icmpAdminProhibited)
	}
}

// echoKey is a sequence of pings of a machine.
type echoKey struct {
	to netip.Addr
	id uint16
}

// echoFlows are the pings of a machine that wait for answers.
type echoFlows struct {
	mu  sync.Mutex
	all map[echoKey]*icmp.PacketConn
}

// send sends a ping by an unprivileged socket, which has an identifier of its own.
func (e *echoFlows) send(s *netswitch, p *port, to netip.Addr, body []byte) error {
	key := echoKey{to: to, id: binary.BigEndian.Uint16(body[4:])}
	e.mu.Lock()
	defer e.mu.Unlock()
	conn := e.all[key]
	if conn == nil {
		if len(e.all) >= maxEchoes {
			return errTooMany
		}
		var err error
		if conn, err = icmp.ListenPacket("udp4", "0.0.0.0"); err != nil {
			return err
		}
		if e.all == nil {
			e.all = map[echoKey]*icmp.PacketConn{}
		}
		e.all[key] = conn
		go e.receive(p, key, conn)
	}
	_ = conn.SetReadDeadline(time.Now().Add(echoIdle)) // a closed socket fails below
	_, err := conn.WriteTo(body, &net.UDPAddr{IP: to.AsSlice()})
	return err
}

// receive hands answers to the machine until there were none for some time.
func (e *echoFlows) receive(p *port, key echoKey, conn *icmp.PacketConn) {
	defer func() {
		e.mu.Lock()
		delete(e.all, key)
		e.mu.Unlock()
		_ = conn.Close()
	}()
	buffer := make([]byte, maxUnfragmentedPayload)
	for {
		n, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return
		}
		if addr, ok := from.(*net.UDPAddr); !ok || addr.AddrPort().Addr().Unmap() != key.to || n < icmpLen || buffer[0] != icmpEchoReply {
			continue
		}
		binary.BigEndian.PutUint16(buffer[4:], key.id)
		p.sendICMP(key.to, icmpEchoReply, 0, [4]byte(buffer[4:8]), buffer[icmpLen:n])
	}
}
