package manager

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/crontab/ping"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine"
	"github.com/keelson-dev/keelson/internal/manager/election"
	"github.com/keelson-dev/keelson/internal/manager/serving"
	"github.com/keelson-dev/keelson/internal/objectstore"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// Off is the bind address that disables an endpoint.
const Off = serving.Off

// Options configure a manager. NewOptions returns the defaults, AddFlags adds flags for them, Validate checks
// them.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. Empty: $KUBECONFIG, otherwise in-cluster, otherwise
	// ~/.kube/config.
	Kubeconfig string
	// Context is the context of the kubeconfig. Empty: the current one.
	Context string
	// Config is the path of a file with a KeelsonConfiguration, which ReadConfig reads.
	Config string

	// Threads is the number of workers of each controller.
	Threads int
	// Controllers selects the controllers to run: "*" enables all, "foo" enables foo, "-foo" disables foo.
	Controllers []string
	// Namespaces limits the manager to these namespaces. Empty: all.
	Namespaces []string

	// LeaderElection selects the active replica.
	LeaderElection election.Options

	// Machines configure the drivers of VirtualMachines.
	Machines Machines

	// Webhook configures the admission webhook.
	Webhook Webhook

	// Access configures the access API of machines.
	Access Access

	// HealthAddress is the host:port of /healthz and /readyz; port 0 takes a free one. Empty or Off: disabled.
	HealthAddress string
	// MetricsAddress is the address of /metrics, in the same form.
	MetricsAddress string
	// Serving configures access to the metrics.
	Serving serving.Options
	// TracingEndpoint is the URL of an OpenTelemetry collector. Empty: taken from OpenTelemetry's environment
	// variables, otherwise nothing is traced.
	TracingEndpoint string
	// Tracing delivers traces; nil: nothing is traced. Run makes it from TracingEndpoint.
	Tracing *tracing.Provider

	// PreflightTimeout limits the wait for the API server at the start.
	PreflightTimeout time.Duration

	// PingNetworks are networks, such as 10.0.0.0/8, that spec.ping of CronTabs can reach in addition to the public Internet.
	PingNetworks []string

	// StateDir is the directory for the machines and clusters of this host. It must outlive the manager. Empty: see Complete.
	StateDir string
	// Ephemeral means that a crash of the host may lose the data in StateDir: it is not synced to disk.
	Ephemeral bool
	// SecretNamespace is the namespace of the Secrets with the kubeconfigs of Clusters. Empty: the namespace of
	// the manager's Pod; outside of a Pod "keelson-system".
	SecretNamespace string
	// RKEBinary is the program rke, for Clusters with the engine rke.
	RKEBinary string
	// RKEConfigDirs are the directories from which spec.configPath of Clusters and Kubeconfigs may name files.
	RKEConfigDirs confine.Dirs
	// RKETimeout limits one run of rke.
	RKETimeout time.Duration
	// KubeBinary returns the path of keelson-kube, for Clusters with the engine local. Nil: not available.
	KubeBinary func() (string, error)
	// ClusterRealNodes allows Clusters with spec.nodes.real, whose users have the rights of this process on this host.
	ClusterRealNodes bool
	// ClusterAddresses are the networks, such as 10.0.0.0/8, in which spec.apiServer.address of Clusters may be, besides loopback.
	ClusterAddresses []string
	// ClusterHostedImages are the images of keelson-kube for Clusters with the engine hosted, by Kubernetes version.
	ClusterHostedImages map[string]string
	// SnapshotStore is the store to which ClusterSnapshots are copied.
	SnapshotStore objectstore.Options
	// NodePrograms returns the folder with the programs of real nodes. Nil: not available.
	NodePrograms func() (string, error)

	// closers close drivers and engines after the last reconcile. Controllers append theirs when they are
	// added.
	closers []func() error
	// drivers are those of VirtualMachines. The controller sets them when it is added.
	drivers *virtualmachine.Drivers
	// hasClusters means that the controller of Clusters was added.
	hasClusters bool
	// usesHome means that an option names no namespace, outside of a Pod, so that it is keelson-system. Complete sets it.
	usesHome bool
	// inPod is true if this process runs in a Pod, of this or another cluster. Complete sets it.
	inPod bool

	// Logging configures the logs of the process. Run and New do not read it: a command builds Logger from it.
	Logging Logging

	// Logger is the logger of the manager and its controllers.
	Logger logr.Logger
	// OnReady, if set, is called once, when the caches of all selected controllers have synced and their
	// workers run; on a standby, when it becomes the leader.
	OnReady func()
}

// NewOptions returns the defaults. By default, endpoints listen on loopback only.
func NewOptions() Options {
	return Options{
		Threads:          16,
		Controllers:      []string{"*"},
		LeaderElection:   election.NewOptions(),
		Machines:         NewMachines(),
		Webhook:          NewWebhook(),
		Access:           NewAccess(),
		HealthAddress:    "127.0.0.1:8081",
		MetricsAddress:   "127.0.0.1:8080",
		PreflightTimeout: time.Minute,
		RKEBinary:        "rke",
		RKEConfigDirs:    confine.Dirs{"/etc/keelson/rke"},
		RKETimeout:       time.Hour,
		Logging:          Logging{Format: "text"},
	}
}

// AddFlags adds the flags of a manager to fs, with the present values as defaults. The other options are in the file of --config.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig,
		"kubeconfig `file` (default: $KUBECONFIG, otherwise the cluster of this Pod, otherwise ~/.kube/config)")
	fs.StringVar(&o.Context, "context", o.Context, "context of the kubeconfig (default: the current context)")
	o.AddConfigFlag(fs)
	fs.IntVar(&o.Threads, "threads", o.Threads, "number of workers of each controller")
	fs.StringSliceVar(&o.Controllers, "controllers", o.Controllers,
		"controllers to run: * enables all, foo enables foo, -foo disables foo. All: "+strings.Join(Names(), ", "))
	o.AddNamespacesFlag(fs)

	o.LeaderElection.AddFlags(fs)
	o.Machines.AddFlags(fs)
	fs.StringVar(&o.Machines.DockerHost, "vm-docker-host", o.Machines.DockerHost,
		"`address` of the Docker engine of the driver docker (default: $DOCKER_HOST, otherwise unix:///var/run/docker.sock)")
	fs.StringSliceVar((*[]string)(&o.Machines.ImageDirs), "vm-image-dirs", o.Machines.ImageDirs,
		"`directories` of the host from which spec.image of VirtualMachines may name files; / allows all")
	fs.StringVar(&o.HealthAddress, "health-probe-bind-address", o.HealthAddress,
		"`host:port` of /healthz and /readyz; 0 disables them")
	fs.StringVar(&o.MetricsAddress, "metrics-bind-address", o.MetricsAddress,
		"`host:port` of /metrics; 0 disables it")
	o.Serving.AddFlags(fs)
	o.Webhook.AddFlags(fs)
	o.Access.AddFlags(fs)
	fs.StringVar(&o.StateDir, "state-dir", o.StateDir,
		"`directory` for the machines and clusters of this host "+
			"(default: keelson in $XDG_STATE_HOME, otherwise ~/.local/state/keelson, for root /var/lib/keelson)")
	fs.StringVar(&o.SecretNamespace, "secret-namespace", o.SecretNamespace,
		"`namespace` of the Secrets with the kubeconfigs of Clusters (default: the namespace of the Pod, otherwise keelson-system)")
	fs.StringVar(&o.RKEBinary, "rke-binary", o.RKEBinary, "the `program` rke, for Clusters with spec.configPath")
	o.Logging.AddFlags(fs)
}

// AddNamespacesFlag adds only the flag of Namespaces.
func (o *Options) AddNamespacesFlag(fs *pflag.FlagSet) {
	fs.Var((*namespaceList)(&o.Namespaces), "namespaces", "`namespaces` to watch, separated by commas (default: all)")
}

// Complete sets the defaults that depend on the environment of the process. It does not change options that are
// set.
func (o *Options) Complete() error {
	return o.complete(podNamespace())
}

// complete implements Complete for a Pod in the given namespace; empty means no Pod.
func (o *Options) complete(podNamespace string) error {
	o.inPod = podNamespace != ""
	inCluster := o.kubeconfigFiles() == nil && o.inPod
	o.completeNamespaces(podNamespace)
	if o.StateDir == "" {
		o.StateDir = defaultStateDir()
	}
	return o.LeaderElection.Complete(inCluster)
}

// completeNamespaces sets the defaults of the namespaces.
func (o *Options) completeNamespaces(podNamespace string) {
	namespace := cmp.Or(podNamespace, rbac.Home)
	for _, option := range []*string{&o.LeaderElection.LockNamespace, &o.SecretNamespace, &o.Webhook.ServiceNamespace} {
		if *option == "" {
			*option, o.usesHome = namespace, !o.inPod
		}
	}
	o.Access.ServiceNamespace = cmp.Or(o.Access.ServiceNamespace, namespace)
}

// Validate returns one error that lists all invalid options by their flags, or by their fields in the configuration, or nil.
func (o *Options) Validate() error { return o.validate(controllers) }

func (o *Options) validate(all []Controller) error {
	var errs []error
	wrong := func(option string, value any, why string, args ...any) {
		errs = append(errs, fmt.Errorf("%s%v: %s", described(option), value, fmt.Sprintf(why, args...)))
	}
	if o.Threads < 1 {
		wrong("threads", o.Threads, "must be 1 or more")
	}
	selected, err := selectControllers(all, o.Controllers)
	if err != nil {
		wrong("controllers", strings.Join(o.Controllers, ","), "%v", err)
	}
	for i, namespace := range o.Namespaces {
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			wrong("namespaces", strings.Join(o.Namespaces, ","), "%q is not a valid namespace: %s", namespace, problems[0])
		}
		if slices.Contains(o.Namespaces[:i], namespace) {
			wrong("namespaces", strings.Join(o.Namespaces, ","), "%q is duplicated", namespace)
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
		wrong("preflight.timeout", o.PreflightTimeout, "must not be negative")
	}
	if o.SecretNamespace != "" {
		if problems := validation.IsDNS1123Label(o.SecretNamespace); len(problems) > 0 {
			wrong("secret-namespace", o.SecretNamespace, "is not a valid namespace: %s", problems[0])
		}
	}
	if err := o.RKEConfigDirs.Validate(); err != nil {
		wrong("clusters.rkeConfigDirs", strings.Join(o.RKEConfigDirs, ","), "%v", err)
	}
	o.validateHostedImages(wrong)
	o.validateNetworks(wrong)
	if err := o.SnapshotStore.Validate(); err != nil {
		errs = append(errs, err)
	}
	if o.RKETimeout < time.Minute {
		wrong("clusters.rkeTimeout", o.RKETimeout, "must be 1m or more: rke cannot create a cluster faster")
	}
	o.LeaderElection.Validate(wrong)
	o.Serving.Validate(o.MetricsAddress, wrong)
	if err := tracing.CheckEndpoint(o.TracingEndpoint); o.TracingEndpoint != "" && err != nil {
		wrong("tracing.endpoint", o.TracingEndpoint, "%v", err)
	}
	o.Machines.validate(wrong)
	o.Webhook.validate(wrong)
	o.Access.validate(selected, o.Namespaces, wrong)
	o.Logging.validate(wrong)
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func (o *Options) validateHostedImages(wrong func(option string, value any, why string, args ...any)) {
	for _, name := range slices.Sorted(maps.Keys(o.ClusterHostedImages)) {
		if _, err := version.ParseSemantic(name); err != nil || !strings.HasPrefix(name, "v") || o.ClusterHostedImages[name] == "" {
			wrong("clusters.hostedImages", name+": "+o.ClusterHostedImages[name], "must be a version, such as v1.36.3, and an image")
		}
	}
}

func (o *Options) validateNetworks(wrong func(option string, value any, why string, args ...any)) {
	for option, networks := range map[string][]string{"clusters.addressAllow": o.ClusterAddresses, ping.NetworksOption: o.PingNetworks} {
		if _, err := parseNetworks(networks); err != nil {
			wrong(option, strings.Join(networks, ","), "%v", err)
		}
	}
}

// described returns what comes before the value of an option in an error: its flag, or its field in the configuration.
func described(option string) string {
	if strings.Contains(option, ".") {
		return option + ": "
	}
	return "--" + option + "="
}

// namespaceList is a flag value with a list of namespaces. It rejects an empty list, because an unset variable of a
// script would select all namespaces.
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
