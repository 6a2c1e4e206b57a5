package network

import (
	"net/netip"
	"slices"
)

// table is a configuration with the ports that serve it. It is never changed; Apply replaces it.
type table struct {
	config    Config
	ports     []*port // in the order of the machines
	byMAC     map[[macLen]byte]*port
	byAddr    map[netip.Addr]*port
	byUID     map[string]*port
	names     map[string]netip.Addr // of machines, folded
	gateway   netip.Addr
	domain    string // of the network: NAMESPACE.vm.internal
	broadcast netip.Addr
}

// newTable returns the table of a valid configuration. portOf returns the port of a machine.
func newTable(config Config, portOf func(*Machine) *port) *table {
	t := &table{
		config: config, gateway: config.Gateway(), broadcast: lastAddr(config.Prefix),
		domain: foldName(config.Namespace) + "." + Zone,
		byMAC:  map[[macLen]byte]*port{}, byAddr: map[netip.Addr]*port{}, byUID: map[string]*port{}, names: map[string]netip.Addr{},
	}
	for i := range config.Machines {
		machine := &config.Machines[i]
		p := portOf(machine)
		t.ports = append(t.ports, p)
		t.byMAC[p.mac], t.byAddr[p.addr], t.byUID[p.uid] = p, p, p
		t.names[foldName(machine.Name)] = p.addr
	}
	return t
}

// peerOf returns the network of another namespace that has an address.
func (t *table) peerOf(addr netip.Addr) *Peer {
	for i := range t.config.Peers {
		if t.config.Peers[i].Prefix.Contains(addr) {
			return &t.config.Peers[i]
		}
	}
	return nil
}

// peerNamed returns the network of another namespace.
func (t *table) peerNamed(namespace string) *Peer {
	for i := range t.config.Peers {
		if equalName(t.config.Peers[i].Namespace, namespace) {
			return &t.config.Peers[i]
		}
	}
	return nil
}

// consents reports whether a machine is open to those of another namespace. Both sides have to be.
func (m *Machine) consents(namespace string) bool {
	return !m.Isolated && slices.ContainsFunc(m.AllowFrom, func(allowed string) bool { return equalName(allowed, namespace) })
}

// destination is what a machine connects to.
type destination int

const (
	toNothing destination = iota
	toDNS
	toPeer
	toEgress
)

// decide returns where a new connection or flow of a machine leads, or why it is refused.
func (s *netswitch) decide(t *table, machine *Machine, protocol Protocol, target netip.AddrPort) (destination, reason) {
	addr := target.Addr()
	switch {
	case machine.Isolated:
		return toNothing, dropIsolated
	case addr == t.gateway:
		if protocol == TCP && target.Port() == portDNS {
			return toDNS, passed
		}
		return toNothing, dropEgress
	case t.config.Prefix.Contains(addr):
		return toNothing, dropEgress // machines reach each other without the gateway
	}
	if peer := t.peerOf(addr); peer != nil {
		if machine.consents(peer.Namespace) {
			return toPeer, passed
		}
		return toNothing, dropEgress
	}
	if s.leaves(&t.config.Egress, addr) {
		return toEgress, passed
	}
	return toNothing, dropEgress
}

// permitted reports whether a flow that was made earlier is still allowed.
func (s *netswitch) permitted(t *table, machine *Machine, one *flow) bool {
	switch one.kind {
	case flowOut:
		_, why := s.decide(t, machine, one.protocol, one.target)
		return why == passed
	case flowPeerIn:
		return machine.consents(one.peer) && t.peerNamed(one.peer) != nil
	case flowForward:
		return slices.Contains(machine.Ports, *one.forward)
	default:
		return true
	}
}

// search returns the domains in which machines look names up.
func (t *table) search() []string {
	if len(t.config.Search) > 0 {
		return t.config.Search
	}
	return []string{t.domain, Zone}
}
