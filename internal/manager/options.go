package manager

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/manager/election"
	"github.com/keelson-dev/keelson/internal/manager/serving"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// Off is the bind address that turns an endpoint off.
const Off = serving.Off

// Options say which controllers run, against which API, and how. NewOptions gives
// the defaults, AddFlags lets a command line change them, Validate checks them.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. Empty: $KUBECONFIG, else the
	// cluster around this process, else ~/.kube/config.
	Kubeconfig string
	// Context is the context of the kubeconfig to use. Empty: its current one.
	Context string

	// Threads is the number of workers of each controller.
	Threads int
	// Controllers selects what runs: "*" everything, "foo" that one, "-foo" all but
	// that one.
	Controllers []string
	// Namespaces limits the manager to these. Empty: all of the cluster.
	Namespaces []string

	// LeaderElection selects the one replica of the manager that works.
	LeaderElection election.Options

	// Machines say what makes VirtualMachines real.
	Machines Machines

	// Webhook is how the API server asks before it stores objects.
	Webhook Webhook

	// HealthAddress is where /healthz and /readyz are served, as host:port; port 0
	// takes a free one. Empty or Off: nowhere.
	HealthAddress string
	// MetricsAddress is where /metrics is served, in the same form.
	MetricsAddress string
	// Serving is how.
	Serving serving.Options
	// TracingEndpoint is the URL of a collector of OpenTelemetry. Empty: what its variables of the
	// environment say, else nothing is traced.
	TracingEndpoint string
	// Tracing delivers traces; nil: nothing is traced. Run makes it from TracingEndpoint.
	Tracing *tracing.Provider

	// PreflightTimeout is how long the manager waits for the API server at the start.
	PreflightTimeout time.Duration

	// StateDir is the directory for the machines and clusters of this host. It must outlive the manager. Empty: see Complete.
	StateDir string
	// Ephemeral says that what is in StateDir may be lost when the host crashes: it
	// is not synced to the disk.
	Ephemeral bool
	// SecretNamespace is where the Secrets with the kubeconfigs of Clusters are.
	// Empty: the namespace of the manager's Pod; outside of a Pod "keelson-system".
	SecretNamespace string
	// RKEBinary is the program rke, for Clusters with the engine rke.
	RKEBinary string
	// RKEConfigDirs are where the files may be that the spec.configPath of Clusters and Kubeconfigs names.
	RKEConfigDirs confine.Dirs
	// RKETimeout is how long one run of it may take.
	RKETimeout time.Duration
	// KubeBinary returns the path of keelson-kube, for Clusters with the engine
	// local. Nil: there is none.
	KubeBinary func() (string, error)

	// closers are called after the last reconcile has ended, whose drivers and engines
	// they close. Controllers add theirs when they are added.
	closers []func() error
	// former is where earlier versions kept what this manager keeps in keelson-system. Complete finds out.
	former former
	// inPod says that this process is a pod's of the cluster that it works on, or of another. Complete finds out.
	inPod bool

	// Logging is how the logs of the process look. Run and New do not read it: a
	// command makes its logger from it and gives it as Logger.
	Logging Logging

	// Logger is where the manager and its controllers log.
	Logger logr.Logger
	// OnReady, if set, is called once, when the caches of all selected controllers
	// have synced and their workers run. On a replica that is not the leader that
	// is when it becomes the leader.
	OnReady func()
}

// NewOptions returns the defaults. Nothing listens on other addresses than loopback
// unless it is asked to.
func NewOptions() Options {
	return Options{
		Threads:          16,
		Controllers:      []string{"*"},
		LeaderElection:   election.NewOptions(),
		Machines:         NewMachines(),
		Webhook:          NewWebhook(),
		HealthAddress:    "127.0.0.1:8081",
		MetricsAddress:   "127.0.0.1:8080",
		PreflightTimeout: time.Minute,
		RKEBinary:        "rke",
		RKEConfigDirs:    confine.Dirs{"/etc/keelson/rke"},
		RKETimeout:       time.Hour,
		Logging:          Logging{Format: "text"},
	}
}

// AddFlags adds a flag for every option to fs, with the present values as defaults.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"kubeconfig `file` (default: $KUBECONFIG, else the cluster that this process runs in, else ~/.kube/config)")
	fs.StringVar(&o.Context, "context", o.Context, "context of the kubeconfig (default: the current context)")
	fs.IntVar(&o.Threads, "threads", o.Threads, "number of workers of each controller")
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers,
		"controllers to run: * enables all, foo enables foo, -foo disables foo. All: "+strings.Join(Names(), ", "))
	o.AddNamespacesFlag(fs)

	o.LeaderElection.AddFlags(fs)
	o.Machines.AddFlags(fs)
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress,
		"`host:port` of /healthz and /readyz; 0 disables them")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress,
		"`host:port` of /metrics; 0 disables it")
	o.Serving.AddFlags(fs)
	fs.StringVar(&o.TracingEndpoint, "tracing-endpoint", o.TracingEndpoint,
		"`URL` of a collector for traces, OTLP over HTTP, such as http://localhost:4318 (default: $OTEL_EXPORTER_OTLP_ENDPOINT)")
	fs.DurationVar(&o.PreflightTimeout, "preflight-timeout", o.PreflightTimeout,
		"how long to wait for the API server at the start")
	o.Webhook.AddFlags(fs)
	o.AddHostFlags(fs)
	o.Logging.AddFlags(fs)
}

// AddNamespacesFlag adds the flag of Namespaces alone.
func (o *Options) AddNamespacesFlag(fs *pflag.FlagSet) {
	fs.Var((*namespaceList)(&o.Namespaces), "namespaces", "`namespaces` to watch, separated by commas (default: all)")
}

// AddHostFlags adds the flags of the controllers that make something on this host.
func (o *Options) AddHostFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.StateDir, "state-dir", o.StateDir,
		"`directory` for the machines and clusters of this host "+
			"(default: keelson in $XDG_STATE_HOME, otherwise ~/.local/state/keelson, for root /var/lib/keelson)")
	fs.StringVar(&o.SecretNamespace, "secret-namespace", o.SecretNamespace,
		"`namespace` of the Secrets with the kubeconfigs of Clusters (default: the namespace of the Pod, otherwise keelson-system)")
	fs.StringVar(&o.RKEBinary, "rke-binary", o.RKEBinary, "the `program` rke, for Clusters with spec.configPath")
	fs.StringSliceVar((*[]string)(&o.RKEConfigDirs), "rke-config-dirs", o.RKEConfigDirs,
		"`directories` of the host from which spec.configPath of Clusters and Kubeconfigs may name files; / allows all")
	fs.DurationVar(&o.RKETimeout, "rke-timeout", o.RKETimeout, "limit for one run of rke")
}

// Complete fills in what depends on where the process runs. Options that are set
// stay as they are.
func (o *Options) Complete() error {
	return o.complete(podNamespace())
}

// complete is Complete for a pod in the given namespace; empty means no pod.
func (o *Options) complete(podNamespace string) error {
	o.inPod = podNamespace != ""
	inCluster := o.kubeconfigFiles() == nil && o.inPod
	o.completeNamespaces(podNamespace)
	if o.StateDir == "" {
		o.StateDir = defaultStateDir()
	}
	return o.LeaderElection.Complete(inCluster)
}

// completeNamespaces fills in the namespaces that are not set.
func (o *Options) completeNamespaces(podNamespace string) {
	namespace, earlier := podNamespace, ""
	if !o.inPod {
		namespace, earlier = rbac.Home, metav1.NamespaceDefault
	}
	fill := func(option, former *string) {
		if *option == "" {
			*option, *former = namespace, earlier
		}
	}
	fill(&o.LeaderElection.LockNamespace, &o.former.lease)
	fill(&o.SecretNamespace, &o.former.secrets)
	fill(&o.Webhook.ServiceNamespace, &o.former.webhook)
}

// Validate returns one error with every option that makes no sense, each named as
// its flag, or nil.
func (o *Options) Validate() error { return o.validate(controllers) }

func (o *Options) validate(all []Controller) error {
	var errs []error
	wrong := func(flag string, value any, why string, args ...any) {
		errs = append(errs, fmt.Errorf("--%s=%v: %s", flag, value, fmt.Sprintf(why, args...)))
	}
	if o.Threads < 1 {
		wrong("threads", o.Threads, "must be 1 or more")
	}
	if _, err := selectControllers(all, o.Controllers); err != nil {
		wrong("controllers", strings.Join(o.Controllers, ","), "%v", err)
	}
	for i, namespace := range o.Namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			wrong("namespaces", strings.Join(o.Namespaces, ","), "%q is no namespace: %s", namespace, problems[0])
		}
		if slices.Contains(o.Namespaces[:i], namespace) {
			wrong("namespaces", strings.Join(o.Namespaces, ","), "%q is there twice", namespace)
		}
	}
	for flag, address := range map[string]string{
		"health-probe-bind-address": o.HealthAddress, "metrics-bind-address": o.MetricsAddress,
	} {
		if err := serving.CheckAddress(address); err != nil {
			wrong(flag, address, "%v", err)
		}
	}
	if o.HealthAddress == o.MetricsAddress && serving.IsOn(o.HealthAddress) && !strings.HasSuffix(o.HealthAddress, ":0") {
		wrong("metrics-bind-address", o.MetricsAddress, "is also the address of --health-probe-bind-address")
	}
	if o.PreflightTimeout < 0 {
		wrong("preflight-timeout", o.PreflightTimeout, "must not be negative")
	}
	if o.SecretNamespace != "" {
		if problems := validation.IsDNS1123Label(o.SecretNamespace); len(problems) > 0 {
			wrong("secret-namespace", o.SecretNamespace, "is no namespace: %s", problems[0])
		}
	}
	if err := o.RKEConfigDirs.Validate(); err != nil {
		wrong("rke-config-dirs", strings.Join(o.RKEConfigDirs, ","), "%v", err)
	}
	if o.RKETimeout < time.Minute {
		wrong("rke-timeout", o.RKETimeout, "must be 1m or more: rke cannot make a cluster in less")
	}
	o.LeaderElection.Validate(wrong)
	o.Serving.Validate(o.MetricsAddress, wrong)
	if err := tracing.CheckEndpoint(o.TracingEndpoint); o.TracingEndpoint != "" && err != nil {
		wrong("tracing-endpoint", o.TracingEndpoint, "%v", err)
	}
	o.Machines.validate(wrong)
	o.Webhook.validate(wrong)
	o.Logging.validate(wrong)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// namespaceList is the value of a flag that lists namespaces. An empty list would widen what was to be limited - to all
// of the cluster, when a script's variable is not set - and is refused.
type namespaceList []string

func (l *namespaceList) String() string { return strings.Join(*l, ",") }
func (l *namespaceList) Type() string   { return "strings" }
func (l *namespaceList) Set(value string) error {
	if value == "" {
		return errors.New("must not be empty")
	}
	*l = append(*l, strings.Split(value, ",")...)
	return nil
}
