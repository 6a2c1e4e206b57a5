package qemu

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// hostPorts returns a host port for each port of the guest: the previous one, if it is free or in use for the same port
// already.
func (d *Driver) hostPorts(ports []v1alpha1.Port, before map[string]int, inUse []v1alpha1.Port) (map[string]int, error) {
	if len(ports) == 0 {
		return nil, nil
	}
	used := map[string]v1alpha1.Protocol{}
	for _, port := range inUse {
		used[port.Name] = port.Protocol
	}
	taken := map[string]int{}
	var held []interface{ Close() error }
	defer func() {
		for _, h := range held {
			_ = h.Close() // it only proved that the port is free
		}
	}()
	for _, port := range ports {
		previous := before[port.Name]
		if protocol, found := used[port.Name]; found && protocol == port.Protocol && previous != 0 {
			taken[port.Name] = previous
			continue
		}
		number, holder, err := d.holdPort(port.Protocol, previous)
		if err != nil && previous != 0 {
			number, holder, err = d.holdPort(port.Protocol, 0)
		}
		if err != nil {
			return nil, fmt.Errorf("find a host port for %q: %w", port.Name, err)
		}
		held = append(held, holder)
		taken[port.Name] = number
	}
	return taken, nil
}

// holdPort listens on a port of the publish address; 0 means any free one.
func (d *Driver) holdPort(protocol v1alpha1.Protocol, number int) (int, interface{ Close() error }, error) {
	address := netip.AddrPortFrom(d.options.publishAddress(), uint16(number)) //nolint:gosec // a port
	if protocol == v1alpha1.ProtocolUDP {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(address))
		if err != nil {
			return 0, nil, err
		}
		return conn.LocalAddr().(*net.UDPAddr).Port, conn, nil
	}
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(address))
	if err != nil {
		return 0, nil, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener, nil
}
