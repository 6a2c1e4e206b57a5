// Package local is the engine that runs the control planes of clusters on this host.
//
// Each control plane has its own data directory, named after the UID of its Cluster. Its processes outlive the manager: the
// next manager finds them there and adopts them.
package local

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/engine/secrecy"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// Options configure an Engine.
type Options struct {
	// Dir is the parent of the data directories. The engine creates it with mode 0700 for the first cluster.
	Dir string
	// Snapshots are those of which clusters are made and restored.
	Snapshots etcdsnapshot.Dir
	// Binary returns the path of keelson-kube. Its directory may contain other versions with names such as
	// keelson-kube-v1.35.2.
	Binary func() (string, error)
	// Nodes is the number of simulated nodes of a cluster whose spec has no nodes.
	Nodes int
	// Machine returns this machine, for clusters with real nodes. Its error says why there can be none, with the remedy. Nil: there
	// are none.
	Machine func() (node.Machine, error)
	// Layers is the folder in which real nodes share layers of images. Empty means one for each cluster.
	Layers string
	// Addresses are the networks in which spec.apiServer.address may be, besides 127.0.0.0/8.
	Addresses []netip.Prefix
	// Ephemeral trades durability for speed.
	Ephemeral bool
	// QuotaBytes and StorageInterval are fields of controlplane.Options. Zero means the default.
	QuotaBytes      int64
	StorageInterval time.Duration
	// Env is added to the environment of the components.
	Env []string
	// Clock is the clock for certificates. Nil means the real clock.
	Clock clock.WithTicker
	// Log is the logger. The zero value discards all messages.
	Log logr.Logger
}

// Engine implements cluster.Engine.
type Engine struct {
	opts     Options
	changed  func(string)
	versions versions

	ctx    context.Context // of all operations; its end leaves processes running
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	clusters map[types.UID]*member
}

// member is a cluster that the engine supervises or removes.
type member struct {
	name string
	uid  types.UID

	mu      sync.Mutex
	cancel  context.CancelFunc // of the operation under way
	done    chan struct{}      // closed when that is over
	op      *cluster.Operation
	opFor   string // the desire.key that the operation applies
	present string // the desire.key of the supervised control plane; empty if there is none
	// draining is true from the drain of a node until a desired state is applied. Until then, a node may be without new Pods that is wanted
	// again.
	draining bool
	cp       *controlplane.ControlPlane
	nodes    *cluster.Nodes // of cp
	// replacing is true while the API is replaced by the operation under way.
	replacing bool

	lastClient   time.Time     // of cp, if its clients are watched; else zero
	idleListener *idleListener // listens while the cluster is idle, and serves the clients that have waited; nil if there is none
}

// New returns an engine. It starts nothing.
func New(opts Options) *Engine {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	e := &Engine{opts: opts, changed: func(string) {}, clusters: map[types.UID]*member{}}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.versions.ctx = e.ctx
	return e
}

// Notify implements cluster.Engine.
func (e *Engine) Notify(changed func(string)) { e.changed = changed }

// dir returns the data directory of a cluster.
func (e *Engine) dir(uid types.UID) string { return filepath.Join(e.opts.Dir, string(uid)) }

// member returns the cluster if the engine supervises it, or nil.
func (e *Engine) member(uid types.UID) *member {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clusters[uid]
}

// Apply implements cluster.Engine.
func (e *Engine) Apply(ctx context.Context, r cluster.Request) error {
	if e.ctx.Err() != nil {
		return cluster.ErrStopping
	}
	if r.Stop {
		return e.applyStop(r)
	}
	if _, err := e.newDesire(ctx, r); err != nil {
		return err // before anything is created
	}
	dir := e.dir(r.UID)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("create the directory of the cluster: %w", err)
	}
	if err := secrecy.MakeKey(filepath.Join(dir, keyFile)); err != nil {
		return err
	}
	// Before any process starts: List ignores clusters without an owner, so nothing would stop them.
	if err := writeOwner(dir, owner{Name: r.Name, ManagementClusterUID: r.ManagementClusterUID}); err != nil {
		return err
	}
	wanted, err := e.newDesire(ctx, r)
	if err != nil {
		return err
	}
	applied, err := readApplied(dir)
	if err != nil {
		return err
	}
	if applied != nil {
		if err := cluster.CheckUpgrade(applied.Version, wanted.version); err != nil {
			return err
		}
	}
	if wanted.snapshot, err = e.checkSnapshot(r, wanted, applied); err != nil {
		return err
	}
	wanted.snapshotUID = r.Snapshot.UID
	e.mu.Lock()
	defer e.mu.Unlock()
	m, err := e.attend(r.UID, r.Name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	under := m.done
	switch {
	case m.isOutdated(wanted):
		m.cancel()
	case under != nil, m.present == wanted.key() && wanted.isRestored(dir) && !m.draining:
		return nil // it is in progress, or there is nothing to do
	}
	if err := e.unmarkIdle(m.uid); err != nil {
		return err
	}
	e.begin(m, false, wanted.key(), func(ctx context.Context) error {
		if err := waitFor(ctx, under); err != nil {
			return err
		}
		return e.apply(ctx, m, wanted)
	})
	m.op.Restore = cluster.TokenOf(wanted.restore)
	return nil
}

// attend returns the member of a cluster, which it creates if needed. The caller holds e.mu until the operation has started,
// because Close acquires it before it waits for operations. The error is ErrStopping after Close.
func (e *Engine) attend(uid types.UID, name string) (*member, error) {
	if e.ctx.Err() != nil {
		return nil, cluster.ErrStopping
	}
	m := e.clusters[uid]
	if m == nil {
		m = &member{name: name, uid: uid}
		e.clusters[uid] = m
	}
	return m, nil
}

// begin starts an operation in the background. The caller holds both locks. An operation that Close interrupts has not failed:
// the next manager continues it.
func (e *Engine) begin(m *member, isDelete bool, hash string, do func(context.Context) error) {
	ctx, cancel := context.WithCancel(e.ctx)
	done := make(chan struct{})
	op := &cluster.Operation{Delete: isDelete, State: v1alpha1.OperationProcessing, Description: "Starting", Began: e.opts.Clock.Now()}
	m.cancel, m.done, m.op, m.opFor = cancel, done, op, hash
	e.wg.Go(func() {
		defer cancel()
		err := do(ctx)
		m.mu.Lock()
		op.Ended = e.opts.Clock.Now()
		switch {
		case err == nil:
			op.State, op.Description = v1alpha1.OperationSucceeded, "The spec is applied"
			if hash == stopKey {
				op.Description = "All processes of the cluster are stopped"
			}
		case e.ctx.Err() != nil:
			op.Ended, op.Err = time.Time{}, cluster.ErrStopping
		default:
			op.State, op.Description, op.Err = v1alpha1.OperationFailed, err.Error(), err
		}
		if m.op == op { // else a removal has taken its place and waits for this
			m.cancel, m.done = nil, nil
		}
		close(done)
		m.mu.Unlock()
		if isDelete && err == nil {
			e.forget(m)
		}
		e.changed(m.name)
	})
}

// forget drops a cluster without running processes, unless a new operation has started.
func (e *Engine) forget(m *member) {
	e.mu.Lock()
	defer e.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.clusters[m.uid] == m && m.done == nil && m.cp == nil && m.idleListener == nil {
		delete(e.clusters, m.uid)
	}
}

// release returns the control plane and ends its supervision; nil if there is none.
func (m *member) release() *controlplane.ControlPlane {
	m.mu.Lock()
	defer m.mu.Unlock()
	cp := m.cp
	m.cp, m.present, m.lastClient = nil, "", time.Time{}
	return cp
}

// apply starts the control plane of a cluster or adopts its running processes. It restarts processes whose command line has
// changed. If a restore fails, the cluster runs as before.
func (e *Engine) apply(ctx context.Context, m *member, wanted desire) error {
	notRestored := e.restore(ctx, m, wanted)
	if notRestored != nil && (ctx.Err() != nil || m.isPresent(wanted)) {
		return notRestored
	}
	return errors.Join(notRestored, e.run(ctx, m, wanted))
}

// run starts the control plane or adopts it.
func (e *Engine) run(ctx context.Context, m *member, wanted desire) error {
	if err := e.drainNodes(ctx, m, wanted); err != nil {
		return err
	}
	if before := m.release(); before != nil {
		if err := before.Detach(); err != nil {
			return err
		}
	}
	if err := e.fork(ctx, m, wanted); err != nil {
		return err
	}
	nodes := e.firstNodes(m, wanted)
	opts := e.controlPlaneOptions(m, wanted)
	listener := m.currentIdleListener()
	if listener != nil {
		opts.PortHeld = listener.holds
		listener.handOver(ctx)
	}
	defer m.setReplacing(false)
	cp, err := controlplane.Start(ctx, opts)
	if err != nil {
		m.closeIdleListener()
		if errors.Is(err, process.ErrLocked) {
			return fmt.Errorf("%w: another manager supervises the cluster: %w", cluster.ErrBusy, err)
		}
		return err
	}
	if listener != nil {
		listener.open(cp.Server())
	}
	if err := cp.Open(ctx); err != nil {
		return errors.Join(err, cp.Detach())
	}
	if err := writeApplied(e.dir(m.uid), wanted, cp.Rotation()); err != nil {
		return errors.Join(err, cp.Detach())
	}
	m.mu.Lock()
	m.cp, m.present, m.nodes, m.draining = cp, wanted.key(), nodes, false
	if wanted.spec.Idle {
		m.lastClient = e.opts.Clock.Now()
		e.wg.Go(func() { e.watchClients(m, cp) })
	}
	m.mu.Unlock()
	e.wg.Go(func() { e.settle(m, cp) })
	return nil
}

func (m *member) setReplacing(is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replacing = is
}

// describe sets the current step of an operation in progress.
func (m *member) describe(step string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.op != nil && m.op.State == v1alpha1.OperationProcessing {
		m.op.Description = step
	}
}

// Close implements cluster.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.cancel()
	all := e.clusters
	e.clusters = map[types.UID]*member{}
	e.mu.Unlock()
	var errs []error
	for _, m := range all {
		m.mu.Lock()
		done := m.done
		m.mu.Unlock()
		if done != nil {
			<-done // its context has ended
		}
		m.closeIdleListener()
		m.mu.Lock()
		if m.cp != nil {
			errs = append(errs, m.cp.Detach())
			m.cp, m.present = nil, ""
		}
		m.mu.Unlock()
	}
	e.wg.Wait()
	return errors.Join(errs...)
}

// StopAll stops the control planes of all clusters in the directory of a closed engine, and keeps their data. It returns their
// number.
func StopAll(ctx context.Context, dir string) (stopped int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list the clusters: %w", err)
	}
	errs := make([]error, len(entries))
	ran := make([]bool, len(entries))
	var wg sync.WaitGroup
	for i, entry := range entries {
		wg.Go(func() { ran[i], errs[i] = controlplane.StopAll(ctx, filepath.Join(dir, entry.Name())) })
	}
	wg.Wait()
	for _, did := range ran {
		if did {
			stopped++
		}
	}
	return stopped, errors.Join(errs...)
}
