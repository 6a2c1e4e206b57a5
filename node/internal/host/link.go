package host

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// connect makes the link between this machine and the network namespace of a process, and the routes to the Pods and
// Services behind it. All of it goes with the namespace.
func connect(s settings.Settings, pid int) error {
	// The kernel takes a moment to give up the namespaces of a node that has ended.
	if stale, err := netlink.LinkByName(s.Link()); err == nil {
		if err := netlink.LinkDel(stale); err != nil {
			return fmt.Errorf("remove the link %s of an earlier run: %w", s.Link(), err)
		}
	}
	attributes := netlink.NewLinkAttrs()
	attributes.Name = s.Link()
	link := &netlink.Veth{LinkAttrs: attributes, PeerName: settings.InnerLink, PeerNamespace: netlink.NsPid(pid)}
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("make the link %s to the node: %w", s.Link(), err)
	}
	// A Pod that is in the network of the node must not become a router of this machine.
	err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", s.Link(), "accept_ra"), []byte("0"), 0o644)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", s.Link(), err)
	}
	if err := routeToNode(link, s, s.Families()[0], s.Services, s.Index); err != nil || !s.IPv6 {
		return err
	}
	return routeToNode(link, s, settings.IPv6, s.ServicesIPv6(), s.Index+1) // for IPv6, metric 0 stands for the default one
}

// routeToNode gives the link the machine's address of a family, and the routes to the Pods and the Services of the node.
func routeToNode(link netlink.Link, s settings.Settings, of settings.Family, services netip.Prefix, metric int) error {
	// Nobody else has the address, so IPv6 need not look for a duplicate before it is used.
	address := &netlink.Addr{IPNet: ipNet(of(s.HostAddress())), Flags: unix.IFA_F_NODAD}
	if err := netlink.AddrAdd(link, address); err != nil {
		return fmt.Errorf("link %s: address %s: %w", s.Link(), address.IPNet, err)
	}
	index, gateway := link.Attrs().Index, of(s.NodeAddress()).Addr().AsSlice()
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: ipNet(of(s.PodNetwork())), Gw: gateway}); err != nil {
		return fmt.Errorf("route to %s: %w", of(s.PodNetwork()), err)
	}
	// Each node of a control plane has a route to Services. The kernel uses that with the lowest metric, until that node ends.
	for _, network := range []netip.Prefix{of(s.LoadBalancers()), services} {
		err := netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: ipNet(network), Gw: gateway, Priority: metric})
		if errors.Is(err, unix.EEXIST) && network == services {
			continue // another control plane has it that was made when this one was stopped; its Services are reached from here
		}
		if err != nil {
			return fmt.Errorf("route to %s: %w", network, err)
		}
	}
	return nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
