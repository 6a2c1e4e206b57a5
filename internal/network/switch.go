package network

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/keelson-dev/keelson/internal/egress"
)

// netswitch is the switch of one network.
type netswitch struct {
	ctx     context.Context
	started time.Time
	host    *hostAddresses
	dns     *resolver
	// dial connects to addresses outside; tests replace it.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// connections are the TCP connections and UDP flows of all machines, each of which has a file of this process.
	connections    limit
	maxConnections int

	stack *stack.Stack
	link  *link
	tcp   *tcp.Forwarder
	udp   *udp.Forwarder

	table atomic.Pointer[table]
	wants *wants

	applying     sync.Mutex // guards what follows, and that changes come one after another
	publications []*publication
}

// newSwitch returns a switch that serves no machine yet. It works until the context ends.
func newSwitch(ctx context.Context, config Config) (*netswitch, error) {
	s := &netswitch{
		ctx: ctx, started: time.Now(), maxConnections: fileLimit(),
		host: &hostAddresses{list: net.InterfaceAddrs}, wants: newWants(time.Now()),
		dns:  newResolver(),
		dial: (&net.Dialer{KeepAlive: keepAliveIdle}).DialContext,
	}
	config.Machines, config.Peers = nil, nil
	s.table.Store(newTable(config, nil))
	if err := s.newStack(config.Gateway()); err != nil {
		return nil, err
	}
	return s, nil
}

var errPrefix = errors.New("the prefix of a network cannot change while its switch runs")

// apply makes the switch serve a configuration.
func (s *netswitch) apply(config Config) error {
	if err := config.Validate(); err != nil {
		return err
	}
	s.applying.Lock()
	defer s.applying.Unlock()
	old := s.table.Load()
	if old.config.Prefix != config.Prefix {
		return fmt.Errorf("%w: from %s to %s", errPrefix, old.config.Prefix, config.Prefix)
	}
	var added []*port
	next := newTable(config, func(machine *Machine) *port {
		if p := old.byUID[machine.UID]; p != nil && p.serves(machine) {
			return p
		}
		p := newPort(machine)
		added = append(added, p)
		return p
	})
	var fellAsleep []*port
	for i, p := range next.ports {
		machine := &next.config.Machines[i]
		switch before := p.machine.Swap(machine); {
		case before == nil:
		case machine.Asleep && !before.Asleep:
			fellAsleep = append(fellAsleep, p)
		case before.Asleep && !machine.Asleep:
			p.redialSoon()
		}
	}
	s.table.Store(next)
	for _, p := range old.ports {
		if !slices.Contains(next.ports, p) {
			p.cancel()
			p.flows.closeIf(func(*flow) bool { return true }, true)
			<-p.done
		}
	}
	s.publish(next)
	for _, p := range next.ports {
		machine := p.machine.Load()
		p.flows.closeIf(func(one *flow) bool { return !s.permitted(next, machine, one) }, false)
	}
	for _, p := range fellAsleep {
		if p.flows.inbound() > 0 {
			s.wake(p) // someone connected while it fell asleep
		}
	}
	for _, p := range added {
		ctx, cancel := context.WithCancel(s.ctx)
		p.cancel = cancel
		go p.run(ctx, s.receive)
		s.announce(next, p)
	}
	return nil
}

func newPort(machine *Machine) *port {
	addr, _ := machine.hardwareAddr() // the configuration is valid
	return &port{
		uid: machine.UID, socket: machine.Socket,
		identity: identity{mac: [macLen]byte(addr), addr: machine.Address},
		queue:    make(chan *frame, queueLen), redial: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// serves reports whether the port can be that of a machine.
func (p *port) serves(machine *Machine) bool {
	addr, _ := machine.hardwareAddr() // the configuration is valid
	return p.socket == machine.Socket && p.addr == machine.Address && p.mac == [macLen]byte(addr)
}

// receive handles a frame that a machine has sent, and takes it over.
func (s *netswitch) receive(p *port, f *frame) {
	kind, why := inspect(f.bytes(), p.identity)
	if why != passed {
		p.drop(why)
		frames.Put(f)
		return
	}
	if kind == kindIPv4 && !p.leased.Load() {
		p.leased.Store(true)
	}
	t := s.table.Load()
	if kind == kindIPv4 && [macLen]byte(f.bytes()) != gatewayMAC {
		s.toMachine(t, p, f)
		return
	}
	defer frames.Put(f)
	content := f.bytes()[etherLen:]
	switch kind {
	case kindARP:
		s.answerARP(t, p, content)
	case kindDHCP:
		s.answerDHCP(t, p, content)
	case kindIPv4:
		packet, _ := parseIPv4(content) // the filter has parsed it
		s.toGateway(t, p, packet)
	}
}

// toMachine hands a frame to the machine that it is for, or to all if it is for all. Only the gateway fills a queue to the
// end: machines that flood each other do not keep a machine's other connections from it.
func (s *netswitch) toMachine(t *table, from *port, f *frame) {
	if from.machine.Load().Isolated {
		from.drop(dropIsolated)
		frames.Put(f)
		return
	}
	destination := [macLen]byte(f.bytes())
	if destination[0]&1 == 0 {
		to := t.byMAC[destination]
		switch {
		case to == nil:
			from.drop(dropUnknown)
		case to.machine.Load().Isolated:
			from.drop(dropIsolated)
		case len(to.queue) > queueLen*3/4:
			to.drop(dropOverflow)
		default:
			s.wake(to)
			to.send(f)
			return
		}
		frames.Put(f)
		return
	}
	for _, to := range t.ports {
		if to == from || to.machine.Load().Isolated {
			continue
		}
		if !to.connected.Load() {
			continue // what is for all does not wait for one
		}
		if len(to.queue) > queueLen/2 {
			to.drop(dropOverflow)
			continue
		}
		one := newFrame(f.size - lengthLen)
		copy(one.bytes(), f.bytes())
		to.send(one)
	}
	frames.Put(f)
}

// toGateway handles a packet for the gateway or for what is behind it.
func (s *netswitch) toGateway(t *table, p *port, packet ipv4Packet) {
	if to := packet.destination(); egress.IsNever(to) {
		// The stack would drop some of these silently.
		p.drop(dropEgress)
		if !to.IsMulticast() && to != broadcastAddr {
			p.sendUnreachable(t.gateway, packet, icmpAdminProhibited)
		}
		return
	}
	switch packet.protocol() {
	case protocolTCP:
		s.link.deliver(packet)
	case protocolUDP:
		source, destination, data, ok := packet.udp()
		if ok && destination == portDNS && packet.destination() == t.gateway && !packet.isFragment() {
			s.answerDNS(t, p, source, data)
			return
		}
		s.link.deliver(packet)
	case protocolICMP:
		body := packet.payload()
		switch {
		case packet.isFragment() || len(body) < icmpLen:
			// gVisor would answer pings for every address.
			p.drop(dropMalformed)
		case body[0] == icmpEcho:
			s.answerEcho(t, p, packet)
		default:
			s.link.deliver(packet) // errors, which belong to connections
		}
	default:
		p.drop(dropProtocol)
	}
}

// answerARP answers for the gateway and for the other machines. Requests are never shown to those, so nobody can answer for
// another.
func (s *netswitch) answerARP(t *table, p *port, b []byte) {
	sender, target := netipAddr(b[14:18]), netipAddr(b[24:28])
	if binary.BigEndian.Uint16(b[6:]) != arpRequest || target == p.addr {
		return
	}
	mac := gatewayMAC
	if target != t.gateway {
		other := t.byAddr[target]
		if other == nil || other.machine.Load().Isolated || p.machine.Load().Isolated {
			return
		}
		mac = other.mac
	}
	p.sendFrom(func(b []byte) []byte {
		return appendARP(appendEthernet(b, p.mac, mac, etherARP), arpReply, mac, target, p.mac, sender)
	})
}

// announce tells the other machines the MAC address of a new one, in case they remember another one for its address.
func (s *netswitch) announce(t *table, added *port) {
	if added.machine.Load().Isolated {
		return
	}
	for _, p := range t.ports {
		if p != added && !p.machine.Load().Isolated {
			p.sendFrom(func(b []byte) []byte {
				return appendARP(appendEthernet(b, broadcastMAC, added.mac, etherARP), arpRequest, added.mac, added.addr, [macLen]byte{}, added.addr)
			})
		}
	}
}

// answerDHCP answers a request that has passed the filter.
func (s *netswitch) answerDHCP(t *table, p *port, content []byte) {
	packet, _ := parseIPv4(content) // the filter has parsed it
	_, _, request, _ := packet.udp()
	l := lease{prefix: t.config.Prefix, gateway: t.gateway, identity: p.identity, namespaceDomain: t.domain, search: t.search()}
	reply, granted := l.answer(request)
	if reply == nil {
		return
	}
	if granted {
		p.leased.Store(true)
		p.leasedAt.Store(time.Now().UnixNano())
	}
	to := l.replyAddr(request, reply)
	mac := p.mac
	if to == broadcastAddr {
		mac = broadcastMAC
	}
	p.sendUDP(t.gateway, portDHCPServer, mac, to, portDHCPClient, reply)
}

// status returns the state of the switch.
func (s *netswitch) status() Status {
	t := s.table.Load()
	status := Status{Namespace: t.config.Namespace, Prefix: t.config.Prefix, StartedAt: s.started, Machines: []MachineStatus{}}
	s.applying.Lock()
	publications := slices.Clone(s.publications)
	s.applying.Unlock()
	for _, p := range t.ports {
		machine := p.status()
		for _, forward := range p.machine.Load().Ports {
			state := ForwardStatus{Forward: forward}
			for _, one := range publications {
				if one.port == p && one.forward == forward {
					state = one.status()
				}
			}
			machine.Forwards = append(machine.Forwards, state)
		}
		status.Machines = append(status.Machines, machine)
	}
	return status
}
