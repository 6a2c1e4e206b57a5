// Package network configures the guest's network interfaces, with DHCP or as the seed
// says, and tells how they are.
package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

// Settings are what an interface gets.
type Settings struct {
	// Addresses are the interface's own, with the length of their network's prefix.
	Addresses []netip.Prefix
	Routes    []Route
	// Nameservers and Search go to /etc/resolv.conf.
	Nameservers []netip.Addr
	Search      []string
	// MTU is the largest packet in bytes, zero for what the interface has.
	MTU int
	// Hostname is what the network calls this guest; mostly empty.
	Hostname string
}

// Route leads to a network by way of a gateway; without one the network is right at
// the interface.
type Route struct {
	To  netip.Prefix
	Via netip.Addr
}

// defaultRoute is where everything goes that no other route takes.
var defaultRoute = netip.PrefixFrom(netip.IPv4Unspecified(), 0)

// lease is what a DHCP server gave, and until when.
type lease struct {
	Settings
	// Duration is how long it is good for, and Renew when to ask again, both from
	// the moment it was given.
	Duration, Renew time.Duration
}

// minimumLease keeps a server that gives leases of no length from being asked all the
// time.
const minimumLease = time.Minute

// fromACK reads what the server acknowledged. The rules are those of RFC 2131 and
// 3442: classless routes replace the plain default route.
func fromACK(ack *dhcpv4.DHCPv4) (lease, error) {
	address, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	if !ok || address.IsUnspecified() {
		return lease{}, errors.New("the DHCP server gave no address")
	}
	mask := ack.SubnetMask()
	if mask == nil {
		mask = ack.YourIPAddr.DefaultMask()
	}
	bits, size := mask.Size()
	if size != 32 {
		return lease{}, fmt.Errorf("the DHCP server gave the network mask %s, which is none", mask)
	}
	got := lease{Settings: Settings{
		Addresses:   []netip.Prefix{netip.PrefixFrom(address, bits)},
		Routes:      routes(ack),
		Nameservers: addresses(ack.DNS()),
		Hostname:    ack.HostName(),
	}}
	if labels := ack.DomainSearch(); labels != nil {
		got.Search = labels.Labels
	} else if name := ack.DomainName(); name != "" {
		got.Search = []string{name}
	}
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options); err == nil && mtu >= 576 {
		got.MTU = int(mtu)
	}
	got.Duration = max(ack.IPAddressLeaseTime(time.Hour), minimumLease)
	got.Renew = ack.IPAddressRenewalTime(got.Duration / 2)
	if got.Renew <= 0 || got.Renew >= got.Duration {
		got.Renew = got.Duration / 2
	}
	return got, nil
}

func routes(ack *dhcpv4.DHCPv4) []Route {
	var list []Route
	for _, r := range ack.ClasslessStaticRoute() {
		to, ok := netip.AddrFromSlice(r.Dest.IP.To4())
		bits, size := r.Dest.Mask.Size()
		if !ok || size != 32 {
			continue
		}
		route := Route{To: netip.PrefixFrom(to, bits)}
		if via, ok := netip.AddrFromSlice(r.Router.To4()); ok && !via.IsUnspecified() {
			route.Via = via
		}
		list = append(list, route)
	}
	if list != nil {
		return list
	}
	if routers := addresses(ack.Router()); len(routers) != 0 {
		return []Route{{To: defaultRoute, Via: routers[0]}}
	}
	return nil
}

func addresses(ips []net.IP) []netip.Addr {
	var list []netip.Addr
	for _, ip := range ips {
		if address, ok := netip.AddrFromSlice(ip.To4()); ok {
			list = append(list, address)
		}
	}
	return list
}
