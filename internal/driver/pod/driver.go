// Package pod is the driver that runs each machine in a Pod.
//
// All state is in the API server, so that any replica of a manager continues where another one has ended: a Secret in the manager's namespace
// records the last applied spec of each machine and which run was requested to stop, and a Pod is its run. Everything is learned from watches
// of both, and of the claims of snapshots. All of them have fixed names, so that a machine never runs twice.
//
// Tenants can write everything in their namespaces, also what has the labels of this driver. So the manager only acts on records, which are in
// its own namespace, and an object in another namespace only ever counts for a machine of that namespace. See docs/internals/drivers.md.
package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Name is the name of the driver.
const Name = "pod"

const (
	// openTimeout is the time limit for the first answer of the API server.
	openTimeout = 5 * time.Second
	// syncTimeout is the time limit for the first lists of the watches, which have all machines.
	syncTimeout = time.Minute
	// maxDefinition is the size of the definition of a Pod that the cache keeps: many times what this driver writes.
	maxDefinition = 64 << 10
	// seenTimeout is how long a call waits until the watch has its change.
	seenTimeout = 5 * time.Second
	// seenInterval is the interval of looks at the watch.
	seenInterval = 5 * time.Millisecond
)

// Options configure the driver.
type Options struct {
	// Config is the configuration of the API server.
	Config *rest.Config
	// Namespaces are those with the machines; empty means all.
	Namespaces []string
	// RecordNamespace is the namespace of the Secrets with the records. It must be one in which tenants cannot write Secrets.
	RecordNamespace string
	// LauncherImage is the image of the launcher, GuestImage that of the default guest.
	LauncherImage, GuestImage string
	// KVMResource is the resource of the device plugin that provides /dev/kvm, such as devices.kubevirt.io/kvm; empty means that
	// processors are emulated. KVMGroup is the group that may open the device; 0 means none.
	KVMResource string
	KVMGroup    int64
	// CPUAllocationRatio is how many processors of guests share one of a node, at least 1.
	CPUAllocationRatio int64

	// forward replaces the port forwarding of the API server in tests.
	forward func(ctx context.Context, pod *corev1.Pod, port int32) (net.Conn, error)
}

// step is called at each point where a crash makes a difference. The crash tests replace it.
var step = func(string) {}

// Driver runs machines.
type Driver struct {
	images     images
	processors processors
	host       backend.Host
	namespaces []string // those with the machines; empty means all
	// records is the namespace of the Secrets with the records.
	records string
	// client reads from the API server, cache from the watches.
	client client.Client
	cache  cache.Cache
	// launchers connects to machines, logs reads the log of a Pod.
	launchers *launchers
	logs      func(ctx context.Context, pod *corev1.Pod, tail int, follow bool) (io.ReadCloser, error)

	cancel  context.CancelFunc
	watches sync.WaitGroup

	mu     sync.Mutex
	closed bool
	notify func(backend.Identity)
	// notifySnapshot is called with a snapshot whose objects have changed.
	notifySnapshot func(backend.SnapshotIdentity)
	// usage is the usage of each run.
	usage map[machineKey]*measured
	// guests has what launchers say about the guests in Pods that are not ready, by the UIDs of the Pods; empty if they were not asked.
	guests map[types.UID]string
	// sleeps are the last attempts to put machines to sleep.
	sleeps map[machineKey]*sleepTask
	// fills are the machines whose end of a fill is being recorded.
	fills map[machineKey]bool
	// live are the last attempts to change machines while they run.
	live map[machineKey]*liveTask
	// running ends when the driver is closed.
	running context.Context
}

// machineKey tells machines apart. The UID alone would not: it is in a label of Pods, which a tenant can write in another namespace.
type machineKey struct {
	namespace string
	uid       types.UID
}

func keyOf(id backend.Identity) machineKey { return machineKey{id.Namespace, id.UID} }

// The objects of this driver: those of machines, those of snapshots, all of both, and records.
var (
	ofMachines  = having(labelUID)
	ofSnapshots = having(labelSnapshot)
	ofClusters  = having(labelCluster)
	withRecords = having(labelRecord)
)

// having selects objects with a label.
func having(label string) labels.Selector {
	requirement, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		panic(err) // it is constant
	}
	return labels.NewSelector().Add(*requirement)
}

// Only a manager with this driver has these permissions: RBAC cannot limit them to the objects of machines.
// +kubebuilder:rbac:groups="",resources=secrets,verbs=create;update;delete
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=secrets,verbs=get;list;watch;create;update;delete
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;delete
// +kubebuilder:rbac:groups="",resources=pods/log,verbs=get
// +kubebuilder:rbac:groups="",resources=pods/portforward,verbs=get;create
// +kubebuilder:rbac:groups=metrics.k8s.io,resources=pods,verbs=list
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=create;delete

// Missing returns an error if the driver has not all its images.
func Missing(launcherImage, guestImage string) error {
	if launcherImage != "" && guestImage != "" {
		return nil
	}
	return fmt.Errorf("%w: the driver pod needs images: --vm-launcher-image and --vm-guest-image name them, see docs/drivers.md", backend.ErrMissing)
}

// Open connects to the API server. The error is a backend.ErrMissing if no image is configured.
func Open(options Options) (*Driver, error) {
	if err := Missing(options.LauncherImage, options.GuestImage); err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), policyv1.AddToScheme(scheme), metricsv1beta1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	d := &Driver{
		namespaces: options.Namespaces, records: options.RecordNamespace, images: images{launcher: options.LauncherImage, guest: options.GuestImage},
		processors: processors{ratio: options.CPUAllocationRatio, kvm: corev1.ResourceName(options.KVMResource), group: options.KVMGroup},
		notify:     func(backend.Identity) {}, notifySnapshot: func(backend.SnapshotIdentity) {}, guests: map[types.UID]string{}, sleeps: map[machineKey]*sleepTask{}, live: map[machineKey]*liveTask{}, fills: map[machineKey]bool{},
	}
	var err error
	if d.client, err = client.New(options.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	subresources, err := newPods(options.Config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	if options.forward == nil {
		options.forward = subresources.forward
	}
	d.launchers, d.logs = newLaunchers(options.forward), subresources.log
	ctx, cancel := context.WithTimeout(context.Background(), openTimeout)
	defer cancel()
	cluster, err := kube.ClusterUID(ctx, d.client)
	if err != nil {
		return nil, err
	}
	d.host = backend.Host{ID: string(cluster), Name: "Kubernetes"}
	kinds := cache.Options{Scheme: scheme, DefaultTransform: slim, ByObject: map[client.Object]cache.ByObject{
		&corev1.Pod{}: {Label: ofClusters}, &corev1.PersistentVolumeClaim{}: {Label: ofSnapshots},
		&corev1.Secret{}: {Label: withRecords, Namespaces: map[string]cache.Config{d.records: {}}},
	}}
	if len(options.Namespaces) > 0 {
		kinds.DefaultNamespaces = map[string]cache.Config{}
		for _, namespace := range options.Namespaces {
			kinds.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	if d.cache, err = cache.New(options.Config, kinds); err != nil {
		return nil, fmt.Errorf("watch the Pods of machines: %w", err)
	}
	if err := d.watch(); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// Name implements backend.Driver.
func (d *Driver) Name() string { return Name }

// Capabilities implements backend.Driver.
func (d *Driver) Capabilities() backend.Capabilities {
	return backend.Capabilities{Pause: true, Sleep: true, Disks: true, Service: true, Agent: true, Emulated: d.processors.kvm == ""}
}

// Host implements backend.Driver. The host is the cluster.
func (d *Driver) Host() backend.Host { return d.host }

// Watch implements backend.Driver.
func (d *Driver) Watch(notify func(backend.Identity)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.notify = notify
}

// notifyChange notifies the controller of a change of a machine.
func (d *Driver) notifyChange(id backend.Identity) {
	d.mu.Lock()
	notify := d.notify
	d.mu.Unlock()
	notify(id)
}

// check fails if the driver is closed.
func (d *Driver) check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return fmt.Errorf("driver pod is closed: %w", backend.ErrUnavailable)
	}
	return nil
}

// object is an object of the API.
type object[T any] interface {
	*T
	client.Object
}

// readPod reads the Pod of a machine; nil if there is none.
func readPod(ctx context.Context, from client.Reader, id backend.Identity) (*corev1.Pod, error) {
	return readNamed[corev1.Pod](ctx, from, id.Namespace, objectName(id.UID))
}

// readSecret reads the Secret with the record of a machine; nil if there is none.
func (d *Driver) readSecret(ctx context.Context, from client.Reader, id backend.Identity) (*corev1.Secret, error) {
	return readNamed[corev1.Secret](ctx, from, d.records, recordName(id.Namespace, objectName(id.UID)))
}

// readNamed reads an object; nil if there is none.
func readNamed[T any, P object[T]](ctx context.Context, from client.Reader, namespace, name string) (P, error) {
	found := P(new(T))
	err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, typed(fmt.Sprintf("get the %T %s/%s", found, namespace, name), err)
	}
	return found, nil
}

// typed makes an error of the API server one of the driver contract.
func typed(what string, err error) error {
	if apierrors.IsInvalid(err) {
		return fmt.Errorf("%w: %s: %w", backend.ErrInvalid, what, err)
	}
	if apierrors.ReasonForError(err) == "" {
		// It did not answer.
		return fmt.Errorf("%w: %s: %w", backend.ErrUnavailable, what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Observe implements backend.Driver. It makes no request.
func (d *Driver) Observe(ctx context.Context, id backend.Identity) (backend.Server, error) {
	secret, pod, err := d.seen(ctx, id)
	if err != nil {
		return backend.Server{}, err
	}
	filling, err := d.readFill(ctx, d.cache, id)
	if err != nil {
		return backend.Server{}, err
	}
	return d.describe(secret, pod, filling)
}

// describe is the function describe with what is known to this driver alone.
func (d *Driver) describe(secret *corev1.Secret, pod, filling *corev1.Pod) (backend.Server, error) {
	server, err := describe(secret, pod, filling, time.Now())
	if pod == nil {
		server.Emulated = d.processors.kvm == "" // as the next run
	}
	d.addGuest(&server, secret, pod)
	d.addSleep(&server)
	if secret != nil { // any tenant can create a Pod with the labels of a machine
		server.Usage = d.usageOf(&server)
	}
	return server, err
}

// List implements backend.Driver. It makes no request. A machine whose record is unreadable is Unknown, and hides no other one.
func (d *Driver) List(ctx context.Context) ([]backend.Server, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	var secrets corev1.SecretList
	var pods corev1.PodList
	// Nothing below changes them. Copies of those of thousands of machines would take more memory than all else.
	isMachine := client.MatchingLabels{labelRecord: recordOfMachine}
	if err := errors.Join(d.cache.List(ctx, &secrets, isMachine, client.UnsafeDisableDeepCopy), d.cache.List(ctx, &pods, client.UnsafeDisableDeepCopy)); err != nil {
		return nil, typed("list the Pods of machines", err)
	}
	known := map[machineKey]*corev1.Secret{}
	running, filling := map[machineKey]*corev1.Pod{}, map[machineKey]*corev1.Pod{}
	for i := range secrets.Items {
		known[keyOf(identityOf(&secrets.Items[i]))] = &secrets.Items[i]
	}
	for i := range pods.Items {
		filling[keyOf(filledBy(&pods.Items[i]))] = &pods.Items[i]
		key := keyOf(identityOf(&pods.Items[i]))
		if key.uid == "" {
			continue // it works on volumes
		}
		running[key] = &pods.Items[i]
		if known[key] == nil {
			known[key] = nil
		}
	}
	var all []backend.Server
	for key, secret := range known {
		server, err := d.describe(secret, running[key], filling[key])
		if err != nil {
			server = backend.Server{Identity: identityOf(secret), ID: objectName(key.uid), State: backend.StateUnknown, Message: err.Error()}
		}
		all = append(all, server)
	}
	slices.SortFunc(all, func(a, b backend.Server) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return all, nil
}

// Close implements backend.Driver.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.watches.Wait()
	d.launchers.close()
	return nil
}
