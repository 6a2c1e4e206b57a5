package qemu

import (
	"maps"
	"net/netip"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/network"
)

// config returns the configuration for the present machines, and whether one of them needs the network.
func (w *namespaceNetwork) config() (config network.Config, needed bool) {
	config = network.Config{Namespace: w.namespace, Prefix: w.network(), Egress: w.n.d.options.Egress}
	names := map[string]bool{}
	sleepers := false
	for _, m := range w.n.d.all() {
		if m.id.Namespace != w.namespace {
			continue
		}
		entry, has, on := m.networkEntry()
		// Nobody has a machine woken while the host is shut down.
		needed = needed || on || entry.Asleep && !w.n.d.options.stopsOnly
		sleepers = sleepers || entry.Asleep
		if !has {
			continue
		}
		// Of two machines with the same name, one is about to be deleted. A name that is no label is none in DNS.
		if len(validation.IsDNS1123Label(entry.Name)) > 0 || names[entry.Name] {
			entry.Name = entry.UID
		}
		names[entry.Name] = true
		config.Machines = append(config.Machines, entry)
	}
	w.mu.Lock()
	w.sleepers = sleepers && !w.n.d.options.stopsOnly
	w.mu.Unlock()
	config.Peers = w.peers(config.Machines)
	return config, needed && config.Prefix.IsValid()
}

// peers returns the networks of the namespaces that machines allow.
func (w *namespaceNetwork) peers(machines []network.Machine) []network.Peer {
	allowed := map[string]bool{}
	for i := range machines {
		for _, namespace := range machines[i].AllowFrom {
			allowed[namespace] = true
		}
	}
	w.n.mu.Lock()
	defer w.n.mu.Unlock()
	var all []network.Peer
	for _, namespace := range slices.Sorted(maps.Keys(allowed)) {
		if other := w.n.all[namespace]; other != nil && other != w && other.network().IsValid() {
			all = append(all, network.Peer{
				Namespace: namespace, Prefix: other.network(), Socket: network.SocketPath(filepath.Join("..", namespace)),
			})
		}
	}
	return all
}

func (w *namespaceNetwork) network() netip.Prefix {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.prefix
}

func (w *namespaceNetwork) setPrefix(prefix netip.Prefix) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.prefix = prefix
}

// networkEntry returns the machine as its network sees it, whether it has a place there, and whether it is on and connected.
func (m *machine) networkEntry() (entry network.Machine, has, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	on = m.run != ""
	if !m.def.Address.IsValid() || m.leaving {
		return entry, false, false
	}
	entry = network.Machine{
		UID: string(m.id.UID), Name: m.id.Name, MAC: m.def.hardwareAddress(), Address: m.def.Address,
		Socket: filepath.Join("..", "..", filepath.Base(m.d.machinesDir()), string(m.id.UID), qemu.NetworkSocket),
	}
	entry.Asleep = m.wakesOnConnection()
	// The rules are there before the machine is.
	wanted := &m.def.Machine
	if on || entry.Asleep {
		wanted = m.startedWith()
	}
	if rules := wanted.Network; rules != nil {
		entry.Isolated = rules.Mode == v1alpha1.NetworkIsolated
		for _, peer := range rules.AllowFrom {
			entry.AllowFrom = append(entry.AllowFrom, peer.Namespace)
		}
	}
	if !on && !entry.Asleep {
		return entry, true, false
	}
	for _, port := range wanted.Ports {
		entry.Ports = append(entry.Ports, network.Forward{
			Name: port.Name, Protocol: network.Protocol(port.Protocol), Host: m.publishedAt(m.def.HostPorts[port.Name]),
			GuestPort: uint16(port.Port), //nolint:gosec // a port
		})
		if at := m.serviceAt(wanted, port.Name); at.IsValid() && at != m.publishedAt(m.def.HostPorts[port.Name]) {
			entry.Ports = append(entry.Ports, network.Forward{
				Name: port.Name, Protocol: network.Protocol(port.Protocol), Host: at, GuestPort: uint16(port.Port), //nolint:gosec // a port
			})
		}
	}
	return entry, true, on
}
