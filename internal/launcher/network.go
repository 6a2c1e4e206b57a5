package launcher

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/network"
)

const (
	// hardwareAddress is the hardware address that QEMU gives all machines. A guest that goes on as another machine keeps it.
	hardwareAddress = "52:54:00:12:34:56"
	// networkDir is the folder of the network in RunDir.
	networkDir = "network"
)

var (
	// guestPrefix is the network between the guest and its Pod, and guestAddress the address of the guest. They are in the memory of a guest:
	// so they are the same for all machines.
	guestPrefix  = netip.MustParsePrefix("10.0.2.0/24")
	guestAddress = netip.MustParseAddr("10.0.2.15")
	// everything is what the switch lets the guest reach: the rules are those of the Pod, which are NetworkPolicies. Loopback, link-local
	// and metadata addresses, and those of the Pod itself, are never reached.
	everything = netip.MustParsePrefix("0.0.0.0/0")
	// podAddress means all addresses of the Pod.
	podAddress = netip.IPv4Unspecified()
)

// networkConfig returns the configuration of the switch, which has one machine.
func (l *launcher) networkConfig(ports []Port) network.Config {
	machine := network.Machine{
		UID: l.definition.UID, Name: "machine", MAC: hardwareAddress, Address: guestAddress, Socket: filepath.Join(l.dirs.Run, qemu.NetworkSocket),
	}
	for _, port := range ports {
		forward := network.Forward{Name: port.String(), Protocol: network.TCP, Host: netip.AddrPortFrom(podAddress, uint16(port.Port)), GuestPort: uint16(port.Port)} //nolint:gosec // ports
		if port.UDP {
			forward.Protocol = network.UDP
		}
		machine.Ports = append(machine.Ports, forward)
	}
	return network.Config{
		Namespace: l.definition.Namespace, Prefix: guestPrefix, Egress: network.Egress{Networks: []netip.Prefix{everything}}, Search: l.searchDomains,
		Machines: []network.Machine{machine},
	}
}

// serveNetwork serves the network of the machine, in this process, until stop is called.
func (l *launcher) serveNetwork() (stop func(), err error) {
	dir := filepath.Join(l.dirs.Run, networkDir)
	if err := network.WriteConfig(dir, l.networkConfig(l.definition.Ports)); err != nil {
		return nil, fmt.Errorf("configure the network: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := network.Serve(ctx, network.Options{Directory: dir, Log: l.messages}); err != nil {
			_, _ = fmt.Fprintf(l.messages, "The machine has no network: %v\n", err) // a message only
		}
	}()
	l.network = network.NewClient(dir)
	return func() {
		cancel()
		<-served
	}, nil
}

// dialGuest opens a connection to a port of the guest.
func (l *launcher) dialGuest(ctx context.Context, port uint16) (halfCloser, error) {
	if l.guest() == nil {
		return nil, errNoGuest
	}
	conn, err := l.network.Dial(ctx, l.definition.UID, network.TCP, port)
	switch {
	case errors.Is(err, network.ErrRefused):
		return nil, errors.New("the guest refuses the connection")
	case err != nil:
		return nil, fmt.Errorf("the guest does not answer: %w", err)
	}
	return conn.(halfCloser), nil //nolint:forcetypeassert // TCP connections are
}

// halfCloser is a connection whose directions end apart.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// setPorts changes the ports that are reached at the address of the Pod. refused is why one is not.
func (l *launcher) setPorts(ctx context.Context, wanted []Port) (refused string, err error) {
	if err := l.network.Apply(ctx, l.networkConfig(wanted)); err != nil {
		return "", err
	}
	status, err := l.network.Status(ctx)
	if err != nil {
		return "", err
	}
	for _, machine := range status.Machines {
		for _, forward := range machine.Forwards {
			if !forward.Listening {
				return "port " + strconv.Itoa(int(forward.GuestPort)) + ": " + forward.Error, nil
			}
		}
	}
	return "", nil
}
