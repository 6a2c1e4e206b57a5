package inside

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strconv"

	"github.com/vishvananda/netlink"

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
	link, err := netlink.LinkByName(settings.InnerLink)
	if err != nil {
		return fmt.Errorf("link %s: %w", settings.InnerLink, err)
	}
	node := s.NodeAddress()
	address := &net.IPNet{IP: node.Addr().AsSlice(), Mask: net.CIDRMask(node.Bits(), 32)}
	if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: address}); err != nil {
		return fmt.Errorf("link %s: address %s: %w", settings.InnerLink, node, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", settings.InnerLink, err)
	}
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: s.HostAddress().Addr().AsSlice()}); err != nil {
		return fmt.Errorf("default route: %w", err)
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		return err
	}
	// So that a Pod reaches another one on the same bridge also through a Service. Where bridges are not filtered at all,
	// there is nothing to turn on.
	err = os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-iptables", []byte("1"), 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
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
	names, err := net.ListenPacket("udp4", netip.AddrPortFrom(node, settings.NamesPort).String())
	if err != nil {
		return nil, errors.Join(err, sockets.Close())
	}
	sockets.Names = names
	return sockets, nil
}
