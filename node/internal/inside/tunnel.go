package inside

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

const (
	tunnelLink = "out"
	// tunnelTable is the number of the routing table for packets of Pods, and the place of the rule that has it used.
	tunnelTable = 3129
	// answerMark is on packets of Pods that answer. kube-proxy, kubelet and the CNI plugins have marks of their own, all lower.
	answerMark = 1 << 16
)

// openTunnel has the packets of Pods that go beyond the node, its Services and the machine come out of a file, which the
// part on the machine reads: all but those of connections, which leadOut has turned around before they are routed, and
// those that it has marked.
func openTunnel(s settings.Settings) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	file := os.NewFile(uintptr(fd), "tunnel")
	request, err := unix.NewIfreq(tunnelLink)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, errors.Join(fmt.Errorf("make the link %s: %w", tunnelLink, err), file.Close())
	}
	if err := routeToTunnel(s); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// routeToTunnel gives Pods a default route of their own.
func routeToTunnel(s settings.Settings) error {
	link, err := netlink.LinkByName(tunnelLink)
	if err != nil {
		return fmt.Errorf("link %s: %w", tunnelLink, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("link %s: %w", tunnelLink, err)
	}
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	routes := []netlink.Route{{LinkIndex: link.Attrs().Index, Dst: ipNet(all), Scope: netlink.SCOPE_LINK, Table: tunnelTable}}
	for _, network := range []netip.Prefix{s.Network, s.Services} {
		routes = append(routes, netlink.Route{Dst: ipNet(network), Type: unix.RTN_THROW, Table: tunnelTable}) // as without this table
	}
	for _, route := range routes {
		if err := netlink.RouteAdd(&route); err != nil {
			return fmt.Errorf("route to %s: %w", route.Dst, err)
		}
	}
	answers, mask := netlink.NewRule(), uint32(answerMark)
	answers.Mark, answers.Mask, answers.Table, answers.Priority = answerMark, &mask, unix.RT_TABLE_MAIN, tunnelTable-1
	if err := netlink.RuleAdd(answers); err != nil {
		return fmt.Errorf("routes for what Pods answer: %w", err)
	}
	rule := netlink.NewRule()
	rule.Src, rule.Table, rule.Priority = ipNet(s.PodNetwork()), tunnelTable, tunnelTable
	if err := netlink.RuleAdd(rule); err != nil {
		return fmt.Errorf("routes for Pods: %w", err)
	}
	// The kernel looks for the way back of what comes in before there is a mark, and finds the tunnel: that is to be no
	// reason to drop it, which it is by default on some machines.
	return os.WriteFile("/proc/sys/net/ipv4/conf/"+settings.InnerLink+"/rp_filter", []byte("2"), 0o644)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
