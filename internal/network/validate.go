package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// Validate returns what is wrong with a configuration. A switch serves no other.
func (c *Config) Validate() error {
	if !isLabel(c.Namespace) {
		return fmt.Errorf("namespace %q is not a DNS label", c.Namespace)
	}
	if !c.Prefix.IsValid() || !c.Prefix.Addr().Is4() || c.Prefix.Bits() > 29 || c.Prefix.Bits() < 8 {
		return fmt.Errorf("prefix %s is not an IPv4 network from /8 to /29", c.Prefix)
	}
	if mode := c.Egress.Mode; mode != "" && mode != EgressPublic && mode != EgressNone {
		return fmt.Errorf("egress mode %q is neither %q nor %q", mode, EgressPublic, EgressNone)
	}
	for _, network := range c.Egress.Networks {
		if !network.IsValid() {
			return errors.New("egress: a network is not valid")
		}
	}
	if err := c.validatePeers(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for i := range c.Machines {
		machine := &c.Machines[i]
		if err := c.validateMachine(machine); err != nil {
			return fmt.Errorf("machine %s (%s): %w", machine.Name, machine.UID, err)
		}
		addr, _ := machine.hardwareAddr() // validated above
		for _, key := range []string{"uid " + machine.UID, "name " + foldName(machine.Name), "address " + machine.Address.String(), "MAC " + addr.String()} {
			if seen[key] {
				return fmt.Errorf("machine %s (%s): another one has the %s", machine.Name, machine.UID, key)
			}
			seen[key] = true
		}
	}
	return nil
}

func (c *Config) validatePeers() error {
	seen := map[string]bool{}
	for _, peer := range c.Peers {
		switch {
		case !isLabel(peer.Namespace) || equalName(peer.Namespace, c.Namespace) || seen[foldName(peer.Namespace)]:
			return fmt.Errorf("peer %q: each peer has a namespace of its own", peer.Namespace)
		case !peer.Prefix.IsValid() || !peer.Prefix.Addr().Is4() || peer.Prefix.Overlaps(c.Prefix):
			return fmt.Errorf("peer %s: prefix %s is not an IPv4 network apart from %s", peer.Namespace, peer.Prefix, c.Prefix)
		case peer.Socket == "":
			return fmt.Errorf("peer %s has no socket", peer.Namespace)
		}
		seen[foldName(peer.Namespace)] = true
	}
	return nil
}

func (c *Config) validateMachine(m *Machine) error {
	switch {
	case m.UID == "":
		return errors.New("uid is empty")
	case !isLabel(m.Name):
		return errors.New("the name is not a DNS label")
	case m.Socket == "":
		return errors.New("socket is empty")
	case !m.Address.Is4() || !c.Prefix.Contains(m.Address):
		return fmt.Errorf("address %s is not in %s", m.Address, c.Prefix)
	case m.Address == c.Prefix.Masked().Addr() || m.Address == c.Gateway() || m.Address == lastAddr(c.Prefix):
		return fmt.Errorf("address %s belongs to the network itself", m.Address)
	}
	addr, err := m.hardwareAddr()
	if err != nil || len(addr) != macLen || addr[0]&1 != 0 || [macLen]byte(addr) == gatewayMAC || [macLen]byte(addr) == [macLen]byte{} {
		return fmt.Errorf("%q is not the MAC address of a network card", m.MAC)
	}
	for _, port := range m.Ports {
		switch {
		case port.Protocol != TCP && port.Protocol != UDP:
			return fmt.Errorf("port %s: protocol %q is neither TCP nor UDP", port.Name, port.Protocol)
		case !port.Host.IsValid() || port.Host.Port() == 0 || port.GuestPort == 0:
			return fmt.Errorf("port %s: %s to %d is not a forward", port.Name, port.Host, port.GuestPort)
		}
	}
	return nil
}

// isLabel reports whether a name is a label of the DNS. RFC 1123 2.1.
func isLabel(name string) bool {
	if name == "" || len(name) > 63 || name[0] == '-' || name[len(name)-1] == '-' {
		return false
	}
	for _, r := range foldName(name) {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' {
			return false
		}
	}
	return true
}

// lastAddr is the broadcast address of a network.
func lastAddr(prefix netip.Prefix) netip.Addr {
	addr := prefix.Masked().Addr().As4()
	mask := net.CIDRMask(prefix.Bits(), 32)
	for i := range addr {
		addr[i] |= ^mask[i]
	}
	return netip.AddrFrom4(addr)
}
