package qemu

import (
	"fmt"
	"net/netip"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/network"
)

// Why nodes do not reach a machine.
const (
	noServiceAddress = "the manager has no address at which nodes reach machines. `keelson up --node=real` has one if it runs as root; " +
		"simulated nodes and a node without root do not reach machines. For other nodes, set virtualMachines.serviceAddress"
)

// serviceAt returns the address of the host at which nodes reach a port of a machine that is on, which is not valid if they
// do not; m.mu is held. The port has the number that it has at the publish address.
func (m *machine) serviceAt(machine *backend.Machine, port string) netip.AddrPort {
	if !machine.Service || !m.d.options.ServiceAddress.IsValid() {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(m.d.options.ServiceAddress, uint16(m.def.HostPorts[port])) //nolint:gosec // a port
}

// service returns where nodes reach the machine, which is on or wakes when they do; m.mu is held.
func (m *machine) service(problem string) *backend.Service {
	machine := m.startedWith()
	switch {
	case !machine.Service:
		return nil
	case !m.d.options.ServiceAddress.IsValid():
		return &backend.Service{Error: noServiceAddress}
	case problem != "":
		return &backend.Service{Error: problem}
	}
	service := &backend.Service{Address: m.d.options.ServiceAddress.String(), Ports: map[string]int32{}}
	for _, port := range machine.Ports {
		service.Ports[port.Name] = int32(m.serviceAt(machine, port.Name).Port())
	}
	return service
}

// isForService reports whether a forward is for nodes only.
func (o *Options) isForService(forward network.Forward) bool {
	return forward.Host.Addr() == o.ServiceAddress && o.ServiceAddress != o.publishAddress()
}

// describeServiceFailure explains why the switch does not listen for nodes.
func describeServiceFailure(forward *network.ForwardStatus) string {
	if strings.Contains(forward.Error, syscall.EADDRNOTAVAIL.Error()) {
		return fmt.Sprintf("this host does not have the address %s now: the node is not up yet, or virtualMachines.serviceAddress is wrong. Keelson retries",
			forward.Host.Addr())
	}
	return fmt.Sprintf("port %s cannot be forwarded from %s: %s. Keelson retries", forward.Name, forward.Host, forward.Error)
}

// serviceErrorOf returns why nodes do not reach a machine; "" if they do.
func (w *namespaceNetwork) serviceErrorOf(uid types.UID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unreachable[uid]
}
