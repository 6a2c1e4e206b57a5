package qemu

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/network"
	// Serves a network instead if this process was started for that.
	_ "github.com/keelson-dev/keelson/internal/network/role"
	"github.com/keelson-dev/keelson/internal/process"
)

const (
	// networkTimeout limits an attempt to apply the machines of a namespace to its network.
	networkTimeout = 5 * time.Second
	// networkRetry is the delay after a failed attempt.
	networkRetry = time.Second
	// networkCheck is the interval at which the process of a network is asked whether it still works.
	networkCheck = 10 * time.Second
	// networkMark is an entry in the environment of the process of a network, by which it is found without its record.
	networkMark = "KEELSON_NETWORK="
)

// namespaceNetwork is the network of the machines of a namespace: a process with a switch, which runs while a machine
// is on. One task makes it so, and repeats it after every change and when the process ends.
type namespaceNetwork struct {
	n         *networks
	namespace string
	dir       string
	// done is closed when the network is not followed any more.
	done chan struct{}
	// woken receives a value after a change.
	woken chan struct{}
	// searched means that no process of the network is without a record.
	searched bool

	mu     sync.Mutex
	prefix netip.Prefix
	// wanted and applied count the changes and those of them that the last attempt saw; err is its error. attempted is
	// closed after it.
	wanted, applied int
	err             error
	attempted       chan struct{}
	// problems are those of single machines; unreachable says why nodes do not reach a machine.
	problems, unreachable map[types.UID]string
	// sleepers means that a machine wakes when someone connects to it, and watching that watchWanted runs.
	sleepers, watching bool
}

func newNamespaceNetwork(n *networks, record networkRecord) *namespaceNetwork {
	return &namespaceNetwork{
		n: n, namespace: record.Namespace, dir: filepath.Join(n.d.networksDir(), record.Namespace), prefix: record.Prefix,
		done: make(chan struct{}), woken: make(chan struct{}, 1), attempted: make(chan struct{}),
	}
}

// touch has the present machines applied in the background.
func (w *namespaceNetwork) touch() int {
	w.mu.Lock()
	w.wanted++
	wanted := w.wanted
	w.mu.Unlock()
	select {
	case w.woken <- struct{}{}:
	default: // it will see this change, too
	}
	return wanted
}

// sync applies the present machines and returns the result.
func (w *namespaceNetwork) sync(ctx context.Context) error {
	wanted := w.touch()
	for {
		w.mu.Lock()
		applied, err, attempted := w.applied, w.err, w.attempted
		w.mu.Unlock()
		if applied >= wanted {
			return err
		}
		select {
		case <-attempted:
		case <-w.done:
			return w.n.d.ctx.Err()
		case <-ctx.Done():
			return fmt.Errorf("connect the machines of namespace %s: %w", w.namespace, ctx.Err())
		}
	}
}

// follow keeps the network as the machines need it until the driver is closed or the network is released.
func (w *namespaceNetwork) follow() {
	defer close(w.done)
	for {
		w.mu.Lock()
		wanted := w.wanted
		w.mu.Unlock()
		proc, released, err := w.attempt()
		if w.n.d.ctx.Err() != nil {
			return
		}
		w.finish(wanted, err)
		w.watchSleepers()
		if released {
			return
		}
		var again <-chan time.Time
		switch {
		case err != nil || w.hasProblems():
			again = time.After(networkRetry)
		case proc != nil:
			again = time.After(networkCheck)
		}
		var ended <-chan struct{}
		if proc != nil {
			ended = proc.Done()
		}
		select {
		case <-w.woken:
		case <-ended:
			w.n.d.options.Log.Info("The network of a namespace ended; starting it again", "namespace", w.namespace)
		case <-again:
		case <-w.n.d.ctx.Done():
			return
		}
	}
}

// finish publishes the result of an attempt that saw the first wanted changes.
func (w *namespaceNetwork) finish(wanted int, err error) {
	w.mu.Lock()
	before := w.err
	w.applied, w.err = wanted, err
	close(w.attempted)
	w.attempted = make(chan struct{})
	w.mu.Unlock()
	if (err == nil) == (before == nil) {
		return
	}
	if err != nil {
		w.n.d.options.Log.Error(err, "The network of a namespace does not work; trying again", "namespace", w.namespace)
	}
	for _, m := range w.n.d.all() {
		if m.id.Namespace == w.namespace {
			m.notifyChange()
		}
	}
}

// attempt makes the network what the machines need: its process runs with the present configuration, or has ended. proc is
// nil if it should not run.
func (w *namespaceNetwork) attempt() (proc *process.Process, released bool, err error) {
	ctx, cancel := context.WithTimeout(w.n.d.ctx, networkTimeout)
	defer cancel()
	config, needed := w.config()
	if !needed {
		if err := w.stop(ctx); err != nil {
			return nil, false, err
		}
		released, err = w.n.release(w)
		return nil, released, err
	}
	if proc, err = w.n.d.processes.Find(w.processID()); err != nil || hasEnded(proc) {
		if w.n.d.options.stopsOnly {
			return nil, false, nil
		}
		proc, err = w.start(ctx, config)
		return proc, false, err
	}
	if w.n.d.options.stopsOnly {
		return proc, false, nil
	}
	return proc, false, w.apply(ctx, proc, config)
}

// errorOf returns why the network of a machine does not work; "" if it does.
func (w *namespaceNetwork) errorOf(uid types.UID) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err.Error()
	}
	return w.problems[uid]
}

func (w *namespaceNetwork) hasProblems() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.problems)+len(w.unreachable) > 0
}

func hasEnded(proc *process.Process) bool {
	select {
	case <-proc.Done():
		return true
	default:
		return false
	}
}

func (w *namespaceNetwork) processID() string { return networkProcess + w.namespace }

// mark is in the environment of the process. It names the folder, because that is what must not be used by two.
func (w *namespaceNetwork) mark() string { return networkMark + w.dir }

// start starts the process with a configuration.
func (w *namespaceNetwork) start(ctx context.Context, config network.Config) (*process.Process, error) {
	if err := w.end(ctx); err != nil {
		return nil, err
	}
	if err := network.WriteConfig(w.dir, config); err != nil {
		return nil, fmt.Errorf("configure the network of namespace %s: %w", w.namespace, err)
	}
	step("network configured")
	// Sockets are named relative to the folder: their addresses have no room for long names.
	path, argv := network.Confined("..", filepath.Join("..", "..", filepath.Base(w.n.d.machinesDir())))
	proc, err := w.n.d.processes.Start(process.Spec{
		ID: w.processID(), Path: path, Argv0: argv[0], Args: argv[1:], WorkDir: w.dir,
		Env: []string{"PATH=" + os.Getenv("PATH"), w.mark()},
	})
	if err != nil {
		return nil, fmt.Errorf("start the network of namespace %s: %w", w.namespace, err)
	}
	step("network started")
	return proc, w.apply(ctx, proc, config)
}

// end ends the process, also if its record was lost or damaged.
func (w *namespaceNetwork) end(ctx context.Context) error {
	proc, err := w.n.d.processes.Find(w.processID())
	if err == nil {
		return proc.Stop(ctx, process.StopOptions{TermTimeout: time.Second, KillTimeout: time.Second})
	}
	if w.searched {
		return nil
	}
	if _, err := process.EndMarked(ctx, w.mark()); err != nil {
		return err
	}
	w.searched = true
	return w.n.d.processes.Discard(w.processID())
}

// apply gives the running process a configuration. A process that was started just now may not listen yet.
func (w *namespaceNetwork) apply(ctx context.Context, proc *process.Process, config network.Config) error {
	client, release, err := networkClient(w.dir)
	if err != nil {
		return fmt.Errorf("find the network of namespace %s: %w", w.namespace, err)
	}
	defer release()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for {
		err := client.Apply(ctx, config)
		if err == nil {
			return w.check(ctx, client)
		}
		if !errors.Is(err, network.ErrUnavailable) {
			return fmt.Errorf("configure the network of namespace %s: %w", w.namespace, err)
		}
		select {
		case <-proc.Done():
			return fmt.Errorf("the network of namespace %s ended: %s", w.namespace, lastOutput(proc.Status().LogTail))
		case <-ctx.Done():
			return fmt.Errorf("configure the network of namespace %s: %w", w.namespace, err)
		case <-pause.C:
		}
	}
}

// check looks for ports of the host that could not be used because another process has taken them, and replaces them.
func (w *namespaceNetwork) check(ctx context.Context, client *network.Client) error {
	status, err := client.Status(ctx)
	if err != nil {
		return fmt.Errorf("query the network of namespace %s: %w", w.namespace, err)
	}
	problems := map[types.UID]string{}
	unreachable := map[types.UID]string{}
	for _, machine := range status.Machines {
		for _, forward := range machine.Forwards {
			if forward.Listening || forward.Error == "" {
				continue
			}
			uid := types.UID(machine.UID)
			replace := true
			if w.n.d.options.isForService(forward.Forward) {
				unreachable[uid] = describeServiceFailure(&forward)
				replace = strings.Contains(forward.Error, syscall.EADDRINUSE.Error())
			} else {
				problems[uid] = fmt.Sprintf("port %s cannot be forwarded from %s: %s", forward.Name, forward.Host, forward.Error)
			}
			if m, err := w.n.d.find(backend.Identity{UID: uid}); err == nil && replace {
				m.replaceHostPort(forward.Name)
			}
		}
	}
	w.mu.Lock()
	before := w.unreachable
	w.problems, w.unreachable = problems, unreachable
	w.mu.Unlock()
	for _, m := range w.n.d.all() {
		if before[m.id.UID] != unreachable[m.id.UID] {
			m.notifyChange()
		}
	}
	return nil
}

// replaceHostPort gives a port of the machine another port of the host.
func (m *machine) replaceHostPort(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, port := range m.startedWith().Ports {
		if port.Name != name {
			continue
		}
		published, err := m.d.hostPorts([]v1alpha1.Port{port}, nil, nil)
		if err != nil {
			m.d.options.Log.Error(err, "Could not replace a port", "machine", m.id.UID)
			return
		}
		m.def.HostPorts = maps.Clone(m.def.HostPorts)
		m.def.HostPorts[name] = published[name]
		m.save()
		go m.notifyChange() // m.mu is held
	}
}

// stop ends the process and removes its record.
func (w *namespaceNetwork) stop(ctx context.Context) error {
	if err := w.end(ctx); err != nil {
		return fmt.Errorf("stop the network of namespace %s: %w", w.namespace, err)
	}
	step("network stopped")
	if err := w.n.d.processes.Remove(w.processID()); err != nil {
		return fmt.Errorf("stop the network of namespace %s: %w", w.namespace, err)
	}
	return nil
}
