package network

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/rfc1035label"
)

var (
	samePrefix  = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	sameAddress = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
)

// acknowledge returns what a server sends that gives 192.0.2.7 with these options.
func acknowledge(t *testing.T, options ...dhcpv4.Option) *dhcpv4.DHCPv4 {
	t.Helper()
	modifiers := []dhcpv4.Modifier{dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 7))}
	for _, option := range options {
		modifiers = append(modifiers, dhcpv4.WithOption(option))
	}
	ack, err := dhcpv4.New(modifiers...)
	if err != nil {
		t.Fatal(err)
	}
	return ack
}

func prefixes(texts ...string) []netip.Prefix {
	var list []netip.Prefix
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}

func TestFromACK(t *testing.T) {
	mask := dhcpv4.OptSubnetMask(net.CIDRMask(25, 32))
	router := dhcpv4.OptRouter(net.IPv4(192, 0, 2, 1), net.IPv4(192, 0, 2, 2))
	viaRouter := []Route{{defaultRoute, netip.MustParseAddr("192.0.2.1")}}
	tests := []struct {
		name    string
		options []dhcpv4.Option
		want    lease
	}{
		{
			name: "nothing but an address",
			want: lease{Settings{Addresses: prefixes("192.0.2.7/24")}, time.Hour, 30 * time.Minute},
		},
		{
			name: "what most servers give",
			options: []dhcpv4.Option{
				mask, router,
				dhcpv4.OptDNS(net.IPv4(192, 0, 2, 53)), dhcpv4.OptDomainName("example.org"), dhcpv4.OptHostName("one"),
				dhcpv4.OptIPAddressLeaseTime(2 * time.Hour),
			},
			want: lease{Settings{
				Addresses: prefixes("192.0.2.7/25"), Routes: viaRouter,
				Nameservers: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Search: []string{"example.org"}, Hostname: "one",
			}, 2 * time.Hour, time.Hour},
		},
		{
			name: "classless routes replace the router",
			options: []dhcpv4.Option{mask, router, dhcpv4.OptClasslessStaticRoute(
				&dhcpv4.Route{Dest: &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}, Router: net.IPv4(192, 0, 2, 3)},
				&dhcpv4.Route{Dest: &net.IPNet{IP: net.IPv4(198, 51, 100, 0), Mask: net.CIDRMask(24, 32)}, Router: net.IPv4zero},
			)},
			want: lease{Settings{Addresses: prefixes("192.0.2.7/25"), Routes: []Route{
				{defaultRoute, netip.MustParseAddr("192.0.2.3")},
				{To: netip.MustParsePrefix("198.51.100.0/24")},
			}}, time.Hour, 30 * time.Minute},
		},
		{
			name: "a search list replaces the domain",
			options: []dhcpv4.Option{mask, dhcpv4.OptDomainName("example.org"),
				dhcpv4.OptDomainSearch(&rfc1035label.Labels{Labels: []string{"a.example", "b.example"}})},
			want: lease{Settings{Addresses: prefixes("192.0.2.7/25"), Search: []string{"a.example", "b.example"}}, time.Hour, 30 * time.Minute},
		},
		{
			name:    "the size of packets",
			options: []dhcpv4.Option{mask, dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{0x05, 0x78})},
			want:    lease{Settings{Addresses: prefixes("192.0.2.7/25"), MTU: 1400}, time.Hour, 30 * time.Minute},
		},
		{
			name:    "a size of packets that cannot be",
			options: []dhcpv4.Option{mask, dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{0, 1})},
			want:    lease{Settings{Addresses: prefixes("192.0.2.7/25")}, time.Hour, 30 * time.Minute},
		},
		{
			name:    "a lease of no length is kept for a minute",
			options: []dhcpv4.Option{mask, dhcpv4.OptIPAddressLeaseTime(0)},
			want:    lease{Settings{Addresses: prefixes("192.0.2.7/25")}, time.Minute, 30 * time.Second},
		},
		{
			name: "asking again after the lease has ended makes no sense",
			options: []dhcpv4.Option{mask, dhcpv4.OptIPAddressLeaseTime(time.Hour),
				dhcpv4.OptRenewTimeValue(2 * time.Hour)},
			want: lease{Settings{Addresses: prefixes("192.0.2.7/25")}, time.Hour, 30 * time.Minute},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := fromACK(acknowledge(t, tt.options...))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got, samePrefix, sameAddress); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFromACKRefuses(t *testing.T) {
	noAddress := acknowledge(t)
	noAddress.YourIPAddr = net.IPv4zero
	if got, err := fromACK(noAddress); err == nil {
		t.Errorf("an acknowledgement without an address was read as %+v", got)
	}
	holes := acknowledge(t, dhcpv4.OptSubnetMask(net.IPv4Mask(255, 0, 255, 0)))
	if got, err := fromACK(holes); err == nil {
		t.Errorf("a network mask with holes was read as %+v", got)
	}
}

func TestNextTry(t *testing.T) {
	tests := []struct {
		name       string
		left, want time.Duration
	}{
		{"half of what is left", time.Hour, 30 * time.Minute},
		{"not more than once a minute", 90 * time.Second, time.Minute},
		{"at the end at the latest", 30 * time.Second, 30 * time.Second},
		{"now, when it has ended", -time.Second, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := nextTry(tt.left); got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}

func TestResolvConf(t *testing.T) {
	one, two := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	tests := []struct {
		name string
		from map[string]Settings
		want string
	}{
		{"nothing", nil, ""},
		{"one interface", map[string]Settings{"eth0": {Nameservers: []netip.Addr{one}, Search: []string{"a.example"}}},
			"search a.example\nnameserver 192.0.2.1\n"},
		{"two, in order, nothing twice", map[string]Settings{
			"eth1": {Nameservers: []netip.Addr{two}, Search: []string{"a.example", "b.example"}},
			"eth0": {Nameservers: []netip.Addr{one, two}, Search: []string{"a.example"}},
		}, "search a.example b.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, resolvConf(tt.from)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
