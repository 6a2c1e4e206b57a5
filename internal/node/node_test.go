package node

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// able is a machine that can run a real node.
func able() Machine {
	return Machine{
		Root: true, Capabilities: 1<<41 - 1, Cgroups: 2, Programs: "/keelson/bin/node",
		Runtime: "/usr/sbin/runc", Iptables: "/usr/sbin/iptables",
	}
}

func TestChoose(t *testing.T) {
	type choice struct {
		Real        bool
		Line, Error string
	}
	for _, test := range []struct {
		name   string
		change func(m *Machine)
		mode   Mode
		want   choice
	}{
		{"a machine that can", func(*Machine) {}, Auto, choice{Real: true}},
		{"asked for", func(*Machine) {}, Real, choice{Real: true}},
		{"not asked for", func(*Machine) {}, Simulated, choice{}},
		{"not asked for, not possible", func(m *Machine) { m.Capabilities = 0 }, Simulated, choice{}},
		{
			"asked for, not possible", func(m *Machine) { m.Capabilities = 0xa80425fb }, Real,
			choice{Error: "this machine cannot run a real node; missing: the capability CAP_NET_ADMIN; the capability CAP_SYS_ADMIN"},
		},
		{
			"without root", func(m *Machine) { m.Root, m.Capabilities, m.Rootless = false, 0, ableUser() }, Auto, choice{Real: true},
		},
		{
			"without root, on cgroups of version 1", func(m *Machine) { m.Root, m.Rootless, m.Cgroups = false, ableUser(), 1 }, Auto,
			choice{Line: "A real node without root is not possible here; missing: " +
				"cgroups of version 2 (boot with the kernel parameter systemd.unified_cgroup_hierarchy=1)."},
		},
		{
			"root of a container", func(m *Machine) { m.Capabilities = 0xa80425fb }, Auto,
			choice{Line: "A real node is not possible here; missing: the capability CAP_NET_ADMIN; the capability CAP_SYS_ADMIN."},
		},
		{"root without CAP_SYS_RESOURCE", func(m *Machine) { m.Capabilities &^= 1 << 24 }, Auto, choice{Real: true}},
		{"cgroups of version 1", func(m *Machine) { m.Cgroups = 1 }, Auto, choice{Real: true}},
		{"nft only", func(m *Machine) { m.Iptables, m.Nft = "", "/usr/sbin/nft" }, Auto, choice{Real: true}},
		{
			"a container, whose processes keep controllers to themselves", func(m *Machine) { m.NoControllers = []string{"cpuset", "memory"} }, Auto,
			choice{Line: "A real node is not possible here; missing: controllers for cgroups below /sys/fs/cgroup (cpuset, memory)."},
		},
		{
			"a crun that is too old", func(m *Machine) { m.Runtime, m.OldCrun = "", "1.8.1" }, Auto,
			choice{Line: "A real node is not possible here; missing: runc (a package of that name), or crun 1.14.3 or later (it is 1.8.1)."},
		},
		{
			"no packages", func(m *Machine) { m.Cgroups, m.NoProgram, m.Runtime, m.Iptables = 0, "keelson-node", "", "" }, Auto,
			choice{Line: "A real node is not possible here; missing: cgroups at /sys/fs/cgroup; " +
				"/keelson/bin/node/keelson-node (build it with `make node`); runc or crun (a package of that name); " +
				"iptables or nft (packages iptables, nftables)."},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := able()
			test.change(&m)
			var got choice
			var err error
			got.Real, got.Line, err = Choose(test.mode, m)
			if err != nil {
				got.Error = err.Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestLook(t *testing.T) {
	programs := t.TempDir()
	if got := Look(programs).NoProgram; got != "keelson-node" {
		t.Errorf("an empty folder: %q is missing", got)
	}
	for _, name := range besides {
		if err := os.WriteFile(filepath.Join(programs, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := Look(programs).NoProgram; got != "" {
		t.Errorf("a full folder: %q is missing", got)
	}
}

func TestFind(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	t.Setenv("PATH", first+string(os.PathListSeparator)+second)
	for path, mode := range map[string]os.FileMode{
		filepath.Join(first, "keelson-crun"): 0o755, filepath.Join(second, "keelson-runc"): 0o755, filepath.Join(first, "keelson-nft"): 0o644,
	} {
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		name     string
		programs []string
		want     string
	}{
		{"the first name counts more than the first folder", []string{"keelson-runc", "keelson-crun"}, filepath.Join(second, "keelson-runc")},
		{"the second name", []string{"keelson-youki", "keelson-crun"}, filepath.Join(first, "keelson-crun")},
		{"nobody may run it", []string{"keelson-nft"}, ""},
		{"not there", []string{"keelson-iptables"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := find(test.programs...); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestOldCrun(t *testing.T) {
	for _, test := range []struct {
		name, says, want string
	}{
		{"Debian 12", "crun version 1.8.1\ncommit: f8a096be060b22ccd3d5f3ebe44108517fbf6c30\nspec: 1.0.0\n", "1.8.1"},
		{"Ubuntu 24.04", "crun version 1.14.1\ncommit: de537a7965bfbe9992e2cfae0baeb56a08128171\n", "1.14.1"},
		{"without a third number", "crun version 1.14\n", "1.14"},
		{"the first that is new enough", "crun version 1.14.3\n", ""},
		{"Debian 13", "crun version 1.21\n", ""},
		{"the next of all", "crun version 2.0\n", ""},
		{"not released", "crun version 1.14-12-gabcdef\n", ""},
		{"something else", "hello\n", ""},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := oldCrun(test.says); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestProxyMode(t *testing.T) {
	for _, test := range []struct {
		name, iptables, nft, want string
	}{
		{"iptables", "/usr/sbin/iptables", "", "iptables"},
		{"nft", "", "/usr/sbin/nft", "nftables"},
		{"both", "/usr/sbin/iptables", "/usr/sbin/nft", "iptables"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := (Machine{Iptables: test.iptables, Nft: test.nft}).proxyMode(); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestCapabilities(t *testing.T) {
	for _, test := range []struct {
		name, status string
		want         uint64
	}{
		{"some", "Name:\tx\nCapInh:\t0000000000000000\nCapPrm:\t000001fffeffffff\nCapEff:\t000001fffeffffff\nCapBnd:\t000001ffffffffff\n", 0x1fffeffffff},
		{"none", "CapEff:\t0000000000000000\n", 0},
		{"not said", "Name:\tx\n", 0},
		{"damaged", "CapEff:\tmany\n", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := capabilities(test.status); got != test.want {
				t.Errorf("got %x, want %x", got, test.want)
			}
		})
	}
}

// The two sides of the seam are of different modules; the file is their contract.
func TestSettingsAreWhatTheNodeReads(t *testing.T) {
	root := Settings{
		ID: "0badcafe", Name: Name(0), Nodes: 1, Peers: "/data/peers", Layers: "/data/layers", Dir: "/data/node", Programs: "/opt/keelson/node", Kube: "/opt/keelson/keelson-kube",
		Runtime: "/usr/sbin/runc", APIPort: 20123, Network: netip.MustParsePrefix("10.100.0.0/16"),
		Services: netip.MustParsePrefix("10.96.0.0/16"), IPv6: true, ProxyMode: "iptables", RestrictOOMScore: true,
	}
	rootless := root
	rootless.IPv6 = false
	rootless.Rootless = &RootlessRun{
		UIDs: IDs{100000, 65536}, GIDs: IDs{200000, 65536}, NewUIDMap: "/usr/bin/newuidmap", NewGIDMap: "/usr/bin/newgidmap",
		SystemdRun: "/usr/bin/systemd-run", RuntimeDir: "/run/user/1000", Egress: Egress,
	}
	for name, settings := range map[string]Settings{"settings.json": root, "rootless.json": rootless} {
		want, err := os.ReadFile(filepath.Join("../../node/internal/settings/testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := settings.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestNewSettings(t *testing.T) {
	data := t.TempDir()
	m := able()
	m.Capabilities &^= capSysResource
	all, err := NewSettings(testClaims(t), m, data, []int{0, 1, 2}, "/bin/keelson-kube", 20001, netip.MustParsePrefix("10.96.0.0/16"), true)
	if err != nil {
		t.Fatal(err)
	}
	first, third := all[0], all[2]
	if !first.RestrictOOMScore || first.ProxyMode != "iptables" || !first.Network.IsValid() || first.IPv6 {
		t.Errorf("got %+v", first)
	}
	if third.Name != "keelson-node-3" || third.Dir != filepath.Join(data, "node-3") || third.Nodes != 3 || third.ID == first.ID ||
		third.Network != first.Network || third.Address().As4()[3] != 10 || third.Peers != first.Peers ||
		third.Layers != filepath.Join(data, "layers") {
		t.Errorf("got %+v", third)
	}
	m.Layers = "/shared/layers"
	// The network is kept, whatever a new choice would have been.
	kept := first
	kept.Network, kept.Layers = netip.MustParsePrefix("10.222.0.0/16"), m.Layers
	text, err := kept.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(kept.Dir, 0o700), os.WriteFile(kept.File(), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	again, err := NewSettings(testClaims(t), m, data, []int{0, 1, 2}, "/bin/keelson-kube", 20001, netip.MustParsePrefix("10.96.0.0/16"), true)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(kept, again[0], cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// Nodes have IPv6 if the machine and the Services have it.
func TestNewSettingsWithIPv6(t *testing.T) {
	for _, test := range []struct{ machine, services, want bool }{{true, true, true}, {true, false, false}, {false, true, false}} {
		m := able()
		m.IPv6 = test.machine
		all, err := NewSettings(testClaims(t), m, t.TempDir(), []int{0}, "/bin/keelson-kube", 20001, netip.MustParsePrefix("10.96.0.0/16"), test.services)
		if err != nil || all[0].IPv6 != test.want {
			t.Errorf("%+v: got %t, %v", test, all[0].IPv6, err)
		}
	}
}

func TestAsStarted(t *testing.T) {
	now := Settings{Dir: t.TempDir(), Nodes: 3, IPv6: true, APIPort: 20001}
	if got := AsStarted(now); got.Nodes != 3 || !got.IPv6 {
		t.Errorf("without a file: %+v", got)
	}
	if err := os.WriteFile(now.File(), []byte(`{"nodes": 2, "apiPort": 20000}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := AsStarted(now); got.Nodes != 2 || got.IPv6 || got.APIPort != 20001 {
		t.Errorf("it had another share, and no IPv6: %+v", got)
	}
}

// node/internal/settings has the same addresses.
func TestIPv6(t *testing.T) {
	for network, want := range map[string]string{
		"10.100.0.0/16": "fd6b:656c:a64::/48", "10.100.255.2/30": "fd6b:656c:a64:ff02::/62", "10.100.253.7/32": "fd6b:656c:a64:fd07::/128",
	} {
		if got := IPv6(netip.MustParsePrefix(network)); got.String() != want {
			t.Errorf("%s: got %s, want %s", network, got, want)
		}
	}
	if got := ServicesIPv6(netip.MustParsePrefix("10.96.0.0/16")); got.String() != "fd6b:656c:a60::/112" {
		t.Errorf("Services: %s", got)
	}
}

func TestTryIPv6(t *testing.T) {
	root := Machine{Root: true, Capabilities: capSysAdmin}
	for what, m := range map[string]Machine{"without root": {Nft: "/usr/sbin/nft"}, "without programs": root} {
		if TryIPv6(m) == nil {
			t.Errorf("it is possible %s", what)
		}
	}
	if m := Look(t.TempDir()); m.Root && m.Nft != "" {
		t.Logf("on this machine: IPv6 %t, %v", m.IPv6, TryIPv6(m))
	}
}

func TestNewSettingsWithoutRoot(t *testing.T) {
	m := able()
	m.Root, m.Capabilities, m.Rootless = false, 0, ableUser()
	all, err := NewSettings(testClaims(t), m, t.TempDir(), []int{0}, "/bin/keelson-kube", 20001, netip.MustParsePrefix("10.96.0.0/16"), true)
	if err != nil {
		t.Fatal(err)
	}
	s := all[0]
	want := &RootlessRun{
		UIDs: IDs{100000, 65536}, GIDs: IDs{100000, 65536}, NewUIDMap: "/usr/bin/newuidmap", NewGIDMap: "/usr/bin/newgidmap",
		SystemdRun: "/usr/bin/systemd-run", RuntimeDir: "/run/user/1000", Egress: "egress",
	}
	if diff := cmp.Diff(want, s.Rootless); diff != "" || !s.RestrictOOMScore || s.Peers != "" || s.Layers != "" {
		t.Errorf("restricted: %t; (-want +got)\n%s", s.RestrictOOMScore, diff)
	}
}

func TestChooseNetwork(t *testing.T) {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	for _, test := range []struct {
		name, id  string
		preferred netip.Prefix
		used      []netip.Prefix
		want      string
	}{
		{"nothing in use", "00000000", netip.Prefix{}, nil, "10.64.0.0/16"},
		{"another node", "00000001", netip.Prefix{}, nil, "10.65.0.0/16"},
		{"the last, then the first", "0000009f", netip.Prefix{}, prefixes("10.223.0.0/16"), "10.64.0.0/16"},
		{"the one of before", "00000000", netip.MustParsePrefix("10.99.0.0/16"), nil, "10.99.0.0/16"},
		{"the one of before is taken", "00000000", netip.MustParsePrefix("10.99.0.0/16"), prefixes("10.99.3.0/24"), "10.64.0.0/16"},
		{"a network in it is taken", "00000000", netip.Prefix{}, prefixes("10.64.7.0/24", "192.168.0.0/16"), "10.65.0.0/16"},
		{"half of all is taken", "00000000", netip.Prefix{}, prefixes("10.0.0.0/9"), "10.128.0.0/16"},
		{"all is taken", "00000000", netip.Prefix{}, prefixes("10.0.0.0/8"), "no free network from 10.64.0.0/16 to 10.223.0.0/16: this machine has routes to all of them, or other nodes claim them"},
	} {
		t.Run(test.name, func(t *testing.T) {
			candidates, err := networksFor(test.id, test.preferred)
			if err != nil {
				t.Fatal(err)
			}
			got, err := testClaims(t).choose(netip.Prefix{}, candidates, func() ([]netip.Prefix, error) { return test.used, nil })
			text := got.String()
			if err != nil {
				text = err.Error()
			}
			if text != test.want {
				t.Errorf("got  %s\nwant %s", text, test.want)
			}
		})
	}
}

func TestParseRoutes(t *testing.T) {
	const text = `Iface	Destination	Gateway 	Flags	RefCnt	Use	Metric	Mask		MTU	Window	IRTT
eth0	00000000	010200C0	0003	0	0	0	00000000	0	0	0
eth0	000200C0	00000000	0001	0	0	0	00FFFFFF	0	0	0
kn-0badcafe	0000640A	00000000	0001	0	0	0	0080FFFF	0	0	0
docker0	000011AC	00000000	0001	0	0	0	0000FFFF	0	0	0
`
	got, err := parseRoutes(text, []string{"kn-0badcafe"})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"192.0.2.0/24", "172.17.0.0/16"}
	var found []string
	for _, p := range got {
		found = append(found, p.String())
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if _, err := parseRoutes("Iface\nx y z 0 0 0 0 0", nil); err == nil {
		t.Error("nonsense was read")
	}
}
