package network

import (
	"context"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/waiter"
)

const (
	// maxInFlight bounds the attempts of all machines; maxHalfOpen those of each, which is what keeps them apart.
	maxInFlight = 1 << 14

	// connectTimeout bounds an attempt of a machine to connect to something outside, and of something outside to it.
	connectTimeout = 15 * time.Second

	// firstConnect is the timeout of the first attempt to connect to a guest; each next one is a quarter longer. A guest that
	// boots drops the first packets, and TCP would repeat them after a second only.
	firstConnect = 100 * time.Millisecond

	// A connection whose machine is gone ends after the first time without data and a few unanswered probes.
	keepAliveIdle     = time.Minute
	keepAliveInterval = 15 * time.Second
	keepAliveCount    = 6

	copyBuffer = 16 << 10
)

var copyBuffers = sync.Pool{New: func() any { b := make([]byte, copyBuffer); return &b }}

// handleTCP gets the packets of machines that belong to no connection. If it returns false, the stack answers with a reset.
func (s *netswitch) handleTCP(id stack.TransportEndpointID, pkt *stack.PacketBuffer) bool {
	t := s.table.Load()
	p := t.byAddr[netip.AddrFrom4(id.RemoteAddress.As4())]
	if p == nil {
		return true
	}
	flags := header.TCP(pkt.TransportHeader().Slice()).Flags()
	if !flags.Contains(header.TCPFlagSyn) || flags.Contains(header.TCPFlagAck) {
		return false
	}
	if _, why := s.decide(t, p.machine.Load(), TCP, addrPort(id.LocalAddress, id.LocalPort)); why != passed {
		p.drop(why)
		return false
	}
	if p.limits.halfOpen.used.Load() >= maxHalfOpen {
		p.drop(dropLimit)
		return true // the machine tries again
	}
	return s.tcp.HandlePacket(id, pkt)
}

// acceptTCP connects a machine to what it wants to reach. It has a goroutine of its own.
func (s *netswitch) acceptTCP(request *tcp.ForwarderRequest) {
	id := request.ID()
	t := s.table.Load()
	p := t.byAddr[netip.AddrFrom4(id.RemoteAddress.As4())]
	if p == nil {
		request.Complete(false)
		return
	}
	if !p.limits.halfOpen.take(maxHalfOpen) {
		p.drop(dropLimit)
		request.Complete(false)
		return
	}
	giveHalfOpen := sync.OnceFunc(p.limits.halfOpen.give)
	defer giveHalfOpen()
	if !s.takeConnection(&p.limits.tcpOut, maxConnections, t) {
		p.drop(dropLimit)
		request.Complete(true)
		return
	}
	defer s.giveConnection(&p.limits.tcpOut)
	one := &flow{kind: flowOut, protocol: TCP, target: addrPort(id.LocalAddress, id.LocalPort)}
	to, why := s.decide(t, p.machine.Load(), TCP, one.target)
	if why != passed {
		p.drop(why)
		request.Complete(true)
		return
	}
	outside, err := s.connect(t, p, to, TCP, one.target)
	if err != nil {
		request.Complete(true)
		return
	}
	var queue waiter.Queue
	endpoint, stackErr := request.CreateEndpoint(&queue)
	request.Complete(false)
	giveHalfOpen()
	if stackErr != nil {
		if outside != nil {
			_ = outside.Close()
		}
		return
	}
	inside := newGuestConn(p, &queue, endpoint)
	if to == toDNS {
		s.track(p, one, inside, nil, func() { s.serveDNS(p, inside) })
		return
	}
	s.track(p, one, inside, outside, func() { splice(inside, outside) })
}

// takeConnection takes one of the machine's connections and one of the process's files.
func (s *netswitch) takeConnection(of *limit, maximum int, t *table) bool {
	// Few files are shared fairly.
	if fair := s.maxConnections / max(1, len(t.ports)); !of.take(min(maximum, max(fair, 8))) {
		return false
	}
	if !s.connections.take(s.maxConnections) {
		of.give()
		return false
	}
	return true
}

func (s *netswitch) giveConnection(of *limit) {
	of.give()
	s.connections.give()
}

// connect connects to what a machine wants to reach. It returns nil for what this process does itself.
func (s *netswitch) connect(t *table, p *port, to destination, protocol Protocol, target netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, connectTimeout)
	defer cancel()
	switch to {
	case toEgress:
		network := map[Protocol]string{TCP: "tcp4", UDP: "udp4"}[protocol]
		return s.dial(ctx, network, target.String())
	case toPeer:
		return dialSwitch(ctx, t.peerOf(target.Addr()).Socket, "/peer", url.Values{
			"from": {t.config.Namespace}, "source": {p.addr.String()}, "protocol": {string(protocol)},
			"address": {target.Addr().String()}, "port": {strconv.Itoa(int(target.Port()))},
		}, protocol)
	default:
		return nil, nil //nolint:nilnil // documented above
	}
}

// track runs work for a flow, which ends early when the flow is no longer allowed or its machine is gone. Both connections
// are closed at the end.
func (s *netswitch) track(p *port, one *flow, inside guestEnd, outside net.Conn, work func()) {
	shut := func(abort bool) {
		if abort {
			inside.abort()
		} else {
			_ = inside.Close()
		}
		if outside != nil {
			_ = outside.Close()
		}
	}
	one.close = func() { shut(true) }
	if !p.flows.add(one) {
		shut(true)
		return
	}
	defer p.flows.remove(one)
	// The rules may have changed since they were looked at.
	if !s.permitted(s.table.Load(), p.machine.Load(), one) {
		shut(true)
		return
	}
	work()
	shut(false)
}

// guestEnd is the machine's end of a flow.
type guestEnd interface {
	net.Conn
	abort()
}

// guestConn is a TCP connection with a machine.
type guestConn struct {
	*gonet.TCPConn
	endpoint tcpip.Endpoint
}

func newGuestConn(p *port, queue *waiter.Queue, endpoint tcpip.Endpoint) *guestConn {
	idle, interval := tcpip.KeepaliveIdleOption(keepAliveIdle), tcpip.KeepaliveIntervalOption(keepAliveInterval)
	_ = endpoint.SetSockOpt(&idle) // none of these can fail for TCP
	_ = endpoint.SetSockOpt(&interval)
	_ = endpoint.SetSockOptInt(tcpip.KeepaliveCountOption, keepAliveCount)
	endpoint.SocketOptions().SetKeepAlive(true)
	endpoint.SocketOptions().SetDelayOption(false)
	if p.limits.tcpOut.used.Load()+p.limits.tcpIn.used.Load() > fewConnections {
		endpoint.SocketOptions().SetSendBufferSize(smallTCPBuffer, true)
		endpoint.SocketOptions().SetReceiveBufferSize(smallTCPBuffer, true)
	}
	return &guestConn{TCPConn: gonet.NewTCPConn(queue, endpoint), endpoint: endpoint}
}

func (c *guestConn) abort() { c.endpoint.Abort() }

// dialGuest opens a TCP connection to a port of a machine.
func (s *netswitch) dialGuest(ctx context.Context, p *port, number uint16) (*guestConn, error) {
	limit := connectTimeout
	if p.isAsleep() {
		limit = wakeTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for timeout := firstConnect; ; timeout += timeout / 4 {
		if err := s.awaitAwake(ctx, p); err != nil {
			return nil, err
		}
		attempt, end := context.WithTimeout(ctx, timeout)
		conn, err := s.tryGuest(attempt, p, number)
		missed := attempt.Err() != nil && ctx.Err() == nil
		end()
		if err == nil || !missed {
			return conn, err
		}
	}
}

// tryGuest makes one attempt to connect to a port of a machine.
func (s *netswitch) tryGuest(ctx context.Context, p *port, number uint16) (*guestConn, error) {
	var queue waiter.Queue
	endpoint, stackErr := s.stack.NewEndpoint(tcp.ProtocolNumber, ipv4.ProtocolNumber, &queue)
	if stackErr != nil {
		return nil, stackError(stackErr)
	}
	entry, connected := waiter.NewChannelEntry(waiter.WritableEvents | waiter.EventErr | waiter.EventHUp)
	queue.EventRegister(&entry)
	defer queue.EventUnregister(&entry)
	if stackErr = endpoint.Bind(tcpip.FullAddress{Addr: toAddress(s.table.Load().gateway)}); stackErr == nil {
		stackErr = endpoint.Connect(tcpip.FullAddress{NIC: nicID, Addr: toAddress(p.addr), Port: number})
	}
	if _, started := stackErr.(*tcpip.ErrConnectStarted); started {
		select {
		case <-connected:
			stackErr = endpoint.LastError()
		case <-ctx.Done():
			endpoint.Abort()
			return nil, context.Cause(ctx)
		}
	}
	if stackErr != nil {
		endpoint.Abort()
		return nil, stackError(stackErr)
	}
	return newGuestConn(p, &queue, endpoint), nil
}

// halfCloser is a connection one direction of which can end before the other.
type halfCloser interface{ CloseWrite() error }

// splice carries bytes in both directions until both have ended, or one of them has failed.
func splice(a, b net.Conn) {
	var both sync.WaitGroup
	both.Go(func() { transfer(a, b) })
	both.Go(func() { transfer(b, a) })
	both.Wait()
}

// transfer carries bytes until there are no more. At an error it closes both connections, which ends the other direction.
func transfer(to, from net.Conn) {
	buffer := copyBuffers.Get().(*[]byte)
	defer copyBuffers.Put(buffer)
	// Only the plain methods: io.Copy would have a buffer of its own for each connection.
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, *buffer)
	if half, ok := to.(halfCloser); ok && err == nil {
		err = half.CloseWrite()
	}
	if err != nil {
		_ = to.Close()
		_ = from.Close()
	}
}
