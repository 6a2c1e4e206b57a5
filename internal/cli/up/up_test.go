package up

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/node"
)

func TestInvalidFlags(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"a negative number of nodes", []string{"--nodes=-1"}, "--nodes=-1: must be from 0 to 1000"},
		{"too many nodes", []string{"--nodes=1001"}, "--nodes=1001: must be from 0 to 1000"},
		{"an unknown kind of node", []string{"--node=virtual"}, "--node=virtual: must be auto, real or simulated"},
		{"no real node", []string{"--node=real", "--nodes=0"}, "--nodes=0: must be from 1 to 32 with --node=real"},
		{"too many real nodes", []string{"--node=real", "--nodes=33"}, "--nodes=33: must be from 1 to 32 with --node=real"},
		{"no workers", []string{"--threads=0"}, "--threads=0: must be 1 or more"},
		{"no controllers", []string{"--controllers="}, "--controllers=: selects nothing; there are " + strings.Join(manager.Names(), ", ")},
		{"all controllers disabled", []string{"--controllers=*,-" + strings.Join(manager.Names(), ",-")}, "--controllers=*,-" + strings.Join(manager.Names(), ",-") + ": selects nothing; there are " + strings.Join(manager.Names(), ", ")},
		{"a log level that there is not", []string{"-v11"}, "--v=11: must be from 0 to 10"},
		{"a configuration that there is not", []string{"--config=/nowhere"}, "--config: open /nowhere: no such file or directory"},
		{"an invalid metrics address", []string{"--metrics-bind-address=here"}, "--metrics-bind-address=here: must be host:port, or 0 for off"},
		{"controllers with --no-controllers", []string{"--no-controllers", "--controllers=foo"}, "--controllers configures controllers and cannot be combined with --no-controllers"},
		{"an impossible port of the console", []string{"--console-port=65536"}, "--console-port=65536: must be from -1 to 65535"},
		{"an unexpected argument", []string{"name"}, `up takes no argument, but was given "name"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := New()
			cmd.SetArgs(test.args)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetOut(io.Discard)
			err := cmd.ExecuteContext(t.Context())
			if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestAutomaticNode(t *testing.T) {
	for _, test := range []struct {
		name   string
		given  map[string]string
		report controlplane.Report
		want   node.Mode
	}{
		{"nothing was asked for", nil, controlplane.Report{}, node.Auto},
		{"a number of nodes", map[string]string{"nodes": "3"}, controlplane.Report{}, node.Simulated},
		{"auto, with a number of nodes in case they are simulated", map[string]string{"node": "auto", "nodes": "3"}, controlplane.Report{}, node.Auto},
		{"a real node survived", nil, controlplane.Report{RealNodes: 3}, node.Real},
		{"simulated nodes survived", nil, controlplane.Report{SimulatedNodes: true}, node.Simulated},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &options{given: test.given}
			if got := o.automatic(test.report); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestMachinesInPodsNeedRealNodes(t *testing.T) {
	o := &options{manager: manager.Options{Machines: manager.Machines{Drivers: []string{"qemu", "pod"}}}}
	if err := o.checkDrivers(); err == nil || !strings.Contains(err.Error(), "--node=real") {
		t.Errorf("with simulated nodes: %v", err)
	}
	o.machine = &node.Machine{}
	if err := o.checkDrivers(); err == nil || !strings.Contains(err.Error(), "make launcher") { // it is not beside the program of the test
		t.Errorf("without the files of the image: %v", err)
	}
	o.manager.Machines.LauncherImage, o.manager.Machines.GuestDir = "example.com/launcher:v1", t.TempDir()
	if err := o.checkDrivers(); err != nil {
		t.Errorf("with a real node: %v", err)
	}
	images, err := o.nodeImages()
	if err != nil || len(images) != 1 || images[0].Name != o.manager.Machines.GuestImage || o.manager.Machines.LauncherImage != "example.com/launcher:v1" {
		t.Errorf("the nodes get %v, %v; the machines %s and %s", images, err, o.manager.Machines.LauncherImage, o.manager.Machines.GuestImage)
	}
}

func TestWelcome(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("TMPDIR", "/tmp/x")
	t.Setenv("PATH", "/nowhere")
	const standard = "/home/me/.local/share/keelson"
	for _, test := range []struct {
		name   string
		change func(*options)
		dir    string
		want   string
	}{
		{
			"in the foreground",
			func(*options) {},
			standard,
			`
Keelson is ready after 1.5 s: a Kubernetes API at https://127.0.0.1:20000 with the controllers ` + strings.Join(manager.Names(), ", ") + `.
Its nodes are simulated: Pods report that they run, but nothing is executed.

  export KUBECONFIG=/home/me/.local/share/keelson/kubeconfig
  kubectl get foos

` + "`keelson console` shows all objects in a browser." + `
Ctrl-C stops it. All objects are kept for the next ` + "`keelson up`" + `.
`,
		},
		{
			"in the background, elsewhere, with one controller and no nodes",
			func(o *options) { o.reportFD, o.nodes, o.manager.Controllers = 3, 0, []string{"foo"} },
			"/my data",
			`
Keelson is ready after 1.5 s: a Kubernetes API at https://127.0.0.1:20000 with the controllers foo.

  export KUBECONFIG='/my data/kubeconfig'
  kubectl get foos

` + "`keelson console --data-dir '/my data'` shows all objects in a browser.\n`keelson down --data-dir '/my data'` stops it. All objects are kept for the next `keelson up --data-dir '/my data'`.\n",
		},
		{
			"with a real node",
			func(o *options) { o.nodes, o.machine = 0, &node.Machine{Runtime: "/usr/sbin/runc"} },
			standard,
			`
Keelson is ready after 1.5 s: a Kubernetes API at https://127.0.0.1:20000 with the controllers ` + strings.Join(manager.Names(), ", ") + `.
Its node is this host: Pods run with /usr/sbin/runc.

  export KUBECONFIG=/home/me/.local/share/keelson/kubeconfig
  kubectl get foos

` + "`keelson console` shows all objects in a browser." + `
Ctrl-C stops it. All objects are kept for the next ` + "`keelson up`" + `.
`,
		},
		{
			"where a real node was not possible",
			func(o *options) { o.noNode = "A real node is not possible here; missing: root." },
			standard,
			`
Keelson is ready after 1.5 s: a Kubernetes API at https://127.0.0.1:20000 with the controllers ` + strings.Join(manager.Names(), ", ") + `.
Its nodes are simulated: Pods report that they run, but nothing is executed.
A real node is not possible here; missing: root.

  export KUBECONFIG=/home/me/.local/share/keelson/kubeconfig
  kubectl get foos

` + "`keelson console` shows all objects in a browser." + `
Ctrl-C stops it. All objects are kept for the next ` + "`keelson up`" + `.
`,
		},
		{
			"without controllers",
			func(o *options) { o.noControllers = true },
			standard,
			`
Keelson is ready after 1.5 s: a Kubernetes API at https://127.0.0.1:20000 without controllers.
Its nodes are simulated: Pods report that they run, but nothing is executed.

  export KUBECONFIG=/home/me/.local/share/keelson/kubeconfig
  kubectl get nodes

` + "`keelson console` shows all objects in a browser." + `
Ctrl-C stops it. All objects are kept for the next ` + "`keelson up`" + `.
`,
		},
		{
			"ephemeral, with a context for the user",
			func(o *options) { o.reportFD, o.mergeKubeconfig, o.instance.Ephemeral = 3, true, true },
			"/there",
			`
Keelson is ready after 1.5 s: a Kubernetes API at https://127.0.0.1:20000 with the controllers ` + strings.Join(manager.Names(), ", ") + `.
Its nodes are simulated: Pods report that they run, but nothing is executed.

  kubectl --context keelson get foos

` + "`keelson console --data-dir /there` shows all objects in a browser.\n`keelson down --data-dir /there` stops it. Nothing is kept.\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &options{nodes: 1, manager: manager.Options{Controllers: []string{"*"}}}
			test.change(o)
			got := o.welcome("https://127.0.0.1:20000", filepath.Join(test.dir, "kubeconfig"), test.dir, 1500*time.Millisecond)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestCheckMetricsAddress(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := (&options{manager: manager.Options{MetricsAddress: address}}).checkAddresses(); err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Errorf("an address in use: %v", err)
	}
	for _, o := range []options{{manager: manager.Options{MetricsAddress: "0"}}, {manager: manager.Options{MetricsAddress: address}, noControllers: true}} {
		if err := o.checkAddresses(); err != nil {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (&options{manager: manager.Options{MetricsAddress: address}}).checkAddresses(); err != nil {
		t.Errorf("a free address: %v", err)
	}
}

func TestFewFlags(t *testing.T) {
	count := 0
	New().Flags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden {
			count++
		}
	})
	if count > 20 {
		t.Errorf("keelson up has %d flags: an option that few users set belongs in the configuration", count)
	}
}
