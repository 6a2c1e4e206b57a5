package inside

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/fair"
	"github.com/keelson-dev/keelson/node/internal/handover"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// prepareNetwork brings up loopback and the node's end of the link to the machine.
func prepareNetwork(s settings.Settings) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(loopback); err != nil {
		return fmt.Errorf("link lo: %w", err)
	}
	// Of this scope, it is never the address that the node sends from.
	api := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(s.APIAddress(), 32)), Scope: int(netlink.SCOPE_HOST)}
	if err := netlink.AddrAdd(loopback, api); err != nil {
		return fmt.Errorf("link lo: address %s: %w", s.APIAddress(), err)
	}
	if s.Rootless != nil {
		// Nothing is at its other end: it is for the address of the node.
		attributes := netlink.NewLinkAttrs()
		attributes.Name = settings.InnerLink
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "nowhere"}); err != nil {
			return fmt.Errorf("make the link %s: %w", settings.InnerLink, err)
		}
	}
	link, err := netlink.LinkByName(settings.InnerLink)
	if err != nil {
		return fmt.Errorf("link %s: %w", settings.InnerLink, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", settings.InnerLink, err)
	}
	for _, of := range s.Families() {
		// Nobody else has the address, so IPv6 need not look for a duplicate before it is used.
		address := &netlink.Addr{IPNet: ipNet(of(s.NodeAddress())), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("link %s: address %s: %w", settings.InnerLink, address.IPNet, err)
		}
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: s.HostAddress().Addr().AsSlice()}
	if s.Rootless != nil {
		// kube-proxy turns connections to Services around, but the kernel makes none without a route.
		route = &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(s.Services), Scope: netlink.SCOPE_LINK}
	}
	if err := netlink.RouteAdd(route); err != nil {
		return fmt.Errorf("route by the link %s: %w", settings.InnerLink, err)
	}
	// The Pods of a node that has ended have no route. Whoever connects to them learns it at once, instead of waiting for an
	// answer from where the default route leads.
	if err := netlink.RouteAdd(&netlink.Route{Dst: ipNet(s.AllPods()), Type: unix.RTN_UNREACHABLE}); err != nil {
		return fmt.Errorf("route to Pods that do not exist: %w", err)
	}
	if err := setParameters([]parameter{
		{"ipv4/ip_forward", "1"},
		// A Pod that is sent back to itself, by a Service, knows no shorter way.
		{"ipv4/conf/all/send_redirects", "0"},
		{"ipv4/conf/default/send_redirects", "0"},
	}); err != nil || !s.IPv6 {
		return err
	}
	return prepareIPv6(s, link)
}

// prepareIPv6 has the node route IPv6 between its Pods, other nodes and the machine, and nowhere else: there is no default route.
func prepareIPv6(s settings.Settings, link netlink.Link) error {
	// kube-proxy turns connections to Services around, but the kernel makes none without a route.
	for _, network := range []netip.Prefix{s.ServicesIPv6(), settings.IPv6(s.LoadBalancers())} {
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(network), Scope: netlink.SCOPE_LINK}); err != nil {
			return fmt.Errorf("route to %s by the link %s: %w", network, settings.InnerLink, err)
		}
	}
	return setParameters([]parameter{
		{"ipv6/conf/all/forwarding", "1"},
		// Both ends of a link to a Pod are ours. Its address would be of use only after a second or two.
		{"ipv6/conf/all/accept_dad", "0"},
		{"ipv6/conf/default/accept_dad", "0"},
	})
}

// parameter is one of the network in the kernel, by its path below /proc/sys/net.
type parameter struct{ path, value string }

func setParameters(parameters []parameter) error {
	for _, p := range parameters {
		if err := os.WriteFile(filepath.Join("/proc/sys/net", p.path), []byte(p.value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// listen opens what the machine serves inside: the API on every address of the node, for Pods, too; the proxy for the
// container runtime only; and for Pods what leads out and what knows names.
func listen(s settings.Settings) (*handover.Sockets, error) {
	node := s.NodeAddress().Addr()
	sockets := &handover.Sockets{}
	for address, l := range map[string]*net.Listener{
		net.JoinHostPort("0.0.0.0", strconv.Itoa(s.APIPort)):   &sockets.API,
		net.JoinHostPort("127.0.0.1", strconv.Itoa(proxyPort)): &sockets.Proxy,
		netip.AddrPortFrom(node, outPort).String():             &sockets.Out,
		netip.AddrPortFrom(node, settings.NamesPort).String():  &sockets.NamesTCP,
	} {
		opened, err := net.Listen("tcp4", address)
		if err != nil {
			return nil, errors.Join(err, sockets.Close())
		}
		*l = opened
	}
	names, err := fair.ListenUDP(netip.AddrPortFrom(node, settings.NamesPort).String(), handover.NamesSockets)
	if err != nil {
		return nil, errors.Join(err, sockets.Close())
	}
	sockets.Names = names
	return sockets, nil
}
