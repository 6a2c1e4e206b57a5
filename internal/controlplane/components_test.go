package controlplane

import (
	"bytes"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/pki"
)

var update = flag.Bool("update", false, "write the golden files anew")

// allComponents are those of one control plane.
func allComponents(opts Options) []*component {
	cp := &ControlPlane{opts: opts, dir: "/data", state: state{Port: 20001}}
	return []*component{cp.etcd(), cp.apiserver(), cp.controllerManager(), cp.scheduler(), cp.kwok()}
}

// TestCommandLines shows every flag of every component. A change here is a change of what users run: look at it.
func TestCommandLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		opts Options
	}{
		{name: "durable", opts: Options{Nodes: 2}},
		{name: "ephemeral", opts: Options{Nodes: 2, Ephemeral: true}},
	} {
		var got bytes.Buffer
		for _, c := range allComponents(tt.opts) {
			fmt.Fprintf(&got, "%s\n", c.name)
			for _, arg := range slices.Concat(c.args(), c.later) {
				fmt.Fprintf(&got, "    %s\n", arg)
			}
		}
		golden := filepath.Join("testdata", "commands-"+tt.name+".txt")
		if *update {
			if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (-want +got; go test -update accepts it):\n%s", golden, diff)
		}
	}
}

// Arguments are seen by every user of the machine, and what listens by everybody who reaches it.
func TestCommandLinesAreSafe(t *testing.T) {
	t.Parallel()
	address := regexp.MustCompile(`\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]*\]`)
	for _, c := range allComponents(Options{Nodes: 2}) {
		for _, arg := range slices.Concat(c.args(), c.later) {
			flag, value, _ := strings.Cut(arg, "=")
			if strings.Contains(flag, "token") || strings.Contains(flag, "password") || strings.Contains(value, "BEGIN ") {
				t.Errorf("%s: %s may hold a secret", c.name, arg)
			}
			if strings.HasSuffix(flag, "-range") || flag == "--cidr" {
				continue // networks that exist in objects only
			}
			for _, ip := range address.FindAllString(value, -1) {
				if ip != "127.0.0.1" {
					t.Errorf("%s: %s names another address than loopback", c.name, arg)
				}
			}
			if strings.Contains(flag, "listen") && !strings.HasPrefix(value, "unix://") {
				t.Errorf("%s: %s is no unix socket", c.name, arg)
			}
		}
	}
}

func TestCommandHash(t *testing.T) {
	t.Parallel()
	dir := newLayout(t)
	input := dir.path("input")
	base := func() (*ControlPlane, *component) {
		return &ControlPlane{opts: Options{Binary: "binary"}, dir: dir},
			&component{name: "a", args: func() []string { return []string{"--x=1", "--y"} }, inputs: []string{input}}
	}
	hash := func(content string, change func(*ControlPlane, *component)) string {
		cp, c := base()
		change(cp, c)
		if err := atomicfile.Write(input, []byte(content), atomicfile.Volatile); err != nil {
			t.Fatal(err)
		}
		sum, err := cp.commandHash(c)
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	nothing := func(*ControlPlane, *component) {}
	want := hash("key", nothing)
	for _, tt := range []struct {
		name     string
		content  string
		change   func(*ControlPlane, *component)
		wantSame bool
	}{
		{name: "nothing", content: "key", change: nothing, wantSame: true},
		{name: "another key", content: "other", change: nothing},
		{name: "another binary", content: "key", change: func(cp *ControlPlane, _ *component) { cp.opts.Binary = "other" }},
		{name: "another flag", content: "key", change: func(_ *ControlPlane, c *component) {
			c.args = func() []string { return []string{"--x=1", "--z"} }
		}},
		{name: "flags cut elsewhere", content: "key", change: func(_ *ControlPlane, c *component) {
			c.args = func() []string { return []string{"--x=1 --y"} }
		}},
	} {
		if got := hash(tt.content, tt.change); (got == want) != tt.wantSame {
			t.Errorf("%s: hash %s, before %s; want the same: %t", tt.name, got, want, tt.wantSame)
		}
	}
	if err := os.Remove(input); err != nil {
		t.Fatal(err)
	}
	cp, c := base()
	if _, err := cp.commandHash(c); err == nil || !strings.Contains(err.Error(), "a needs this file") {
		t.Errorf("a file that is missing: %v", err)
	}
}

func TestComponentEnv(t *testing.T) {
	t.Parallel()
	got := componentEnv([]string{
		"PATH=/bin", "HOME=/root", "TZ=Europe/Berlin", "TMPDIR=/tmp", "ETCD_NAME=x", "KWOK_WORKDIR=/x",
		"AWS_SECRET_ACCESS_KEY=secret", "KUBECONFIG=/x", "PATHS=x",
	})
	want := []string{"PATH=/bin", "HOME=/root", "TZ=Europe/Berlin", "TMPDIR=/tmp"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
}

func TestServices(t *testing.T) {
	for _, test := range []struct {
		name, kept, network, address string
	}{
		{"the usual network", "", "10.96.0.0/16", "10.96.0.1"},
		{"another one, which was free", "10.77.0.0/16", "10.77.0.0/16", "10.77.0.1"},
		{"with IPv6", "10.77.0.0/16,fd6b:656c:a4d::/112", "10.77.0.0/16,fd6b:656c:a4d::/112", "10.77.0.1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cp := &ControlPlane{dir: newLayout(t), state: state{Services: test.kept}}
			flag := "--service-cluster-ip-range=" + test.network
			for _, args := range [][]string{cp.apiserverArgs(), cp.controllerManager().args()} {
				if !slices.Contains(args, flag) {
					t.Errorf("%s is not in %q", flag, args)
				}
			}
			all := cp.certificates()
			api := all[slices.IndexFunc(all, func(c pki.Certificate) bool { return c.Name == nameAPIServerCert })]
			if !slices.Contains(api.Names, test.address) {
				t.Errorf("the certificate of the API is for %v", api.Names)
			}
		})
	}
}

// testClaims are claims that no real node meets.
func testClaims(t *testing.T) node.Claims {
	return node.Claims{Scope: fmt.Sprintf("%d/%s/", os.Getpid(), t.Name())}
}

// Until nodes that are started at the same time have routes, nothing but their claims tells which networks they will use.
func TestFirstStartsAtOnce(t *testing.T) {
	const count = 8
	planes, errs := make([]*ControlPlane, count), make(chan error, count)
	for i := range planes {
		cp := &ControlPlane{dir: newLayout(t), opts: Options{RealNode: &node.Machine{}}, claims: testClaims(t)}
		defer cp.claims.Release()
		planes[i] = cp
		go func() { errs <- cp.prepareState() }()
	}
	for range planes {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	seen := map[netip.Prefix]bool{}
	for _, cp := range planes {
		for _, network := range []netip.Prefix{cp.services(), cp.nodes[0].Network} {
			if seen[network] {
				t.Errorf("two have chosen %s", network)
			}
			seen[network] = true
		}
		if cp.nodes[0].Services != cp.services() {
			t.Errorf("the node has the Services %s, the control plane %s", cp.nodes[0].Services, cp.services())
		}
	}
}

// Services keep their addresses: their network is not chosen again where there may be some.
func TestServicesAreChosenOnce(t *testing.T) {
	for _, test := range []struct {
		name   string
		real   *node.Machine
		own    bool
		state  state
		folder string
		chosen bool
	}{
		{"the first start, with a real node", &node.Machine{}, false, state{}, "", true},
		{"the first start, with a real node and IPv6", &node.Machine{IPv6: true}, false, state{}, "", true},
		{"simulated nodes", nil, false, state{}, "", false},
		{"simulated, perhaps real later", nil, true, state{}, "", true},
		{"it was chosen before", &node.Machine{IPv6: true}, true, state{Services: "10.77.0.0/16"}, "", false},
		{"it had simulated nodes before", &node.Machine{IPv6: true}, false, state{}, "etcd/member", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			cp := &ControlPlane{dir: newLayout(t), state: test.state, opts: Options{RealNode: test.real, OwnServices: test.own}, claims: testClaims(t)}
			defer cp.claims.Release()
			if err := os.MkdirAll(cp.dir.path(test.folder), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := cp.chooseServices(); err != nil {
				t.Fatal(err)
			}
			if chosen := cp.state.Services != test.state.Services; chosen != test.chosen {
				t.Errorf("the network is %q, and was %q", cp.state.Services, test.state.Services)
			}
			if want := test.chosen && test.real != nil && test.real.IPv6; strings.Contains(cp.state.Services, ",") != want {
				t.Errorf("the networks are %q, but IPv6 is %t", cp.state.Services, want)
			}
		})
	}
}

// Two clusters with the same network of Services cannot have real nodes at the same time: the host would reach only those of one.
func TestServicesOfAnother(t *testing.T) {
	claims := testClaims(t)
	planes := []*ControlPlane{}
	for range 2 {
		cp := &ControlPlane{dir: newLayout(t), opts: Options{RealNode: &node.Machine{}, RealNodes: 1, OwnServices: true}, claims: claims}
		cp.state.Services = "10.255.0.0/16"
		defer cp.claims.Release()
		planes = append(planes, cp)
	}
	if err := planes[0].prepareNodes(); err != nil {
		t.Fatal(err)
	}
	if err := planes[1].prepareNodes(); err == nil || !strings.Contains(err.Error(), "10.255.0.0/16") || !strings.Contains(err.Error(), "stop that cluster") {
		t.Errorf("the second one: %v", err)
	}
	planes[0].claims.Release()
	if err := planes[1].prepareNodes(); err != nil {
		t.Errorf("after the first one: %v", err)
	}
}

func TestRestartPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		opts    Options
		longest time.Duration
	}{
		{"up to ten seconds", Options{}, 10 * time.Second},
		{"up to what was asked for", Options{RestartPause: time.Second}, time.Second},
		{"no longer than that from the first on", Options{RestartPause: 50 * time.Millisecond}, 50 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			backoff, longest := tt.opts.newBackoff(), time.Duration(0)
			backoff.Jitter = 0
			for range 20 {
				longest = max(longest, backoff.Step())
			}
			if longest != tt.longest {
				t.Errorf("the longest pause is %v, want %v", longest, tt.longest)
			}
		})
	}
}

func TestImageName(t *testing.T) {
	pattern := regexp.MustCompile(imageName)
	for name, want := range map[string]bool{
		"nginx": true, "nginx:latest": true, "library/nginx:1.2": true, "example.com/a": true, "localhost:5000/a/b:v1": true,
		"REGISTRY.example.com/a": true, "a__b/c--d": true, "a@sha256:" + strings.Repeat("0a", 32): true, "a:v1@sha256:" + strings.Repeat("0a", 32): true,
		"not an image!": false, "": false, "Nginx": false, "a/B": false, "a:": false, "a//b": false, "a@sha256:0a": false, "http://a/b": false, "a:v1+b": false,
	} {
		if got := pattern.MatchString(name); got != want {
			t.Errorf("%q: got %t", name, got)
		}
	}
}

func TestStagesOfAnotherKwok(t *testing.T) {
	if got, err := adaptStages([]byte("kind: Stage\n")); err == nil {
		t.Errorf("no error, but\n%s", got)
	}
}
