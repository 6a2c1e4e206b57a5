package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

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
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(s.HostAddress())}); err != nil {
		return fmt.Errorf("link %s: address %s: %w", s.Link(), s.HostAddress(), err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", s.Link(), err)
	}
	gateway := s.NodeAddress().Addr().AsSlice()
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(s.PodNetwork()), Gw: gateway}); err != nil {
		return fmt.Errorf("route to %s: %w", s.PodNetwork(), err)
	}
	// Each node of a control plane has a route to Services. The kernel uses that with the lowest metric, until that node ends.
	for _, services := range []netip.Prefix{s.LoadBalancers(), s.Services} {
		err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(services), Gw: gateway, Priority: s.Index})
		if errors.Is(err, unix.EEXIST) && services == s.Services {
			continue // another control plane has it that was made when this one was stopped; its Services are reached from here
		}
		if err != nil {
			return fmt.Errorf("route to %s: %w", services, err)
		}
	}
	return nil
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
