package settings

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The file is what Keelson's internal/node writes; a test there says so.
func TestRead(t *testing.T) {
	got, err := Read("testdata/settings.json")
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		ID: "0badcafe", Name: "keelson-node", Nodes: 1, Peers: "/data/peers", Layers: "/data/layers", Dir: "/data/node", Programs: "/opt/keelson/node", Kube: "/opt/keelson/keelson-kube",
		Runtime: "/usr/sbin/runc", APIPort: 20123, Network: netip.MustParsePrefix("10.100.0.0/16"),
		Services: netip.MustParsePrefix("10.96.0.0/16"), IPv6: true, ProxyMode: "iptables", RestrictOOMScore: true,
	}
	if got != want {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	rootless, err := Read("testdata/rootless.json")
	if err != nil {
		t.Fatal(err)
	}
	if got := *rootless.Rootless; got != (Rootless{
		UIDs: IDs{100000, 65536}, GIDs: IDs{200000, 65536}, NewUIDMap: "/usr/bin/newuidmap", NewGIDMap: "/usr/bin/newgidmap",
		SystemdRun: "/usr/bin/systemd-run", RuntimeDir: "/run/user/1000", Egress: "egress",
	}) {
		t.Errorf("without root: %+v", got)
	}
	for what, derived := range map[string][2]string{
		"Pod network":  {got.PodNetwork().String(), "10.100.0.0/22"},
		"Pods":         {got.AllPods().String(), "10.100.0.0/17"},
		"API":          {got.APIAddress().String(), "10.100.254.1"},
		"host address": {got.HostAddress().String(), "10.100.255.1/30"},
		"node address": {got.NodeAddress().String(), "10.100.255.2/30"},
		"IPv6 network": {IPv6(got.Network).String(), "fd6b:656c:a64::/48"},
		"IPv6 Pods":    {IPv6(got.PodNetwork()).String(), "fd6b:656c:a64::/54"},
		"IPv6 node":    {IPv6(got.NodeAddress()).String(), "fd6b:656c:a64:ff02::/62"},
		"IPv6 address": {IPv6(netip.PrefixFrom(got.NodeAddress().Addr(), 32)).String(), "fd6b:656c:a64:ff02::/128"},
		"Services":     {got.ServicesIPv6().String(), "fd6b:656c:a60::/112"},
		"link":         {got.Link(), "kn-0badcafe"},
		"cgroup":       {got.Cgroup(), "keelson-0badcafe"},
	} {
		if derived[0] != derived[1] {
			t.Errorf("%s: got %s, want %s", what, derived[0], derived[1])
		}
	}
}

func TestNodesOfOneNetworkDoNotMeet(t *testing.T) {
	s := Settings{Network: netip.MustParsePrefix("10.100.0.0/16")}
	seen := []netip.Prefix{netip.PrefixFrom(s.APIAddress(), 32), s.LoadBalancers()}
	for s.Index = range MaxNodes {
		for _, p := range []netip.Prefix{s.PodNetwork(), s.NodeAddress().Masked()} {
			for _, other := range seen {
				if p.Overlaps(other) {
					t.Errorf("node %d: %s overlaps %s", s.Index, p, other)
				}
				if IPv6(p).Overlaps(IPv6(other)) {
					t.Errorf("node %d: %s overlaps %s", s.Index, IPv6(p), IPv6(other))
				}
			}
			seen = append(seen, p)
		}
		if !s.Network.Contains(s.HostAddress().Addr()) || !s.AllPods().Overlaps(s.PodNetwork()) || s.AllPods().Contains(s.NodeAddress().Addr()) {
			t.Errorf("node %d: Pods %s, node %s", s.Index, s.PodNetwork(), s.NodeAddress())
		}
		if got := s.Peer(s.Index); got.Address != s.NodeAddress().Addr() || got.Pods != s.PodNetwork() {
			t.Errorf("node %d as others see it: %+v", s.Index, got)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	good, err := os.ReadFile("testdata/rootless.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, old, changed, want string }{
		{"a field that is not known", `"name"`, `"nane"`, "nane"},
		{"an ID that would make a link's name too long", "0badcafe", "0badcafe0", "8 hexadecimal digits"},
		{"an ID that is a path", "0badcafe", "../../..", "8 hexadecimal digits"},
		{"a relative directory", "/data/node", "data/node", "absolute path"},
		{"no port", "20123", "0", "from 1 to 65535"},
		{"a network that is too small", "10.100.0.0/16", "10.100.0.0/24", "16 bits"},
		{"an address instead of a network", "10.100.0.0/16", "10.100.0.1/16", "16 bits"},
		{"a way to Services that does not exist", "iptables", "ipvs", "iptables or nftables"},
		{"a relative program", "/usr/bin/newgidmap", "newgidmap", "rootless.newgidmap \"newgidmap\": must be an absolute path"},
		{"more nodes than addresses", `"nodes": 1`, `"nodes": 33`, "from 0 to 32"},
		{"a relative directory of peers", "/data/peers", "peers", "absolute path"},
		{"no IDs", `"first": 100000`, `"first": 0`, "rootless.uids: must be a range"},
		{"no socket", `"egress": "egress"`, `"egress": ""`, "rootless.egress: is required"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "settings.json")
			if err := os.WriteFile(path, []byte(strings.Replace(string(good), test.old, test.changed, 1)), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}
