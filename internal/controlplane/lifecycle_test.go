package controlplane_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// The tests in this file use stand-ins for the components. What they test is ours alone: who is started, found again,
// started again and stopped, and when.

// coreSteps are the steps of Start, in order, as stepName has them.
var coreSteps = []string{
	"etcd begun", "certificates begun", "certificates done", "etcd done", "kube-apiserver begun", "kube-apiserver done",
	"kube-controller-manager begun", "kube-controller-manager done", "kube-scheduler begun", "kube-scheduler done",
}

func fault(t *testing.T, dir, component, kind string) {
	t.Helper()
	sockets := filepath.Join(dir, "sockets")
	if err := os.MkdirAll(sockets, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(sockets, component+".fault"), []byte(kind), 0o600); err != nil {
		t.Fatal(err)
	}
}

// requireGone fails the test if any process, or the socket of one, is left.
func requireGone(t *testing.T, dir string) {
	t.Helper()
	if diff := cmp.Diff(map[string]int{}, census(t, dir)); diff != "" {
		t.Errorf("processes that are left (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(filepath.Join(dir, "sockets"))
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.Type()&os.ModeSocket != 0 && len(census(t, dir)) == 0 {
			if c, err := net.Dial("unix", filepath.Join(dir, "sockets", entry.Name())); err == nil {
				_ = c.Close()
				t.Errorf("somebody listens on %s", entry.Name())
			}
		}
	}
}

// once is the census of a control plane with every process there once.
func once(names ...string) map[string]int {
	count := map[string]int{}
	for _, name := range names {
		count[name] = 1
	}
	return count
}

func TestInterruptedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, step := range coreSteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			var seen []string
			cp, err := controlplane.Start(ctx, controlplane.Options{
				Dir: dir, Binary: standInBinary(t),
				Progress: func(s controlplane.Step) {
					seen = append(seen, stepName(s))
					if stepName(s) == step {
						interrupt()
					}
				},
			})
			if err == nil { // it was too late
				err = errors.Join(context.Canceled, cp.Stop(t.Context()))
			}
			if !errors.Is(err, context.Canceled) {
				t.Errorf("error %v, want one that says it was interrupted", err)
			}
			if !slices.Contains(seen, step) || !slices.Equal(seen, coreSteps[:len(seen)]) {
				t.Errorf("steps were %q, want the beginning of %q with %q", seen, coreSteps, step)
			}
			requireGone(t, dir)
			requireUnlocked(t, dir)
		})
	}
}

func requireUnlocked(t *testing.T, dir string) {
	t.Helper()
	procs, err := process.Open(filepath.Join(dir, "processes"))
	if err != nil {
		t.Errorf("the directory is not free for the next: %v", err)
		return
	}
	if err := procs.Close(); err != nil {
		t.Error(err)
	}
}

func TestKilledStartIsContinued(t *testing.T) {
	t.Parallel()
	for _, step := range coreSteps {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			args := helperArgs{Dir: dir, Binary: standInBinary(t), KillAt: step}
			startHelper(t, args).mustKillItself(t)
			left := running(t, dir)

			start(t, controlplane.Options{Dir: dir, Binary: args.Binary})
			want := once("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
			requireProcesses(t, dir, want)
			now := running(t, dir)
			for name, pid := range left {
				if now[name] != pid {
					t.Errorf("%s was not taken over: pid %d, now %d", name, pid, now[name])
				}
			}
		})
	}
}

func TestStartThatFails(t *testing.T) {
	t.Parallel()
	for _, component := range []string{"etcd", "kube-apiserver"} {
		t.Run(component, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			fault(t, dir, component, faultExit)
			began := time.Now()
			_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Binary: standInBinary(t)})
			for _, text := range []string{component + " has failed 3 times", "exit code 3", component + ".log", "this is the reason"} {
				if err == nil || !strings.Contains(err.Error(), text) {
					t.Errorf("error %v does not say %q", err, text)
				}
			}
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s to fail", took)
			}
			requireGone(t, dir)
			requireUnlocked(t, dir)
		})
	}
}

func TestStartWithoutBinary(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	missing := filepath.Join(dir, "missing")
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Binary: missing})
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("error %v, want one that names the file that is not there", err)
	}
	requireUnlocked(t, dir)
}

// A manager that is restarted must not take down what outlived it, also when it is stopped while it starts.
func TestFailedStartLeavesWhatItFound(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	opts := controlplane.Options{Dir: dir, Binary: standInBinary(t)}
	if err := start(t, opts).Detach(); err != nil {
		t.Fatal(err)
	}
	before := running(t, dir)
	fault(t, dir, "kube-apiserver", faultExit)
	kill(t, before["kube-apiserver"])
	eventually(t, "the end of kube-apiserver", func() bool { return running(t, dir)["kube-apiserver"] == 0 })
	if _, err := controlplane.Start(t.Context(), opts); err == nil {
		t.Fatal("the start succeeded")
	}
	delete(before, "kube-apiserver")
	if diff := cmp.Diff(before, running(t, dir)); diff != "" {
		t.Errorf("what runs (-before +after):\n%s", diff)
	}
	requireUnlocked(t, dir)
}

func TestComponentsThatAreLeftOutAreStopped(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	opts := controlplane.Options{Dir: dir, Binary: standInBinary(t)}
	if err := start(t, opts).Detach(); err != nil {
		t.Fatal(err)
	}
	before := running(t, dir)
	opts.APIOnly = true
	start(t, opts)
	want := map[string]int{"etcd": before["etcd"], "kube-apiserver": before["kube-apiserver"]}
	if diff := cmp.Diff(want, running(t, dir)); diff != "" {
		t.Errorf("what runs (-want +got):\n%s", diff)
	}
}

// An API server that was long without etcd looks for it seldom; a new one is there at once.
func TestAPIServerWithoutEtcdIsReplaced(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	opts := controlplane.Options{Dir: dir, Binary: standInBinary(t), APIOnly: true}
	if err := start(t, opts).Detach(); err != nil {
		t.Fatal(err)
	}
	before := running(t, dir)
	kill(t, before["etcd"])
	eventually(t, "the end of etcd", func() bool { return running(t, dir)["etcd"] == 0 })
	start(t, opts)
	after := running(t, dir)
	if after["kube-apiserver"] == before["kube-apiserver"] || after["kube-apiserver"] == 0 {
		t.Errorf("kube-apiserver was pid %d and is %d; want another", before["kube-apiserver"], after["kube-apiserver"])
	}
}

// A change restarts only what it concerns. The API is announced to be away, and etcd is never replaced under an API that ends.
func TestReplacement(t *testing.T) {
	t.Parallel()
	all := []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	for _, tt := range []struct {
		name     string
		change   func(t *testing.T, opts *controlplane.Options)
		replaced []string
		away     bool
	}{
		{name: "nothing", change: func(*testing.T, *controlplane.Options) {}},
		{name: "etcd", change: func(_ *testing.T, o *controlplane.Options) { o.Ephemeral = true }, replaced: all[:1]},
		{name: "the API", change: func(_ *testing.T, o *controlplane.Options) { o.APIServerArgs = []string{"--event-ttl=2h"} }, replaced: all[1:2], away: true},
		{name: "the version", change: func(t *testing.T, o *controlplane.Options) {
			other := filepath.Join(t.TempDir(), "other")
			if err := os.Symlink(o.Binary, other); err != nil {
				t.Fatal(err)
			}
			o.Binary = other
		}, replaced: all, away: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			opts := controlplane.Options{Dir: dir, Binary: standInBinary(t)}
			if err := start(t, opts).Detach(); err != nil {
				t.Fatal(err)
			}
			before, away := running(t, dir), 0
			opts.Replacing = func() {
				away++
				if diff := cmp.Diff(before, running(t, dir)); diff != "" {
					t.Errorf("what runs when the API is about to be replaced (-before +now):\n%s", diff)
				}
			}
			opts.Progress = func(s controlplane.Step) {
				if now := running(t, dir)["kube-apiserver"]; len(tt.replaced) == len(all) && stepName(s) == "etcd begun" && now != 0 {
					t.Errorf("etcd is replaced under the API, which is pid %d", now)
				}
			}
			tt.change(t, &opts)
			start(t, opts)
			var replaced []string
			for name, pid := range running(t, dir) {
				if before[name] != pid {
					replaced = append(replaced, name)
				}
			}
			slices.Sort(replaced)
			if !slices.Equal(replaced, tt.replaced) || (away == 1) != tt.away || away > 1 {
				t.Errorf("it replaced %v, and told %d times that the API is away; want %v and %t", replaced, away, tt.replaced, tt.away)
			}
		})
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		fault string // of kube-apiserver
	}{
		{name: "politely", ctx: context.Background()},
		{name: "no time: killed", ctx: ended},
		{name: "no time, and deaf: killed", ctx: ended, fault: faultDeaf},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dir := newDir(t)
			fault(t, dir, "kube-apiserver", tt.fault)
			cp := start(t, controlplane.Options{Dir: dir, Binary: standInBinary(t)})
			if err := cp.Stop(tt.ctx); err != nil {
				t.Error(err)
			}
			requireGone(t, dir)
			requireUnlocked(t, dir)
			if err := cp.Stop(tt.ctx); err != nil {
				t.Errorf("second stop: %v", err)
			}
			if err := cp.Settle(t.Context()); err == nil {
				t.Error("a control plane that was stopped settles")
			}
		})
	}
}

func TestStopAfterDetach(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	cp := start(t, controlplane.Options{Dir: dir, Binary: standInBinary(t), APIOnly: true})
	if err := cp.Detach(); err != nil {
		t.Fatal(err)
	}
	if err := cp.Stop(t.Context()); !errors.Is(err, process.ErrClosed) {
		t.Errorf("error %v, want ErrClosed", err)
	}
	requireProcesses(t, dir, once("etcd", "kube-apiserver"))
}

func TestSecondStartIsRefused(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	args := helperArgs{Dir: dir, Binary: standInBinary(t), APIOnly: true}
	h := startHelper(t, args)
	h.mustBeReady(t)
	before := running(t, dir)
	_, err := controlplane.Start(t.Context(), controlplane.Options{Dir: dir, Binary: args.Binary, APIOnly: true})
	var locked *process.LockedError
	if !errors.Is(err, process.ErrLocked) || !errors.As(err, &locked) || locked.PID != h.cmd.Process.Pid {
		t.Errorf("error %v (%+v), want that process %d holds the directory", err, locked, h.cmd.Process.Pid)
	}
	if diff := cmp.Diff(before, running(t, dir)); diff != "" {
		t.Errorf("what runs (-before +after the refusal):\n%s", diff)
	}
}

// messages collects what a control plane logs. on is called with each message while it is logged.
type messages struct {
	mu  sync.Mutex
	all []string
}

func (m *messages) logger(on func(message string)) logr.Logger {
	return funcr.New(func(prefix, args string) {
		m.mu.Lock()
		m.all = append(m.all, args)
		m.mu.Unlock()
		on(args)
	}, funcr.Options{})
}

func (m *messages) contain(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.all, func(message string) bool { return strings.Contains(message, text) })
}

// While it runs, clients know the port: kube-apiserver waits until it has it again.
func TestPortIsTakenWhileRunning(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	var log messages
	var address string
	var taken net.Listener
	cp := start(t, controlplane.Options{
		Dir: dir, Binary: standInBinary(t), APIOnly: true,
		Log: log.logger(func(message string) {
			// Between the end of kube-apiserver and its restart.
			if strings.Contains(message, "A component has ended") && taken == nil {
				var err error
				if taken, err = net.Listen("tcp", address); err != nil {
					t.Error(err)
				}
			}
		}),
	})
	server, err := url.Parse(cp.Server())
	if err != nil {
		t.Fatal(err)
	}
	address = server.Host
	kill(t, running(t, dir)["kube-apiserver"])
	eventually(t, "a message", func() bool {
		return log.contain("port " + server.Port() + " on 127.0.0.1 is in use by another program: stop that program")
	})
	if pid := running(t, dir)["kube-apiserver"]; pid != 0 {
		t.Errorf("kube-apiserver runs, pid %d", pid)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "kube-apiserver to come back", func() bool { return running(t, dir)["kube-apiserver"] != 0 })
	if got := cp.Server(); got != server.String() {
		t.Errorf("the API moved from %s to %s", server, got)
	}
}

// A start with a fixed port that is in use says by whom, if the caller knows it.
func TestPortIsTakenBy(t *testing.T) {
	t.Parallel()
	cp := start(t, controlplane.Options{Dir: newDir(t), Binary: standInBinary(t), APIOnly: true})
	server, err := url.Parse(cp.Server())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(server.Port())
	if err != nil {
		t.Fatal(err)
	}
	for user, want := range map[string]string{
		"":              " on 127.0.0.1 is in use by another program: stop that program",
		"the Cluster a": " on 127.0.0.1 is in use by the Cluster a: choose another port for one of the two",
	} {
		opts := controlplane.Options{Dir: newDir(t), Binary: standInBinary(t), APIOnly: true, Port: port, PortUser: func(of string) string {
			if of != cp.Server() {
				t.Errorf("it asks for the user of %s, want %s", of, cp.Server())
			}
			return user
		}}
		if _, err := controlplane.Start(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "port "+server.Port()+want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// Every component comes back whenever it ends, with pauses that the test does not measure but would wait for.
func TestComponentsComeBackAgainAndAgain(t *testing.T) {
	t.Parallel()
	dir := newDir(t)
	start(t, controlplane.Options{Dir: dir, Binary: standInBinary(t)})
	for range 3 {
		before := running(t, dir)
		for _, pid := range before {
			kill(t, pid)
		}
		eventually(t, "all components to come back", func() bool {
			now := running(t, dir)
			return len(now) == len(before) && !slices.ContainsFunc(slices.Collect(maps.Keys(now)), func(name string) bool {
				return now[name] == before[name]
			})
		})
	}
	want := once("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
	requireProcesses(t, dir, want)
}
