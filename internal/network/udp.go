package network

import (
	"bytes"
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
type guestPackets struct {
	*gonet.UDPConn
	queue    *waiter.Queue
	endpoint tcpip.Endpoint
}

func newGuestPackets(queue *waiter.Queue, endpoint tcpip.Endpoint) *guestPackets {
	return &guestPackets{UDPConn: gonet.NewUDPConn(queue, endpoint), queue: queue, endpoint: endpoint}
}

func (c *guestPackets) abort() { _ = c.Close() }

// receive returns the next datagram. It has no memory while it waits, but for the small buffer of the caller, which grows for
// large datagrams.
func (c *guestPackets) receive(buffer *bytes.Buffer, wait time.Duration) error {
	entry, readable := waiter.NewChannelEntry(waiter.ReadableEvents | waiter.EventErr | waiter.EventHUp)
	c.queue.EventRegister(&entry)
	defer c.queue.EventUnregister(&entry)
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		buffer.Reset()
		_, err := c.endpoint.Read(buffer, tcpip.ReadOptions{})
		if _, wouldBlock := err.(*tcpip.ErrWouldBlock); !wouldBlock {
			return stackError(err)
		}
		select {
		case <-readable:
		case <-timer.C:
			return os.ErrDeadlineExceeded
		}
	}
}

// dialGuestUDP opens a flow to a port of a machine.
func (s *netswitch) dialGuestUDP(p *port, number uint16) (*guestPackets, error) {
	var queue waiter.Queue
	endpoint, err := s.stack.NewEndpoint(udp.ProtocolNumber, ipv4.ProtocolNumber, &queue)
	if err != nil {
		return nil, stackError(err)
	}
	if err = endpoint.Bind(tcpip.FullAddress{NIC: nicID, Addr: toAddress(s.table.Load().gateway)}); err == nil {
		err = endpoint.Connect(tcpip.FullAddress{NIC: nicID, Addr: toAddress(p.addr), Port: number})
	}
	if err != nil {
		endpoint.Close()
		return nil, stackError(err)
	}
	return newGuestPackets(&queue, endpoint), nil
}

// dialGuestPort opens a connection or a flow to a port of a machine.
func (s *netswitch) dialGuestPort(ctx context.Context, p *port, protocol Protocol, number uint16) (guestEnd, error) {
	if protocol == UDP {
		s.wake(p)
		return s.dialGuestUDP(p, number)
	}
	return s.dialGuest(ctx, p, number)
}

// datagramBuffers hold one datagram for as long as it is carried: a flow that waits has none.
var datagramBuffers = sync.Pool{New: func() any { b := make([]byte, maxDatagram+1); return &b }}

// exchange carries datagrams in both directions until there were none for some time, or one direction has failed.
func exchange(inside *guestPackets, outside net.Conn, idle time.Duration) {
	var last atomic.Int64
	touch := func() { last.Store(time.Now().UnixNano()) }
	left := func() time.Duration { return idle - time.Since(time.Unix(0, last.Load())) }
	touch()
	end := func() {
		_ = inside.Close()
		_ = outside.Close()
	}
	var both sync.WaitGroup
	both.Go(func() {
		defer end()
		var buffer bytes.Buffer
		for {
			err := inside.receive(&buffer, max(left(), 0))
			if isTimeout(err) && left() > 0 {
				continue // the other direction is in use
			}
			if err != nil {
				return
			}
			touch()
			if _, err := outside.Write(buffer.Bytes()); isClosed(err) {
				return // other errors lose a datagram
			}
		}
	})
	both.Go(func() {
		defer end()
		for {
			_ = outside.SetReadDeadline(time.Now().Add(left())) // a closed connection fails below
			err := readDatagram(outside, func(b []byte) {
				touch()
				_, _ = inside.Write(b) // a datagram may be lost
			})
			if isTimeout(err) && left() > 0 || errors.Is(err, syscall.ECONNREFUSED) {
				continue
			}
			if err != nil {
				return
			}
		}
	})
	both.Wait()
}

// readDatagram hands over the next datagram. While it waits for one at a socket, it has no buffer.
func readDatagram(conn net.Conn, use func([]byte)) error {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		buffer := datagramBuffers.Get().(*[]byte)
		defer datagramBuffers.Put(buffer)
		n, err := conn.Read(*buffer)
		if err == nil {
			use((*buffer)[:n])
		}
		return err
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var readErr error
	err = raw.Read(func(fd uintptr) bool {
		buffer := datagramBuffers.Get().(*[]byte)
		defer datagramBuffers.Put(buffer)
		var n int
		n, readErr = syscall.Read(int(fd), *buffer)
		if errors.Is(readErr, syscall.EAGAIN) || errors.Is(readErr, syscall.EINTR) {
			return false
		}
		if readErr == nil {
			use((*buffer)[:n])
		}
		return true
	})
	return errors.Join(err, readErr)
}

func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
