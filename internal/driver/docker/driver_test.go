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

// uid is that of the machine of most tests.
const uid types.UID = "0b5b4d8e-0000-4000-8000-0000000000aa"

// guestDir is where make guest puts the default guest.
var guestDir = filepath.Join("..", "..", "..", "bin", "guest")

// world is a state directory, and a driver on it and on an engine.
type world struct {
	*testing.T
	engine  *testEngine
	api     *client.Client
	options Options
	driver  *Driver
	told    chan backend.Identity
}

func newWorld(t *testing.T) *world {
	t.Helper()
	engine := needEngine(t)
	w := &world{T: t, engine: engine, api: engine.client(t)}
	w.options = Options{StateDir: filepath.Join(t.TempDir(), "docker"), Host: engine.host(), GuestDir: guestDir}
	t.Cleanup(w.clear)
	w.open()
	return w
}

// open opens the driver, as a new manager does.
func (w *world) open() {
	w.Helper()
	if w.driver != nil {
		w.do(w.driver.Close())
	}
	w.options.Log = testr.New(w.T)
	// On a busy machine an engine may take longer than a driver waits. Whoever opens it
	// tries again.
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
	w.told = make(chan backend.Identity, 1000)
	driver.Watch(func(id backend.Identity) {
		select {
		case w.told <- id:
		default:
		}
	})
}

// clear removes what a failed test has left.
func (w *world) clear() {
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

// containers returns the names of all containers of the engine.
func (w *world) containers(ctx context.Context) []string {
	w.Helper()
	found, err := w.api.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		w.Errorf("list containers: %v", err)
	}
	var names []string
	for _, box := range found.Items {
		names = append(names, box.Names[0])
	}
	return names
}

// networks returns the names of the networks that a driver has created.
func (w *world) networks(ctx context.Context) []string {
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

// leftovers returns every container, network and file of machines.
func (w *world) leftovers(t *testing.T) []string {
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

// small is a small machine of the default guest.
func small(uid types.UID) backend.Machine {
	return backend.Machine{
		Identity: backend.Identity{UID: uid, Namespace: "default", Name: "vm", Cluster: "cluster"},
		MilliCPU: 500, MemoryBytes: 64 << 20, Hash: "1",
	}
}

func (w *world) kill(t *testing.T, uid types.UID) {
	t.Helper()
	if _, err := w.api.ContainerKill(t.Context(), containerName(uid), client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) drivertest.Backend {
		w := newWorld(t)
		return drivertest.Backend{
			Open: func(t *testing.T) backend.Driver {
				w.T = t
				w.open()
				return w.driver
			},
			Machine:   small,
			Kill:      w.kill,
			Leftovers: w.leftovers,
		}
	})
}

func (w *world) do(err error) {
	w.Helper()
	if err != nil && !errors.Is(err, backend.ErrInProgress) {
		w.Fatal(err)
	}
}

// server returns the machine of the test; nil if there is none.
func (w *world) server() *backend.Server {
	w.Helper()
	server, err := w.driver.Observe(w.Context(), small(uid).Identity)
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	w.do(err)
	return &server
}

func (w *world) eventually(what string, check func(*backend.Server) bool) *backend.Server {
	w.Helper()
	var server *backend.Server
	defer func() {
		if w.Failed() && server != nil {
			w.Logf("the server is %+v, ended %+v", server, server.Ended)
		}
	}()
	harness.Eventually(w, what, func() bool {
		server = w.server()
		return check(server)
	})
	return server
}

// is returns a check for a state in which nothing goes on.
func is(state backend.State) func(*backend.Server) bool {
	return func(s *backend.Server) bool { return s != nil && s.State == state && s.Task == backend.TaskNone }
}

func (w *world) create(machine backend.Machine) {
	w.Helper()
	w.do(w.driver.Create(w.Context(), machine))
	w.eventually("it is created", is(backend.StateStopped))
}

// run creates and starts a machine.
func (w *world) run(machine backend.Machine) *backend.Server {
	w.Helper()
	w.create(machine)
	return w.start(machine)
}

func (w *world) start(machine backend.Machine) *backend.Server {
	w.Helper()
	w.do(w.driver.Start(w.Context(), machine))
	return w.eventually("it runs", is(backend.StateRunning))
}

func (w *world) stop(grace time.Duration) *backend.Server {
	w.Helper()
	w.do(w.driver.Stop(w.Context(), small(uid).Identity, grace))
	return w.eventually("it is off", is(backend.StateStopped))
}

// remove deletes the machine of the test, of which nothing may be left.
func (w *world) remove(options backend.DeleteOptions) {
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
