package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// udpIdle ends a flow without datagrams; udpIdleShort one of a question and an answer, such as DNS and NTP.
	udpIdle      = time.Minute
	udpIdleShort = 10 * time.Second
)

// handleUDP gets the datagrams of machines that belong to no flow.
func (s *netswitch) handleUDP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	t := s.table.Load()
	p := t.byAddr[netip.AddrFrom4(id.RemoteAddress.As4())]
	if p == nil {
		return true
	}
	target := addrPort(id.LocalAddress, id.LocalPort)
	if target.Addr() == broadcastAddr || target.Addr() == t.broadcast || target.Addr().IsMulticast() {
		return true // nobody behind the gateway listens to these
	}
	if _, why := s.decide(t, p.machine.Load(), UDP, target); why != passed {
		p.drop(why)
		packet := append(append([]byte(nil), pkt.NetworkHeader().Slice()...), pkt.TransportHeader().Slice()...)
		p.sendUnreachable(t.gateway, packet, icmpPortUnreachable)
		return true
	}
	return s.udp.HandlePacket(id, pkt)
}

// acceptUDP begins a flow. It runs where packets are received, and so does not wait.
func (s *netswitch) acceptUDP(request *udp.ForwarderRequest) bool {
	id := request.ID()
	t := s.table.Load()
	p := t.byAddr[netip.AddrFrom4(id.RemoteAddress.As4())]
	if p == nil {
		return true
	}
	one := &flow{kind: flowOut, protocol: UDP, target: addrPort(id.LocalAddress, id.LocalPort)}
	to, why := s.decide(t, p.machine.Load(), UDP, one.target)
	if why != passed {
		p.drop(why)
		return true
	}
	if !s.takeConnection(&p.limits.udpOut, maxUDPFlows, t) {
		p.drop(dropLimit)
		return true
	}
	var queue waiter.Queue
	endpoint, err := request.CreateEndpoint(&queue)
	if err != nil {
		s.giveConnection(&p.limits.udpOut)
		return true // the port is in use by another flow
	}
	inside := newGuestPackets(&queue, endpoint)
	go func() {
		defer s.giveConnection(&p.limits.udpOut)
		outside, err := s.connect(t, p, to, UDP, one.target)
		if err != nil {
			_ = inside.Close()
			return
		}
		idle := udpIdle
		if one.target.Port() < 1024 && one.target.Port() != 443 {
			idle = udpIdleShort
		}
		s.track(p, one, inside, outside, func() { exchange(inside, outside, idle) })
	}()
	return true
}

// guestPackets is a UDP flow with a machine.
type guestPackets struct{ *gonet.UDPConn }

func newGuestPackets(queue *waiter.Queue, endpoint tcpip.Endpoint) *guestPackets {
	return &guestPackets{gonet.NewUDPConn(queue, endpoint)}
}

func (c *guestPackets) abort() { _ = c.Close() }

// dialGuestUDP opens a flow to a port of a machine.
func (s *netswitch) dialGuestUDP(p *port, number uint16) (*guestPackets, error) {
	local := tcpip.FullAddress{NIC: nicID, Addr: toAddress(s.table.Load().gateway)}
	remote := tcpip.FullAddress{NIC: nicID, Addr: toAddress(p.addr), Port: number}
	conn, err := gonet.DialUDP(s.stack, &local, &remote, ipv4.ProtocolNumber)
	if err != nil {
		return nil, err
	}
	return &guestPackets{conn}, nil
}

// dialGuestPort opens a connection or a flow to a port of a machine.
func (s *netswitch) dialGuestPort(ctx context.Context, p *port, protocol Protocol, number uint16) (guestEnd, error) {
	if protocol == UDP {
		return s.dialGuestUDP(p, number)
	}
	return s.dialGuest(ctx, p, number)
}

var datagramBuffers = sync.Pool{New: func() any { b := make([]byte, maxDatagram+1); return &b }}

// exchange carries datagrams in both directions until there were none for some time, or one direction has failed.
func exchange(a, b net.Conn, idle time.Duration) {
	var last atomic.Int64
	last.Store(time.Now().UnixNano())
	var both sync.WaitGroup
	carry := func(to, from net.Conn) {
		defer func() {
			_ = a.Close()
			_ = b.Close()
		}()
		buffer := datagramBuffers.Get().(*[]byte)
		defer datagramBuffers.Put(buffer)
		for {
			until := time.Unix(0, last.Load()).Add(idle)
			_ = from.SetReadDeadline(until) // a closed connection fails below
			n, err := from.Read(*buffer)
			if err != nil {
				if isTimeout(err) && time.Since(time.Unix(0, last.Load())) < idle {
					continue // the other direction is in use
				}
				if errors.Is(err, syscall.ECONNREFUSED) {
					continue
				}
				return
			}
			last.Store(time.Now().UnixNano())
			if _, err := to.Write((*buffer)[:n]); errors.Is(err, net.ErrClosed) {
				return // other errors lose a datagram
			}
		}
	}
	both.Go(func() { carry(a, b) })
	both.Go(func() { carry(b, a) })
	both.Wait()
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
