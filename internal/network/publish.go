package network

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Delays between attempts to listen at a port of the host, and to accept when there are no files left.
const (
	minRelisten = 100 * time.Millisecond
	maxRelisten = 3 * time.Second
	acceptDelay = 50 * time.Millisecond
)

// publication is a forward at work.
type publication struct {
	port    *port
	forward Forward

	cancel  context.CancelFunc
	done    chan struct{}
	tried   chan struct{} // closed after the first attempt to listen
	failure atomic.Pointer[string]
	listens atomic.Bool
}

func (p *publication) status() ForwardStatus {
	status := ForwardStatus{Forward: p.forward, Listening: p.listens.Load(), Connections: p.port.flows.countOf(&p.forward)}
	if failure := p.failure.Load(); failure != nil && !status.Listening {
		status.Error = *failure
	}
	return status
}

// publish makes the forwards those of a table. A port of the host that moves from one machine to another is free before it is
// used again. It returns when each new forward has tried to listen once. The caller holds the lock.
func (s *netswitch) publish(t *table) {
	var kept []*publication
	for _, one := range s.publications {
		if slices.Contains(t.ports, one.port) && slices.Contains(one.port.machine.Load().Ports, one.forward) {
			kept = append(kept, one)
			continue
		}
		one.cancel()
		<-one.done
	}
	s.publications = kept
	for _, p := range t.ports {
		for _, forward := range p.machine.Load().Ports {
			if slices.ContainsFunc(s.publications, func(one *publication) bool { return one.port == p && one.forward == forward }) {
				continue
			}
			one := &publication{port: p, forward: forward, done: make(chan struct{}), tried: make(chan struct{})}
			ctx, cancel := context.WithCancel(s.ctx)
			one.cancel = cancel
			s.publications = append(s.publications, one)
			go s.keepPublished(ctx, one)
			<-one.tried
		}
	}
}

// keepPublished listens at a port of the host until the context ends, and tries again as long as it cannot.
func (s *netswitch) keepPublished(ctx context.Context, one *publication) {
	defer close(one.done)
	tried := sync.OnceFunc(func() { close(one.tried) })
	defer tried()
	delay := minRelisten
	for ctx.Err() == nil {
		closer, serve, err := s.listen(ctx, one)
		if err == nil {
			one.listens.Store(true)
			tried()
			// Only the first Close returns when the port is free.
			closed := make(chan struct{})
			stop := context.AfterFunc(ctx, func() { defer close(closed); _ = closer.Close() })
			serve()
			if stop() {
				_ = closer.Close()
			} else {
				<-closed
			}
			one.listens.Store(false)
			err = fmt.Errorf("%s %s no longer listens", one.forward.Protocol, one.forward.Host)
		}
		text := err.Error()
		one.failure.Store(&text)
		tried()
		select {
		case <-ctx.Done():
		case <-time.After(delay):
		}
		delay = min(2*delay, maxRelisten)
	}
}

// listen opens a port of the host. serve ends when it is closed.
func (s *netswitch) listen(ctx context.Context, one *publication) (closer interface{ Close() error }, serve func(), err error) {
	var config net.ListenConfig
	address := one.forward.Host.String()
	if one.forward.Protocol == UDP {
		conn, err := config.ListenPacket(ctx, "udp", address)
		if err != nil {
			return nil, nil, err
		}
		udp := conn.(*net.UDPConn)
		return udp, func() { s.serveUDP(udp, one) }, nil
	}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, nil, err
	}
	return listener, func() { s.serveTCP(ctx, listener, one) }, nil
}

// serveTCP accepts connections until the listener is closed.
func (s *netswitch) serveTCP(ctx context.Context, listener net.Listener, one *publication) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			// Too many open files: those who wait do not get in sooner by a busy loop.
			select {
			case <-ctx.Done():
			case <-time.After(acceptDelay):
			}
			continue
		}
		if !s.takeConnection(&one.port.limits.tcpIn, maxConnections, s.table.Load()) {
			one.port.drop(dropLimit)
			_ = conn.Close()
			continue
		}
		go func() {
			defer s.giveConnection(&one.port.limits.tcpIn)
			defer func() { _ = conn.Close() }()
			inside, err := s.dialGuest(ctx, one.port, one.forward.GuestPort)
			if err != nil {
				return
			}
			made := &flow{kind: flowForward, protocol: TCP, forward: &one.forward}
			s.track(one.port, made, inside, conn, func() { splice(inside, conn) })
		}()
	}
}

// serveUDP carries datagrams until the socket is closed. Each sender has a flow, so that answers find back.
func (s *netswitch) serveUDP(conn *net.UDPConn, one *publication) {
	senders := &udpSenders{all: map[netip.AddrPort]*udpSender{}}
	defer senders.close()
	buffer := make([]byte, maxDatagram+1)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buffer)
		if err != nil {
			if isClosed(err) {
				return
			}
			continue // an ICMP error for an earlier answer
		}
		sender := senders.get(from)
		if sender == nil {
			if sender = s.newSender(conn, one, from, senders); sender == nil {
				continue
			}
		}
		s.wake(one.port)
		_, _ = sender.inside.Write(buffer[:n]) // a datagram may be lost
		sender.last.Store(time.Now().UnixNano())
	}
}

// udpSender is someone who sends to a forwarded UDP port.
type udpSender struct {
	inside *guestPackets
	last   atomic.Int64 // when there was a datagram, in unix nanoseconds
}

type udpSenders struct {
	mu  sync.Mutex
	all map[netip.AddrPort]*udpSender
}

func (u *udpSenders) get(from netip.AddrPort) *udpSender {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.all[from]
}

func (u *udpSenders) close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, sender := range u.all {
		_ = sender.inside.Close()
	}
}

// newSender begins a flow for a sender, or returns nil if there are too many.
func (s *netswitch) newSender(conn *net.UDPConn, one *publication, from netip.AddrPort, senders *udpSenders) *udpSender {
	if !s.takeConnection(&one.port.limits.udpIn, maxUDPFlows, s.table.Load()) {
		one.port.drop(dropLimit)
		return nil
	}
	inside, err := s.dialGuestUDP(one.port, one.forward.GuestPort)
	if err != nil {
		s.giveConnection(&one.port.limits.udpIn)
		return nil
	}
	sender := &udpSender{inside: inside}
	sender.last.Store(time.Now().UnixNano())
	senders.mu.Lock()
	senders.all[from] = sender
	senders.mu.Unlock()
	go func() {
		defer s.giveConnection(&one.port.limits.udpIn)
		made := &flow{kind: flowForward, protocol: UDP, forward: &one.forward}
		s.track(one.port, made, inside, nil, func() { sender.answer(conn, from) })
		senders.mu.Lock()
		delete(senders.all, from)
		senders.mu.Unlock()
	}()
	return sender
}

// answer sends the machine's datagrams to the sender until there were none in either direction for some time.
func (u *udpSender) answer(conn *net.UDPConn, to netip.AddrPort) {
	var buffer bytes.Buffer
	left := func() time.Duration { return udpIdle - time.Since(time.Unix(0, u.last.Load())) }
	for {
		err := u.inside.receive(&buffer, max(left(), 0))
		if isTimeout(err) && left() > 0 {
			continue
		}
		if err != nil {
			return
		}
		u.last.Store(time.Now().UnixNano())
		_, _ = conn.WriteToUDPAddrPort(buffer.Bytes(), to) // a datagram may be lost
	}
}
