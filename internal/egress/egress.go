// Package egress says which addresses others may have this host connect to: users by the URL of an image, and guests by
// their connections.
package egress

import (
	"net/netip"
	"slices"
)

// specialNetworks are not part of the public Internet although their addresses look like it, or
// serve a machine's secrets in a cloud. RFC 6890 and its successors.
var specialNetworks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"),
}

// publicIPv6 is all allocated space of the IPv6 Internet. The rest is unassigned, site-local, or
// embeds an IPv4 address, as ::127.0.0.1 and 64:ff9b::127.0.0.1. RFC 4291 and the IANA registry.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

// metadata are the services that hand a host's own secrets to whoever asks from it.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // most clouds; link-local anyway
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// IsPublic reports whether an address belongs to the public Internet.
func IsPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() && !publicIPv6.Contains(ip) {
		return false
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() &&
		!slices.ContainsFunc(specialNetworks, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// IsNever reports whether an address must not be reached by guests even if a network that they may reach contains it: this
// host itself by its loopback, what only its own network segment has, metadata services, and what is no host at all. The
// addresses of this host's interfaces are for the caller to refuse.
func IsNever(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || slices.Contains(metadata, ip) {
		return true
	}
	if ip.Is4() {
		first := ip.As4()[0]
		return first == 0 || first >= 224
	}
	// Addresses that embed an IPv4 address, such as ::127.0.0.1, are neither public nor unique local ones.
	return !publicIPv6.Contains(ip) && !ip.IsPrivate() || embedsIPv4.Contains(ip)
}

// embedsIPv4 is 6to4, RFC 3056.
var embedsIPv4 = netip.MustParsePrefix("2002::/16")

// Filter allows the public Internet and these networks.
type Filter struct{ Networks []netip.Prefix }

// Allows reports whether the filter allows an address.
func (f Filter) Allows(ip netip.Addr) bool {
	plain := ip.Unmap().WithZone("")
	return IsPublic(plain) || slices.ContainsFunc(f.Networks, func(network netip.Prefix) bool { return network.Contains(plain) })
}
