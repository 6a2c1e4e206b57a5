package network

import (
	"net/netip"
	"sync"
	"sync/atomic"
)

// Limits of each machine. What one machine cannot have, another one can.
const (
	maxConnections = 1024 // TCP through the gateway in each direction
	maxHalfOpen    = 256  // TCP connections of the machine that are being made
	maxUDPFlows    = 512  // in each direction
	maxQueries     = 32   // names being resolved elsewhere
	maxEchoes      = 16   // destinations being pinged
)

// limit is how much of something there may be at a time.
type limit struct{ used atomic.Int32 }

// take reports whether there was one left, which the caller then has until it calls give.
func (l *limit) take(maximum int) bool {
	if l.used.Add(1) > int32(maximum) {
		l.used.Add(-1)
		return false
	}
	return true
}

func (l *limit) give() { l.used.Add(-1) }

// limits are those of one machine.
type limits struct {
	tcpOut, tcpIn, halfOpen, udpOut, udpIn, queries limit
}

// flow is a connection, or a UDP flow, between a machine and something outside of its network.
type flow struct {
	kind     flowKind
	protocol Protocol
	target   netip.AddrPort // of flowOut: where the machine connects to
	peer     string         // of flowPeerIn: the namespace that it comes from
	forward  *Forward       // of flowForward
	close    func()
}

type flowKind int

const (
	flowOut     flowKind = iota // the machine connects: egress, a peer, DNS
	flowForward                 // through a forwarded port
	flowDial                    // by the manager
	flowPeerIn                  // by a machine of another namespace
)

// isInbound reports whether a flow was made to the machine by someone else than the manager.
func (f *flow) isInbound() bool { return f.kind == flowForward || f.kind == flowPeerIn }

// flows are those of one machine.
type flows struct {
	inboundTotal atomic.Uint64

	mu     sync.Mutex
	all    map[*flow]struct{}
	closed bool
}

// add registers a flow, or returns false if the machine is gone.
func (f *flows) add(one *flow) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	if f.all == nil {
		f.all = map[*flow]struct{}{}
	}
	f.all[one] = struct{}{}
	if one.isInbound() {
		f.inboundTotal.Add(1)
	}
	return true
}

// inbound counts the flows that were made to the machine.
func (f *flows) inbound() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for one := range f.all {
		if one.isInbound() {
			n++
		}
	}
	return n
}

func (f *flows) remove(one *flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.all, one)
}

func (f *flows) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.all)
}

// countOf counts the flows through a forward.
func (f *flows) countOf(forward *Forward) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for one := range f.all {
		if one.forward == forward {
			n++
		}
	}
	return n
}

// closeIf closes the flows for which unwanted returns true; the machine gets no more if it is gone.
func (f *flows) closeIf(unwanted func(*flow) bool, gone bool) {
	f.mu.Lock()
	f.closed = f.closed || gone
	var ends []func()
	for one := range f.all {
		if unwanted(one) {
			ends = append(ends, one.close)
		}
	}
	f.mu.Unlock()
	for _, end := range ends {
		end()
	}
}
