package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"github.com/moby/moby/client"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// uid is the UID of the machine in most tests.
const uid types.UID = "0b5b4d8e-0000-4000-8000-0000000000aa"

// guestDir is the output of make guest.
var guestDir = filepath.Join("..", "..", "..", "bin", "guest")

// fixture is a state directory and a driver with an engine.
type fixture struct {
	*testing.T
	engine   *testEngine
	api      *client.Client
	options  Options
	driver   *Driver
	reported chan backend.Identity
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	engine := needEngine(t)
	w := &fixture{T: t, engine: engine, api: engine.client(t)}
	w.options = Options{StateDir: filepath.Join(t.TempDir(), "docker"), Host: engine.host(), GuestDir: guestDir}
	t.Cleanup(w.clear)
	w.open()
	return w
}

// open opens the driver as a new manager.
func (w *fixture) open() {
	w.Helper()
	if w.driver != nil {
		w.do(w.driver.Close())
	}
	w.options.Log = testr.New(w.T)
	// On a busy host the engine may respond after the driver's timeout, so retry.
	var driver *Driver
	var err error
	defer func() {
		if w.Failed() && err != nil {
			w.Logf("Open: %v", err)
		}
	}()
	harness.Eventually(w, "the driver is open", func() bool {
		driver, err = Open(w.options)
		return err == nil
	})
	w.driver = driver
	w.reported = make(chan backend.Identity, 1000)
	driver.Watch(func(id backend.Identity) {
		select {
		case w.reported <- id:
		default:
		}
	})
}

// clear removes what a failed test left behind.
func (w *fixture) clear() {
	if w.driver != nil {
		_ = w.driver.Close() // it may be closed
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, name := range w.containers(ctx) {
		_, err := w.api.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true})
		if err != nil {
			w.Errorf("clear up: %v", err)
		}
	}
	for _, name := range w.networks(ctx) {
		if _, err := w.api.NetworkRemove(ctx, name, client.NetworkRemoveOptions{}); err != nil {
			w.Errorf("clear up: %v", err)
		}
	}
}

func (w *fixture) containers(ctx context.Context) []string {
	w.Helper()
	found, err := w.api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		w.Errorf("list containers: %v", err)
	}
	var names []string
	for _, ctr := range found.Items {
		names = append(names, ctr.Names[0])
	}
	return names
}

// networks returns the names of Keelson's networks.
func (w *fixture) networks(ctx context.Context) []string {
	w.Helper()
	found, err := w.api.NetworkList(ctx, client.NetworkListOptions{Filters: client.Filters{}.Add("label", labelNamespace)})
	if err != nil {
		w.Errorf("list networks: %v", err)
	}
	var names []string
	for _, n := range found.Items {
		names = append(names, n.Name)
	}
	return names
}

// leftovers returns all containers, networks and files of machines.
func (w *fixture) leftovers(t *testing.T) []string {
	t.Helper()
	left := append(w.containers(t.Context()), w.networks(t.Context())...)
	entries, err := os.ReadDir(w.options.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	return left
}

// small returns a small machine with the default guest.
func small(uid types.UID) backend.Machine {
	return backend.Machine{
		Identity: backend.Identity{UID: uid, Namespace: "default", Name: "vm", Cluster: "cluster"},
		MilliCPU: 500, MemoryBytes: 64 << 20, Hash: "1",
	}
}

func (w *fixture) kill(t *testing.T, uid types.UID) {
	t.Helper()
	if _, err := w.api.ContainerKill(t.Context(), containerName(uid), client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Backend {
		w := newFixture(t)
		return drivertest.Backend{
			Open: func(t *testing.T) backend.Driver {
				w.T = t
				w.open()
				return w.driver
			},
			Machine:   small,
			Kill:      w.kill,
			Leftovers: w.leftovers,
			Apart:     true,
		}
	})
}

func (w *fixture) do(err error) {
	w.Helper()
	if err != nil && !errors.Is(err, backend.ErrInProgress) {
		w.Fatal(err)
	}
}

// server returns the machine of the test; nil if it does not exist.
func (w *fixture) server() *backend.Server {
	w.Helper()
	server, err := w.driver.Observe(w.Context(), small(uid).Identity)
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	w.do(err)
	return &server
}

func (w *fixture) eventually(what string, check func(*backend.Server) bool) *backend.Server {
	w.Helper()
	var server *backend.Server
	defer func() {
		if w.Failed() && server != nil {
			w.Logf("server is %+v, ended %+v", server, server.Ended)
		}
	}()
	harness.Eventually(w, what, func() bool {
		server = w.server()
		return check(server)
	})
	return server
}

// is returns a check for a state without a running task.
func is(state backend.State) func(*backend.Server) bool {
	return func(s *backend.Server) bool { return s != nil && s.State == state && s.Task == backend.TaskNone }
}

func (w *fixture) create(machine backend.Machine) {
	w.Helper()
	w.do(w.driver.Create(w.Context(), machine))
	w.eventually("it is created", is(backend.StateStopped))
}

// run creates and starts a machine.
func (w *fixture) run(machine backend.Machine) *backend.Server {
	w.Helper()
	w.create(machine)
	return w.start(machine)
}

func (w *fixture) start(machine backend.Machine) *backend.Server {
	w.Helper()
	w.do(w.driver.Start(w.Context(), machine))
	return w.eventually("it runs", is(backend.StateRunning))
}

func (w *fixture) stop(grace time.Duration) *backend.Server {
	w.Helper()
	w.do(w.driver.Stop(w.Context(), small(uid).Identity, grace))
	return w.eventually("it is off", is(backend.StateStopped))
}

// remove deletes the machine of the test and checks that nothing is left over.
func (w *fixture) remove(options backend.DeleteOptions) {
	w.Helper()
	harness.Eventually(w, "it is deleted", func() bool {
		err := w.driver.Delete(w.Context(), small(uid).Identity, options)
		w.do(err)
		return err == nil
	})
	if left := w.leftovers(w.T); len(left) > 0 {
		w.Errorf("left behind: %v", left)
	}
}
