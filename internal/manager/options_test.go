package manager

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/manager/election"
	"github.com/keelson-dev/keelson/internal/manager/serving"
)

var twoControllers = []Controller{{Name: "foo"}, {Name: "sampleresource"}}

// noLogger leaves out what no flag sets.
var noLogger = cmpopts.IgnoreFields(Options{}, "Logger", "OnReady", "inPod", "usesHome", "closers", "drivers", "hasClusters")

func TestFlagsMakeOptions(t *testing.T) {
	parse := func(args ...string) Options {
		t.Helper()
		o := NewOptions()
		fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse(args); err != nil {
			t.Fatalf("parse %q: %v", args, err)
		}
		return o
	}
	if diff := cmp.Diff(NewOptions(), parse(), noLogger); diff != "" {
		t.Errorf("without flags (-want +got):\n%s", diff)
	}
	want := NewOptions()
	want.Kubeconfig, want.Context, want.Threads, want.Controllers, want.Namespaces = "k", "c", 3, []string{"*", "-foo"}, []string{"a", "b"}
	want.LeaderElection = election.Options{
		Enabled: ptr.To(true), LockName: "n", LockNamespace: "ns", Identity: "me",
		LeaseDuration: 3 * time.Second, RenewDeadline: 2 * time.Second, RetryPeriod: time.Second,
	}
	want.Machines.Drivers, want.Machines.LauncherImage, want.Machines.GuestImage = []string{"fake", "qemu"}, "l", "g"
	want.Machines.DockerHost, want.Machines.ImageDirs = "tcp://d:2376", confine.Dirs{"/i", "/j"}
	want.Webhook = Webhook{
		Address: ":9443", ServiceName: "s", ServiceNamespace: "sns", ConfigurationName: "conf", CertDir: "/certs",
		Times: admission.DefaultTimes(),
	}
	want.Access = Access{Address: ":9444", ServiceName: "as", Times: admission.DefaultTimes()}
	want.HealthAddress, want.MetricsAddress, want.Serving = "0", "127.0.0.1:0", serving.Options{Secure: ptr.To(true), CertDir: "/c"}
	want.StateDir, want.RKEBinary, want.SecretNamespace, want.Logging = "/state", "/rke", "secrets", Logging{Format: "json", Verbosity: 4}
	got := parse("--kubeconfig=k", "--context=c", "--threads=3", "--controllers=*,-foo", "--namespaces=a,b",
		"--leader-elect", "--lease-lock-name=n", "--lease-lock-namespace=ns", "--holder-identity=me",
		"--lease-duration=3s", "--renew-deadline=2s", "--retry-period=1s", "--health-probe-bind-address=0",
		"--vm-driver=fake,qemu", "--vm-launcher-image=l", "--vm-guest-image=g", "--vm-docker-host=tcp://d:2376",
		"--webhook-bind-address=:9443", "--webhook-service=s", "--webhook-service-namespace=sns", "--webhook-configuration=conf",
		"--webhook-cert-dir=/certs", "--access-bind-address=:9444", "--access-service=as",
		"--vm-image-dirs=/i,/j",
		"--metrics-bind-address=127.0.0.1:0", "--metrics-secure", "--metrics-cert-dir=/c", "--state-dir=/state",
		"--rke-binary=/rke", "--secret-namespace=secrets", "--logging-format=json", "-v4")
	if diff := cmp.Diff(want, got, noLogger); diff != "" {
		t.Errorf("with every flag (-want +got):\n%s", diff)
	}
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o := NewOptions()
	o.AddFlags(fs)
	count := 1 // --version
	fs.VisitAll(func(*pflag.Flag) { count++ })
	if count > 35 {
		t.Errorf("keelson manager has %d flags: an option that few users set belongs in the configuration", count)
	}
	if off := parse("--leader-elect=false").LeaderElection.Enabled; off == nil || *off {
		t.Errorf("--leader-elect=false: got %v, want false", off)
	}
}

func TestComplete(t *testing.T) {
	tests := []struct {
		name          string
		kubeconfig    string
		variable      string
		podNamespace  string
		given         election.Options
		wantElection  bool
		wantNamespace string
	}{
		{name: "on a workstation", wantNamespace: "keelson-system"},
		{name: "in a pod", podNamespace: "keelson", wantElection: true, wantNamespace: "keelson"},
		{name: "in a pod, for another cluster", podNamespace: "keelson", kubeconfig: "k", wantNamespace: "keelson"},
		{name: "in a pod, for another cluster by variable", podNamespace: "keelson", variable: "k", wantNamespace: "keelson"},
		{
			name: "flags win in a pod", podNamespace: "keelson",
			given: election.Options{Enabled: ptr.To(false), LockNamespace: "other"}, wantNamespace: "other",
		},
		{
			name: "flags win on a workstation", given: election.Options{Enabled: ptr.To(true), LockNamespace: "other"},
			wantElection: true, wantNamespace: "other",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", tt.variable)
			o := Options{Kubeconfig: tt.kubeconfig, LeaderElection: tt.given}
			if err := o.complete(tt.podNamespace); err != nil {
				t.Fatalf("complete: %v", err)
			}
			if got := *o.LeaderElection.Enabled; got != tt.wantElection {
				t.Errorf("leader election: got %t, want %t", got, tt.wantElection)
			}
			if got := o.LeaderElection.LockNamespace; got != tt.wantNamespace {
				t.Errorf("namespace of the lease: got %q, want %q", got, tt.wantNamespace)
			}
			if tt.given.LockNamespace == "" && (o.SecretNamespace != tt.wantNamespace || o.Webhook.ServiceNamespace != tt.wantNamespace || o.Access.ServiceNamespace != tt.wantNamespace) {
				t.Errorf("namespaces of Secrets: got %q and %q, want %q", o.SecretNamespace, o.Webhook.ServiceNamespace, tt.wantNamespace)
			}
			if want := tt.podNamespace == ""; o.usesHome != want {
				t.Errorf("it uses keelson-system because nothing names another namespace: %t, want %t", o.usesHome, want)
			}
			other := Options{}
			if err := other.complete(""); err != nil {
				t.Fatalf("complete: %v", err)
			}
			if o.LeaderElection.Identity == other.LeaderElection.Identity {
				t.Errorf("two replicas have the identity %q", o.LeaderElection.Identity)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	tests := []struct {
		name   string
		change func(*Options)
		want   []string // the beginning of each line of the error
	}{
		{name: "the defaults", change: func(*Options) {}},
		{name: "everything off", change: func(o *Options) { o.HealthAddress, o.MetricsAddress = Off, "" }},
		{name: "two free ports", change: func(o *Options) { o.HealthAddress, o.MetricsAddress = "[::1]:0", "[::1]:0" }},
		{name: "no driver", change: func(o *Options) { o.Machines.Drivers = nil }, want: []string{"--vm-driver=: must name a driver"}},
		{name: "no resource of a device plugin", change: func(o *Options) { o.Machines.KVMResource = "kvm" }, want: []string{"virtualMachines.kvmResource: kvm: must be the resource of a device plugin, such as devices.kubevirt.io/kvm"}},
		{name: "no ratio", change: func(o *Options) { o.Machines.CPUAllocationRatio = 0 }, want: []string{"virtualMachines.cpuAllocationRatio: 0: must be at least 1"}},
		{name: "no group", change: func(o *Options) { o.Machines.KVMGroup = -1 }, want: []string{"virtualMachines.kvmGroup: -1: must be the ID of a group, from 0 to 2147483647"}},
		{name: "an unknown way to start", change: func(o *Options) { o.Machines.InstantStart = "yes" }, want: []string{"virtualMachines.instantStart: yes: must be auto, true or false"}},
		{name: "an accelerator that there is not", change: func(o *Options) { o.Machines.Accelerator = "hvf" }, want: []string{"virtualMachines.accelerator: hvf: must be auto, kvm or tcg"}},
		{name: "a driver twice", change: func(o *Options) { o.Machines.Drivers = []string{"a", "a"} }, want: []string{"--vm-driver=a,a: must name drivers, each once"}},
		{name: "no worker", change: func(o *Options) { o.Threads = 0 }, want: []string{"--threads=0: must be 1 or more"}},
		{
			name: "unknown controller", change: func(o *Options) { o.Controllers = []string{"bar"} },
			want: []string{`--controllers=bar: there is no controller "bar"; there are foo, sampleresource`},
		},
		{
			name: "namespaces", change: func(o *Options) { o.Namespaces = []string{"a", "B", "a"} },
			want: []string{`--namespaces=a,B,a: "B" is not a valid namespace: `, `--namespaces=a,B,a: "a" is duplicated`},
		},
		{
			name: "addresses", change: func(o *Options) { o.HealthAddress, o.MetricsAddress = "8081", "127.0.0.1:x" },
			want: []string{
				"--health-probe-bind-address=8081: must be host:port, or 0 for off",
				`--metrics-bind-address=127.0.0.1:x: "x" is not a port`,
			},
		},
		{
			name: "one port for both", change: func(o *Options) { o.HealthAddress = o.MetricsAddress },
			want: []string{"--metrics-bind-address=127.0.0.1:8080: is also the address of --health-probe-bind-address"},
		},
		{
			name: "directories, networks and images that are none", change: func(o *Options) {
				o.RKEConfigDirs, o.Machines.ImageDirs, o.Machines.ImageNetworks = confine.Dirs{"etc"}, confine.Dirs{"/a", "../b"}, []string{"10.0.0.1"}
				o.PingNetworks, o.ClusterHostedImages = []string{"localhost"}, map[string]string{"1.36": "keelson-kube", "v1.36.3": ""}
			},
			want: []string{
				"clusters.hostedImages: 1.36: keelson-kube: must be a version, such as v1.36.3, and an image", "clusters.hostedImages: v1.36.3: : must be",
				`clusters.rkeConfigDirs: etc: "etc" is no absolute path`, `crontabs.pingNetworks: localhost: "localhost" is not a network such as`, `virtualMachines.imageDirs: /a,../b: "../b" is no absolute path`,
				`virtualMachines.imageNetworks: 10.0.0.1: "10.0.0.1" is not a network such as`,
			},
		},
		{
			name: "networks of machines that are none", change: func(o *Options) {
				m := &o.Machines
				m.Egress, m.EgressNetworks, m.NetworkRange, m.PublishAddress = "none", []string{"10.0.0.0/8"}, []string{"127.0.0.0/8"}, "0.0.0.0"
			},
			want: []string{
				"virtualMachines.egressNetworks: 10.0.0.0/8: cannot be combined with egress: none", "virtualMachines.networkRange: 127.0.0.0/8: 127.0.0.0/8 is not a network for machines",
				"virtualMachines.publishAddress: 0.0.0.0: must be an address of this host",
			},
		},
		{
			name: "a way out that there is not", change: func(o *Options) { o.Machines.Egress = "all" }, want: []string{"virtualMachines.egress: all: must be public or none"},
		},
		{
			name: "users of machines that are none", change: func(o *Options) { o.Machines.Users = "0-100" },
			want: []string{"virtualMachines.uidRange: 0-100: must begin at 1000 or above"},
		},
		{
			name: "images of no size", change: func(o *Options) { o.Machines.MaxImageSize = resource.MustParse("0") },
			want: []string{"virtualMachines.imageMaxSize: 0: must be more than 0"},
		},
		{
			name: "disks of no size", change: func(o *Options) { o.Machines.MaxRootDisk = resource.MustParse("0") },
			want: []string{"virtualMachines.maxRootDisk: 0: must be more than 0"},
		},
		{
			name: "less than no saved memory", change: func(o *Options) { o.Machines.MaxSaved = resource.MustParse("-1") },
			want: []string{"virtualMachines.stateMax: -1: must not be negative"},
		},
		{
			name: "images in no time", change: func(o *Options) { o.Machines.ImageTimeout = 0 },
			want: []string{"virtualMachines.imageTimeout: 0s: must be more than 0"},
		},
		{
			name: "images kept for less than nothing", change: func(o *Options) { o.Machines.ImageKeep = -1 },
			want: []string{"virtualMachines.imageKeep: -1ns: must not be negative"},
		},
		{name: "no directories and any network", change: func(o *Options) { o.RKEConfigDirs = nil; o.Machines.TrustUsers() }},
		{
			name: "a collector of traces that is no URL", change: func(o *Options) { o.TracingEndpoint = "localhost:4317" },
			want: []string{"tracing.endpoint: localhost:4317: must be a URL"},
		},
		{name: "metrics for everybody, who asks for it", change: func(o *Options) { o.MetricsAddress, o.Serving.Secure = ":9", ptr.To(false) }},
		{name: "profiles on loopback", change: func(o *Options) { o.MetricsAddress, o.Serving.Profiling = "[::1]:9", true }},
		{name: "profiles behind the same door as metrics", change: func(o *Options) { o.MetricsAddress, o.Serving.Profiling = ":9", true }},
		{
			name: "profiles for everybody", change: func(o *Options) {
				o.MetricsAddress, o.Serving = ":9", serving.Options{Secure: ptr.To(false), Profiling: true}
			},
			want: []string{"metrics.profiling: true: anybody could read the memory of the manager"},
		},
		{
			name: "profiles without an address", change: func(o *Options) { o.MetricsAddress, o.Serving.Profiling = Off, true },
			want: []string{"metrics.profiling: true: needs --metrics-bind-address"},
		},
		{
			name: "a certificate for plain HTTP", change: func(o *Options) { o.Serving.CertDir = "/c" },
			want: []string{"metrics.certDir: /c: needs metrics.secure: true"},
		},
		{
			name: "a lease that ends before it is renewed",
			change: func(o *Options) {
				o.LeaderElection.LeaseDuration, o.LeaderElection.RenewDeadline = 5*time.Second, 5*time.Second
				o.LeaderElection.RetryPeriod = 5 * time.Second
			},
			want: []string{
				"--lease-duration=5s: must be more than --renew-deadline=5s",
				"--renew-deadline=5s: must be more than 1.2 times --retry-period=5s",
			},
		},
		{
			name: "names of the lease",
			change: func(o *Options) {
				o.LeaderElection.LockName, o.LeaderElection.LockNamespace = "Keelson", "a.b"
			},
			want: []string{
				"--lease-lock-name=Keelson: is not a valid name of a Lease: ",
				"--lease-lock-namespace=a.b: is not a valid namespace: ",
			},
		},
		{
			name: "times that cannot be",
			change: func(o *Options) {
				o.PreflightTimeout = -time.Second
				o.LeaderElection.LeaseDuration = 500 * time.Millisecond
				o.LeaderElection.RenewDeadline, o.LeaderElection.RetryPeriod = 400*time.Millisecond, 0
			},
			want: []string{
				"--lease-duration=500ms: must be 1s or more",
				"--retry-period=0s: must be more than 0",
				"preflight.timeout: -1s: must not be negative",
			},
		},
		{
			name: "the webhook",
			change: func(o *Options) {
				o.Webhook.Address, o.Webhook.ServiceName, o.Webhook.ServiceNamespace, o.Webhook.ConfigurationName = "9443", "A", "a.b", "_"
			},
			want: []string{
				"--webhook-bind-address=9443: must be host:port, or 0 for off",
				"--webhook-configuration=_: is not a valid name of a ValidatingWebhookConfiguration: ",
				"--webhook-service-namespace=a.b: is not a valid namespace: ",
				"--webhook-service=A: is not a valid name of a Service: ",
			},
		},
		{
			name: "the access API",
			change: func(o *Options) {
				o.Access.Address, o.Access.ServiceName, o.Access.ServiceNamespace, o.Namespaces = "127.0.0.1:9444", "A", "a.b", []string{"a"}
			},
			want: []string{
				"--access-bind-address=127.0.0.1:9444: cannot be used with --namespaces: ",
				"--access-bind-address=127.0.0.1:9444: must have an IP address, or none, and not loopback: ",
				"--access-bind-address=127.0.0.1:9444: needs the controller virtualmachine",
				"--access-service=A: is not a valid name of a Service: ",
				"access.serviceNamespace: a.b: is not a valid namespace: ",
			},
		},
		{
			name: "logging", change: func(o *Options) { o.Logging = Logging{Format: "xml", Verbosity: 11} },
			want: []string{"--v=11: must be from 0 to 10", "logging.format: xml: must be text or json"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := NewOptions()
			tt.change(&o)
			var got []string
			if err := o.validate(twoControllers); err != nil {
				got = strings.Split(err.Error(), "\n")
			}
			// Only the beginning is ours; what follows is the words of a library.
			for i := range min(len(got), len(tt.want)) {
				if strings.HasPrefix(got[i], tt.want[i]) {
					got[i] = tt.want[i]
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("validate (-want +got):\n%s", diff)
			}
		})
	}
}
