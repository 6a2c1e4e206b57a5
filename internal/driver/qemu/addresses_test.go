package qemu

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
)

var comparePrefixes = cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestNetworksOfNamespacesOverlapNothing(t *testing.T) {
	for _, test := range []struct {
		name          string
		ranges, taken []netip.Prefix
		want          string
	}{
		{"the first one", prefixes("10.208.0.0/12"), nil, "10.208.0.0/22"},
		{"behind that of another namespace", prefixes("10.208.0.0/12"), prefixes("10.208.0.0/22", "10.208.4.0/22"), "10.208.8.0/22"},
		{"behind a route of the host", prefixes("10.208.0.0/12"), prefixes("10.208.0.0/16"), "10.209.0.0/22"},
		{"beside a small route", prefixes("10.208.0.0/12"), prefixes("10.208.1.7/32"), "10.208.4.0/22"},
		{"in the next range", prefixes("10.208.0.0/12", "172.16.0.0/12"), prefixes("10.0.0.0/8"), "172.16.0.0/22"},
		{"the last one", prefixes("10.208.0.0/21"), prefixes("10.208.0.0/22"), "10.208.4.0/22"},
		{"none is left", prefixes("10.208.0.0/22"), prefixes("10.208.3.0/24"), ""},
		{"at the end of the address space", prefixes("255.255.252.0/22"), prefixes("255.255.255.255/32"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := choosePrefix(test.ranges, test.taken)
			if test.want == "" {
				if !errors.Is(err, errNoNetwork) || !strings.Contains(err.Error(), "virtualMachines.networkRange") {
					t.Errorf("got %s, %v", got, err)
				}
				return
			}
			if err != nil || got.String() != test.want {
				t.Errorf("got %s, %v; want %s", got, err, test.want)
			}
		})
	}
}

func TestNetworkRanges(t *testing.T) {
	for text, want := range map[string]bool{
		"10.208.0.0/12": true, "192.168.4.0/22": true, "192.168.4.0/24": false, "10.208.0.1/12": false, "fd00::/8": false,
		"127.0.0.0/8": false, "169.254.0.0/16": false, "224.0.0.0/8": false, "0.0.0.0/0": false,
	} {
		if err := CheckNetworkRange(netip.MustParsePrefix(text)); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	for _, network := range DefaultNetworkRanges {
		if err := CheckNetworkRange(network); err != nil {
			t.Error(err)
		}
	}
}

func TestAddressesOfMachinesDiffer(t *testing.T) {
	network := netip.MustParsePrefix("10.208.4.0/29") // 5 machines
	taken := map[netip.Addr]bool{}
	for range 5 {
		got, err := chooseAddress(network, types.UID("same"), taken)
		if err != nil || taken[got] || !network.Contains(got) || got == gateway(network) || got == network.Addr() || got.String() == "10.208.4.7" {
			t.Fatalf("got %s, %v; taken are %v", got, err, taken)
		}
		taken[got] = true
	}
	if got, err := chooseAddress(network, types.UID("same"), taken); err == nil {
		t.Errorf("a full network gave %s", got)
	}
}

func TestRoutesOfTheHost(t *testing.T) {
	const table = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
wg0	0108A8C0	00000000	0005	0	0	0	FFFFFFFF	0	0	0
`
	got, err := parseRoutes(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(prefixes("192.0.2.0/24", "172.17.0.0/16", "192.168.8.1/32"), got, comparePrefixes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := parseRoutes(strings.NewReader("eth0 x 0 0 0 0 0 0")); err == nil {
		t.Error("a damaged table was accepted")
	}
}
