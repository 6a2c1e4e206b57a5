// Package network is the switch of a virtual network: one process serves the machines of one Kubernetes namespace on one
// host. It needs no root and no device of the kernel: QEMU's network cards are Unix sockets, and TCP/IP on the gateway's
// side is gVisor's, in this process. The network is IPv4 only; frames of other protocols are dropped.
//
// The manager starts the process with Command, after WriteConfig, and talks to it with a Client. The process outlives the
// manager. When it was killed and is started again, it has its configuration from the file.
//
//	directory/config.json   the configuration, mode 0600; written by WriteConfig and by the process itself after Apply
//	directory/switch.sock   the control socket
package network

import (
	"net"
	"net/netip"
	"path/filepath"
	"strings"
)

const (
	configFile = "config.json"
	socketFile = "switch.sock"

	// Zone is the DNS zone of all networks: a machine is NAME.NAMESPACE.vm.internal.
	Zone = "vm.internal"
)

// Config is everything that a switch has to know.
type Config struct {
	// Namespace is the Kubernetes namespace of the network.
	Namespace string `json:"namespace"`
	// Prefix has the addresses of the network, at least a /29. The first one is the gateway's and the DNS server's. It
	// cannot change while the process runs.
	Prefix netip.Prefix `json:"prefix"`
	Egress Egress       `json:"egress"`
	// Search are the domains in which machines look names up; empty means those of the network.
	Search   []string  `json:"search,omitempty"`
	Machines []Machine `json:"machines,omitempty"`
	// Peers are the other networks of this host. Without an entry, nothing of that network is reached, and nothing of it
	// reaches this one.
	Peers []Peer `json:"peers,omitempty"`
}

// EgressMode says what machines reach outside of the networks of this host.
type EgressMode string

// The modes of egress.
const (
	EgressPublic EgressMode = "public" // the public Internet and Egress.Networks
	EgressNone   EgressMode = "none"   // nothing, and no names but those of machines
)

// Egress are the rules for connections that leave the network. Loopback, link-local and multicast addresses, metadata
// services and the addresses of this host are never reached, whatever Networks says.
type Egress struct {
	Mode     EgressMode     `json:"mode"` // empty means EgressPublic
	Networks []netip.Prefix `json:"networks,omitempty"`
}

// Protocol is that of a port.
type Protocol string

// The protocols of ports.
const (
	TCP Protocol = "TCP"
	UDP Protocol = "UDP"
)

// Machine is one machine of the network.
type Machine struct {
	UID  string `json:"uid"`
	Name string `json:"name"`
	// MAC and Address are the only ones that the machine may use. It gets the address by DHCP.
	MAC     string     `json:"mac"`
	Address netip.Addr `json:"address"`
	// Socket is the path at which QEMU listens: -netdev stream,server=on,addr.type=unix,addr.path=SOCKET. It may be
	// missing: the switch tries again until it is there.
	Socket string    `json:"socket"`
	Ports  []Forward `json:"ports,omitempty"`
	// Isolated machines have DHCP, their Ports and Dial, and nothing else: no other machines, no egress, no DNS.
	Isolated bool `json:"isolated,omitempty"`
	// Asleep says that QEMU does not run, and that the manager starts it when someone wants to reach the machine, see
	// Client.Wanted. Connections wait until then.
	Asleep bool `json:"asleep,omitempty"`
	// AllowFrom are the namespaces whose machines may connect to this one, if those also name this namespace.
	AllowFrom []string `json:"allowFrom,omitempty"`
}

// Forward is a port of the host that leads to a port of a machine.
type Forward struct {
	Name      string         `json:"name"`
	Protocol  Protocol       `json:"protocol"`
	Host      netip.AddrPort `json:"host"`
	GuestPort uint16         `json:"guestPort"`
}

// Peer is the network of another namespace on this host.
type Peer struct {
	Namespace string       `json:"namespace"`
	Prefix    netip.Prefix `json:"prefix"`
	// Socket is the control socket of its switch, see SocketPath.
	Socket string `json:"socket"`
}

// SocketPath is the control socket of the switch with this directory. The kernel takes no more than 107 bytes.
func SocketPath(directory string) string { return filepath.Join(directory, socketFile) }

// Gateway is the address of the gateway, which is also the DNS server: the first of the network.
func (c *Config) Gateway() netip.Addr { return c.Prefix.Masked().Addr().Next() }

// foldName is the form in which DNS names and namespaces are compared.
func foldName(name string) string { return strings.ToLower(name) }

func equalName(a, b string) bool { return foldName(a) == foldName(b) }

// hardwareAddr parses the MAC of a machine.
func (m *Machine) hardwareAddr() (net.HardwareAddr, error) { return net.ParseMAC(m.MAC) }
