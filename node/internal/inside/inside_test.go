package inside

import (
	"encoding/json"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

func TestPodResolvers(t *testing.T) {
	for _, test := range []struct{ name, machine, want string }{
		{"a server", "nameserver 192.0.2.1\n", ""},
		{"names are searched for", "search example.com\nnameserver 127.0.0.53\noptions edns0\n", "search example.com\noptions edns0\n"},
		{"comments and a last line without an end", "# by hand\n\nnameserver ::1\nsearch example.com", "# by hand\nsearch example.com\n"},
		{"nothing", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.want + "nameserver 10.100.255.2\n"
			if got := podResolvers(test.machine, netip.MustParseAddr("10.100.255.2")); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

func testFacts() facts {
	return facts{
		Settings: settings.Settings{
			ID: "0badcafe", Name: "keelson-node", Dir: "/data/node", Programs: "/opt/keelson/node", Kube: "/opt/keelson/keelson-kube",
			Runtime: `/usr/local/"odd"/runc`, APIPort: 20123, Network: netip.MustParsePrefix("10.100.0.0/16"),
			Services: netip.MustParsePrefix("10.96.0.0/16"), ProxyMode: "nftables", RestrictOOMScore: true,
		},
		Snapshotter: "overlayfs",
	}
}

// The files are read by programs that refuse what they do not know; a test of the whole node starts those. Here is what
// must get from the settings into them.
func TestConfig(t *testing.T) {
	for _, test := range []struct {
		name, template string
		want           []string
	}{
		{"containerd", containerdTemplate, []string{
			`snapshotter = "overlayfs"`, `sandbox = "keelson.dev/pause:1"`, `restrict_oom_score_adj = true`,
			`BinaryName = "/usr/local/\"odd\"/runc"`, `bin_dirs = ["/run/keelson/programs"]`,
			`config_path = "/run/keelson/node/registries"`,
		}},
		{"kubelet", kubeletTemplate, []string{
			"address: 10.100.255.2\n", "cgroupRoot: /keelson-0badcafe\n", "failCgroupV1: false\n",
			"clientCAFile: /run/keelson/node/credentials/ca.crt", "clusterDNS: [\"10.100.255.2\"]\n", "clusterDomain: cluster.local\n",
			"podPidsLimit: 4096\n",
		}},
		{"kube-proxy", kubeProxyTemplate, []string{
			"mode: nftables\n", "clusterCIDR: 10.100.0.0/17\n", "kubeconfig: /run/keelson/node/credentials/kube-proxy.kubeconfig",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := fill(test.template, testFacts())
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range test.want {
				if !strings.Contains(got, part) {
					t.Errorf("%q is missing in\n%s", part, got)
				}
			}
		})
	}
}

// What loads images unpacks them where there is overlayfs.
func TestOnlyOneSnapshotterIsEnabled(t *testing.T) {
	for snapshotter, disabled := range map[string]bool{"overlayfs": false, "native": true} {
		f := testFacts()
		f.Snapshotter = snapshotter
		got, err := fill(containerdTemplate, f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(got, `"io.containerd.snapshotter.v1.overlayfs"]`) != disabled {
			t.Errorf("with %s, overlayfs is to be disabled: %t; got %s", snapshotter, disabled, got)
		}
	}
}

func TestKubeletWithoutRoot(t *testing.T) {
	const gate = "\nfeatureGates: {KubeletInUserNamespace: true}\n"
	f := testFacts()
	root, err := fill(kubeletTemplate, f)
	if err != nil {
		t.Fatal(err)
	}
	f.Rootless = &settings.Rootless{}
	rootless, err := fill(kubeletTemplate, f)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(root, gate) || strings.Replace(rootless, gate, "\n", 1) != root {
		t.Errorf("as root:\n%s\nwithout root:\n%s", root, rootless)
	}
}

func TestCNIConfig(t *testing.T) {
	data, err := cniConfig(testFacts().Settings)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Plugins []struct {
			Type string
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Plugins) != 2 || got.Plugins[0].Type != "ptp" || got.Plugins[1].Type != "portmap" ||
		got.Plugins[0].IPAM.Ranges[0][0].Subnet != "10.100.0.0/22" {
		t.Errorf("got %s", data)
	}
}

func TestConfigWithIPv6(t *testing.T) {
	f := testFacts()
	f.IPv6 = true
	data, err := cniConfig(f.Settings)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := fill(kubeProxyTemplate, f)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data) + proxy + strings.Join(kubelet(f).args, "\n")
	for _, want := range []string{
		`"type": "no-dad"`, `"subnet": "10.100.0.0/22"`, `"subnet": "fd6b:656c:a64::/54"`, `"dst": "fd6b:656c:a64::/48"`, `"dst": "fd6b:656c:a60::/112"`,
		"clusterCIDR: 10.100.0.0/17,fd6b:656c:a64::/49\n", "--node-ip=10.100.255.2,fd6b:656c:a64:ff02::",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}

// Each of several nodes reports its share of the machine, so that the scheduler does not assign the machine several times.
func TestNodesShareTheMachine(t *testing.T) {
	f := testFacts()
	alone, err := fill(kubeletTemplate, f)
	if err != nil {
		t.Fatal(err)
	}
	f.Reserved = reserveOf(3, 2, 24000)
	one, err := fill(kubeletTemplate, f)
	if err != nil {
		t.Fatal(err)
	}
	const line = "systemReserved: {cpu: 1333m, memory: 16000Mi}\n"
	if strings.Replace(one, line, "", 1) != alone || !strings.Contains(one, "\n"+line) {
		t.Errorf("alone:\n%s\none of three:\n%s", alone, one)
	}
	if got := reserveOf(0, 2, 24000); got != (reserved{}) {
		t.Errorf("alone: %+v", got)
	}
}

// In root's home is what other programs, such as Docker, keep for themselves.
func TestComponentsHaveNoHome(t *testing.T) {
	for _, c := range []component{containerd(), kubelet(testFacts()), kubeProxy()} {
		if !slices.Contains(c.env, "HOME="+home) {
			t.Errorf("%s has %q", c.name, c.env)
		}
	}
}

// Outside of namespaces of its own it would change the machine.
func TestRunNeedsNamespaces(t *testing.T) {
	if os.Getpid() == 1 {
		t.Skip("this test is the first process of its container")
	}
	if err := Run("testdata/none.json"); err == nil || !strings.Contains(err.Error(), "keelson-node run") {
		t.Errorf("got %v", err)
	}
}
