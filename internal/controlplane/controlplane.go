// Package controlplane runs a real Kubernetes control plane on this machine from the component binary that kube/
// builds: etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok for simulated nodes.
//
// Everything that belongs to one control plane is in one data directory: certificates, the port, etcd's data, sockets,
// logs and the records of its processes. The processes outlive the program that started them; the next Start on the
// same directory finds them and adopts them. Components listen on loopback only, and etcd only on a unix socket in the
// data directory.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/process"
)

// Options configure a control plane.
type Options struct {
	// Dir is the data directory. It is created, mode 0700.
	Dir string
	// Binary is the path of keelson-kube.
	Binary string
	// Simulator is the path of the keelson-kube whose kwok simulates nodes, because those of other versions have none. Empty means
	// Binary.
	Simulator string
	// Ephemeral trades durability for speed: etcd does not wait for the disk.
	Ephemeral bool
	// APIOnly omits kube-controller-manager, kube-scheduler and nodes, for tests of controllers.
	APIOnly bool
	// Nodes is the number of simulated nodes.
	Nodes int
	// RealNode, if set, runs real nodes on this host, and RealNodes is their number: 0 means 1. Several of them need root.
	RealNode  *node.Machine
	RealNodes int
	// Images are loaded into each real node before it counts as ready.
	Images []node.Image
	// OwnServices chooses a network of Services that other control planes rarely have, also without real nodes, which can
	// be added later then. Real nodes are refused while another control plane on this host has the same network.
	OwnServices bool
	// Name is the name of the context, the cluster and the user in the kubeconfig. Empty means keelson.
	Name string
	// User is the name of the administrator in the API. Empty means keelson-admin.
	User string
	// Address is the address of this host at which the API listens, and nowhere else. Empty means 127.0.0.1, which real nodes
	// need.
	Address string
	// Port is the port of the API. 0 chooses a free port and keeps it, unless another program uses it
	// while the control plane is stopped.
	Port int
	// PortHeld, if set, reports whether the caller listens at a port of an address with SO_REUSEPORT. It then counts as free for
	// the API, and kube-apiserver listens there, too.
	PortHeld func(address string, port int) bool
	// PortUser, if set, returns who serves the API with this URL, as far as the caller knows, for messages about a port that is in use.
	PortUser func(server string) string
	// CertSANs are additional names and addresses in the certificate of the API.
	CertSANs []string
	// APIServerArgs are additional flags of kube-apiserver, except those that IsReservedFlag reports.
	APIServerArgs []string
	// RestartPause is the maximum backoff of a crashing component. 0 means ten seconds.
	RestartPause time.Duration
	// QuotaBytes is the size of etcd's database above which it accepts deletions only. 0 means 8 GiB.
	QuotaBytes int64
	// StorageInterval is the interval of maintenance of etcd's database. 0 means a minute.
	StorageInterval time.Duration
	// Rotation requests new client certificates if its value differs from the one of the last rotation. The old ones
	// are trusted for RotationOverlap. Empty means no rotation.
	Rotation        string
	RotationOverlap time.Duration
	// Users have a kubeconfig each, see UserKubeconfig. The credentials of other users are revoked.
	Users []pki.User
	// Env is added to the environment of the components, as NAME=value.
	Env []string
	// Log receives messages about components after the start. The zero value discards them.
	Log logr.Logger
	// Clock is the clock for certificates. Nil means the real one.
	Clock clock.WithTicker
	// Changed, if set, is called when a component has ended or was restarted, when an alarm of etcd begins or ends,
	// and when certificates were renewed. It must not block.
	Changed func()
	// Answering, if set, is called once in its own goroutine when kube-apiserver first responds. The API may not be
	// ready yet and reject some requests. The context ends when the control plane is left, which waits for the call.
	Answering func(context.Context, *rest.Config)
	// Replacing, if set, is called when Start is about to stop a running kube-apiserver, because it has to be replaced.
	Replacing func()
	// OpenEarly starts the work of Open as soon as the API responds, before it is ready.
	OpenEarly bool
	// Progress, if set, is called when a step of Start or Settle begins and when it is done.
	Progress func(Step)
}

// Step is a step of the start of a control plane.
type Step struct {
	// Name is a component's name, or "certificates".
	Name string
	// Done is false when the step begins, true when it has succeeded.
	Done bool
	// Took is the duration of a completed step.
	Took time.Duration
}

// ControlPlane is a running control plane. Its methods may be called from several goroutines.
type ControlPlane struct {
	opts  Options
	dir   layout
	procs *process.Dir
	// claims are held as long as the lock of the data directory.
	claims node.Claims

	supervision context.Context // of the components; its end leaves them running
	cancel      context.CancelFunc
	wg          sync.WaitGroup // goroutines that must end before the control plane is left
	endings     endings

	indexes []int // of the real nodes at the start
	adopted bool  // these nodes run since an earlier start

	simulatedKubelet func() (port int32, err error) // serves for the simulated nodes from the first call on
	metricsServer    func() (port int, err error)   // serves metrics of real nodes from the first call on
	kept             sync.Once                      // nodes are added and removed, from the first Settle on

	balanced sync.Once // load balancers are served
	answered sync.Once
	opened   chan error // receives one value when the work started by OpenEarly has ended

	leave   sync.Mutex // held while the control plane is left
	stopped bool       // guarded by leave

	mu       sync.Mutex
	leaving  bool // nothing more is launched
	state    state
	alarm    string                // of etcd; empty if there is none
	nodes    []node.Settings       // the real nodes, in the order of their indexes. The first one stays
	launched map[string]*component // components that are supervised
	// portFixed says that clients may know the port by now.
	portFixed bool
}

// Start starts the control plane of a data directory, or adopts the one that already runs there, and returns
// when its API answers /readyz. The other components are then running but may not have settled: see Settle.
//
// The error is a *process.LockedError if another program manages this data directory. If Start fails or ctx ends,
// the processes that it started are stopped again, and those that it adopted keep running.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Progress == nil {
		opts.Progress = func(Step) {}
	}
	if opts.Changed == nil {
		opts.Changed = func() {}
	}
	if opts.Replacing == nil {
		opts.Replacing = func() {}
	}
	dir, err := filepath.Abs(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", opts.Dir, err)
	}
	cp := &ControlPlane{opts: opts, dir: layout(dir), launched: map[string]*component{}, opened: make(chan error, 1)}
	cp.supervision, cp.cancel = context.WithCancel(context.WithoutCancel(ctx))
	cp.simulatedKubelet = sync.OnceValues(cp.serveSimulatedKubelet)
	cp.metricsServer = sync.OnceValues(cp.serveMetrics)
	if err := cp.open(); err != nil {
		cp.cancel()
		return nil, err
	}
	if err := cp.start(ctx); err != nil {
		stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return nil, errors.Join(err, cp.abandon(stopCtx))
	}
	return cp, nil
}

// open locks the data directory and chooses the port. It starts nothing.
func (cp *ControlPlane) open() error {
	if err := cp.dir.create(); err != nil {
		return err
	}
	procs, err := process.Open(cp.dir.processes())
	if err != nil {
		return fmt.Errorf("data directory %s: %w", cp.dir, err)
	}
	cp.procs = procs
	if err := cp.prepareState(); err != nil {
		return errors.Join(err, cp.release())
	}
	return nil
}

// release releases the networks of the node and then the lock of the data directory, which protects them.
func (cp *ControlPlane) release() error {
	cp.claims.Release()
	return cp.procs.Close()
}

// prepareState brings the state of the data directory up to date.
func (cp *ControlPlane) prepareState() error {
	var err error
	if cp.state, err = loadState(cp.dir); err != nil {
		return err
	}
	cp.state.Ephemeral, cp.state.Nodes = cp.opts.Ephemeral, cp.opts.Nodes
	if cp.opts.RealNode != nil {
		cp.opts.RealNodes = max(cp.opts.RealNodes, 1)
		indexes, adopted, err := cp.chooseNodes()
		if err != nil {
			return err
		}
		cp.indexes, cp.adopted = indexes, adopted
		cp.state.RealNodes = max(cp.state.RealNodes, indexes[len(indexes)-1]+1)
	}
	if cp.opts.Address == loopback {
		cp.opts.Address = ""
	}
	if cp.opts.Address != "" {
		if cp.opts.RealNode != nil {
			return fmt.Errorf("the API cannot listen on %s: real nodes reach it on %s only", cp.opts.Address, loopback)
		}
		if err := tryListen(cp.opts.Address, 0); err != nil {
			return fmt.Errorf("the API cannot listen on %s, which must be an address of this host: %w", cp.opts.Address, err)
		}
	}
	cp.state.Address = cp.opts.Address
	if cp.opts.Port != 0 {
		cp.state.Port = cp.opts.Port
	}
	if cp.state.Port == 0 {
		if cp.state.Port, err = freePort(string(cp.dir), cp.opts.Address); err != nil {
			return err
		}
	}
	cp.beginRotation()
	if err := cp.chooseServices(); err != nil {
		return err
	}
	if err := saveState(cp.dir, cp.state); err != nil {
		return err
	}
	return cp.prepareNodes()
}

// start starts the components, each as soon as its dependencies are ready.
func (cp *ControlPlane) start(ctx context.Context) error {
	ctx, done := cp.endings.watch(ctx)
	defer done()
	if err := cp.stopSurplus(ctx); err != nil {
		return err
	}
	if err := cp.startAPI(ctx); err != nil {
		return err
	}
	if !cp.opts.APIOnly {
		if err := cp.startControllers(ctx); err != nil {
			return err
		}
	}
	cp.wg.Go(func() { cp.renewCertificates(cp.supervision) })
	cp.wg.Go(func() { cp.maintainStorage(cp.supervision) })
	cp.wg.Go(func() { cp.endOverlap(cp.supervision) })
	return nil
}

// startControllers starts the other components and waits for nothing.
func (cp *ControlPlane) startControllers(ctx context.Context) error {
	for _, c := range []*component{cp.controllerManager(), cp.scheduler()} {
		if err := cp.step(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// startAPI brings up etcd and kube-apiserver. While etcd starts, the certificates are made. kube-apiserver has to wait
// for etcd's socket: if it comes too early, which is a matter of milliseconds, it makes a pause of a second.
func (cp *ControlPlane) startAPI(ctx context.Context) error {
	etcd, apiserver := cp.etcd(), cp.apiserver()
	if err := cp.stopOutdated(ctx, etcd, apiserver); err != nil {
		return err
	}
	etcdDone := cp.begin(etcd.name)
	if err := cp.launch(ctx, etcd); err != nil {
		return err
	}
	if err := cp.prepareCredentials(); err != nil {
		return err
	}
	if etcd.absent {
		// After a long time without etcd, the API may reconnect only after two minutes.
		if err := cp.stopFound(ctx, []string{apiserver.name}); err != nil {
			return err
		}
	}
	if err := etcd.awaitReady(ctx); err != nil {
		return err
	}
	if err := cp.loadFork(ctx); err != nil {
		return err
	}
	etcdDone()
	if etcd.absent && !cp.opts.APIOnly && cp.opts.Nodes > 0 {
		// kwok will need them, and kube-apiserver leaves a processor free. If it fails, kwok's start returns the error.
		cp.wg.Go(func() { _, _ = cp.kwokStages() })
	}
	if err := cp.step(ctx, apiserver); err != nil {
		return err
	}
	return cp.awaitUsers(ctx)
}

// prepareCredentials brings certificates and kubeconfigs up to date.
func (cp *ControlPlane) prepareCredentials() error {
	done := cp.begin("certificates")
	if _, err := ensureCertificates(cp.dir, cp.certificates(), cp.opts.Clock.Now()); err != nil {
		return err
	}
	if _, err := cp.writeClientTrust(); err != nil {
		return err
	}
	if err := cp.writeKubeconfigs(); err != nil {
		return err
	}
	done()
	return nil
}

// step starts a component, waits until it is ready and reports the duration.
func (cp *ControlPlane) step(ctx context.Context, c *component) error {
	done := cp.begin(c.name)
	if err := cp.launch(ctx, c); err != nil {
		return err
	}
	if err := c.awaitReady(ctx); err != nil {
		return err
	}
	done()
	return nil
}

// begin reports the begin of a step; the returned function reports its end.
func (cp *ControlPlane) begin(name string) (done func()) {
	began := time.Now()
	cp.opts.Progress(Step{Name: name})
	return func() { cp.opts.Progress(Step{Name: name, Done: true, Took: time.Since(began)}) }
}

// Config returns the administrator's client configuration, without client-side throttling. Clients reload its
// certificate after each renewal.
func (cp *ControlPlane) Config() *rest.Config {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return clientConfig(cp.dir, cp.state.server(), cp.generation())
}

// Kubeconfig returns the path of the administrator's kubeconfig.
func (cp *ControlPlane) Kubeconfig() string { return cp.dir.kubeconfig() }

// HostAddress returns an address of this host that Pods of its real nodes reach. It is not valid if there is none.
func (cp *ControlPlane) HostAddress() netip.Addr {
	nodes := cp.realNodes()
	if len(nodes) == 0 {
		return netip.Addr{}
	}
	return nodes[0].HostAddress()
}

// Server returns the URL of the API.
func (cp *ControlPlane) Server() string {
	cp.mu.Lock()
	defer cp.mu.Unlock()
	return cp.state.server()
}
