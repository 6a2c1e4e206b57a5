package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/await"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
)

// uid is the UID of the machine in most tests. It is unique to this process: machines' processes
// are found by it, also those of other test runs.
var uid = testUID()

func testUID() types.UID {
	if given := os.Getenv(helperUID); given != "" {
		return types.UID(given)
	}
	return uuid.NewUUID()
}

// needQEMU skips a test where QEMU is not installed. CI has it and fails on skips.
func needQEMU(t *testing.T) {
	t.Helper()
	for _, program := range []string{"qemu-system-" + arch(), "qemu-img"} {
		if _, err := find(program, ""); err != nil {
			t.Skipf("SKIP: %v", err)
		}
	}
}

// loopback has the addresses of test servers.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")}

// guestFolder is the folder of the default guest.
var guestFolder = filepath.Join("..", "..", "..", "bin", "guest")

// testUsers are the users of machines if tests run as root.
var testUsers = UserRange{2100000000, 2100065535}

// fixture is a state directory and a driver on it.
type fixture struct {
	*testing.T
	options Options
	driver  *Driver
	console io.ReadWriteCloser // see shell
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	needQEMU(t)
	// The name is long, as a home directory's may be: sockets must still work.
	dir := filepath.Join(t.TempDir(), "a-state-directory-with-quite-a-long-name-that-does-not-fit-into-a-socket-address")
	w := &fixture{T: t, options: Options{StateDir: dir, GuestDir: guestFolder, ImageDirs: confine.Anywhere, ImageNetworks: loopback, Users: testUsers, InstantStart: InstantNever, Log: testr.New(t)}}
	if shared := os.Getenv(testTemplates); shared != "" {
		w.do(os.MkdirAll(dir, 0o700))
		w.do(os.Symlink(shared, filepath.Join(dir, "templates")))
		w.options.InstantStart = InstantAlways
	}
	t.Cleanup(w.clear)
	w.open()
	return w
}

// open opens the driver as a new manager.
func (w *fixture) open() {
	w.Helper()
	if w.driver != nil {
		if err := w.driver.Close(); err != nil {
			w.Fatalf("Close: %v", err)
		}
	}
	w.options.Log = testr.New(w.T)
	driver, err := Open(w.options)
	if err != nil {
		w.Fatalf("Open: %v", err)
	}
	w.driver = driver
}

// clear removes what a failed test left behind.
func (w *fixture) clear() {
	if w.driver == nil {
		return
	}
	_ = w.driver.Close() // it may be closed
	entries, _ := os.ReadDir(w.driver.machinesDir())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	networks, _ := os.ReadDir(w.driver.networksDir())
	for _, entry := range networks {
		mark := networkMark + filepath.Join(w.driver.networksDir(), entry.Name())
		if _, err := process.EndMarked(ctx, mark); err != nil {
			w.Errorf("clear up: %v", err)
		}
	}
	for _, entry := range entries {
		if err := killOrphans(ctx, types.UID(entry.Name())); err != nil {
			w.Errorf("clear up: %v", err)
		}
		if w.Failed() {
			output, _ := os.ReadFile(filepath.Join(w.driver.machinesDir(), entry.Name(), serialLog)) // there may be none
			w.Logf("log of machine %s and its QEMU:\n%s", entry.Name(), output[max(0, len(output)-4000):])
		}
	}
}

// firmware returns a machine without anything to boot: it stays in its firmware until it is
// stopped, starts quickly and needs no guest.
func firmware(uid types.UID) backend.Machine {
	none := false
	return backend.Machine{
		Identity: backend.Identity{UID: uid, Namespace: "default", Name: "vm", Cluster: "cluster"},
		MilliCPU: 1000, MemoryBytes: 64 << 20, DiskBytes: 1 << 20, Hash: "1",
		Image: &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: ""}, Kernel: "", Agent: &none},
	}
}

// backend returns the driver for the contract tests.
func (w *fixture) backend(image string) drivertest.Backend {
	return drivertest.Backend{
		Open: func(t *testing.T) backend.Driver {
			w.T = t
			w.open()
			return w.driver
		},
		Machine: func(uid types.UID) backend.Machine {
			machine := firmware(uid)
			machine.Image.Path = image
			return machine
		},
		Kill:      w.kill,
		Leftovers: w.leftovers,
	}
}

// kill kills the QEMU of a machine.
func (w *fixture) kill(t *testing.T, uid types.UID) {
	t.Helper()
	signals.Send(t, w.pid(t, uid), syscall.SIGKILL)
}

// pid returns the PID of a machine's QEMU.
func (w *fixture) pid(t *testing.T, uid types.UID) int {
	t.Helper()
	pids, err := findOrphans(uid)
	if err != nil || len(pids) != 1 {
		t.Fatalf("processes of machine %s are %v, %v", uid, pids, err)
	}
	return pids[0]
}

// leftovers returns all processes and files of machines.
func (w *fixture) leftovers(t *testing.T) []string {
	t.Helper()
	var left []string
	entries, err := os.ReadDir(w.driver.machinesDir())
	if err != nil {
		t.Fatal(err)
	}
	networks, err := os.ReadDir(w.driver.networksDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range slices.Concat(entries, networks) {
		left = append(left, entry.Name())
		if process.IsMarked(networkMark + filepath.Join(w.driver.networksDir(), entry.Name())) {
			left = append(left, "the network of "+entry.Name())
		}
	}
	statuses, err := process.Peek(filepath.Join(w.options.StateDir, "processes"))
	if err != nil {
		t.Fatal(err)
	}
	for _, status := range statuses {
		if status.ID == templateProcess && w.options.InstantStart == InstantAlways {
			continue // it belongs to no machine
		}
		left = append(left, fmt.Sprintf("process %s %s", status.ID, status.State))
	}
	return left
}

// makeImage runs qemu-img create.
func (w *fixture) makeImage(args ...string) {
	w.Helper()
	if out, err := exec.Command(w.driver.imageTool, append([]string{"create", "-q"}, args...)...).CombinedOutput(); err != nil {
		w.Fatalf("create an image: %v: %s", err, out)
	}
}

// emptyImage creates an empty raw image.
func emptyImage(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "empty.raw")
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestContract(t *testing.T) {
	needQEMU(t)
	drivertest.Run(t, func(t *testing.T) drivertest.Backend { return newFixture(t).backend(emptyImage(t)) })
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
	server, err := w.driver.Observe(w.Context(), backend.Identity{UID: uid})
	if errors.Is(err, backend.ErrNotFound) {
		return nil
	}
	w.do(err)
	return &server
}

func (w *fixture) eventually(what string, check func(*backend.Server) bool) *backend.Server {
	w.Helper()
	return w.eventuallyWithin(harness.WaitTimeout, what, check)
}

func (w *fixture) eventuallyWithin(timeout time.Duration, what string, check func(*backend.Server) bool) *backend.Server {
	w.Helper()
	var server *backend.Server
	defer func() {
		if w.Failed() && server != nil {
			w.Logf("server is %+v, ended %+v", server, server.Ended)
		}
	}()
	await.Until(w, timeout, what, func() bool {
		server = w.server()
		return check(server)
	})
	return server
}

// is returns a check for a state without a running task.
func is(state backend.State) func(*backend.Server) bool {
	return func(s *backend.Server) bool { return s != nil && s.State == state && s.Task == backend.TaskNone }
}

// run creates and starts a machine.
func (w *fixture) run(machine backend.Machine) *backend.Server {
	w.Helper()
	w.create(machine)
	if w.options.InstantStart == InstantAlways {
		w.haveTemplate(machine)
	}
	return w.starts(machine)
}

// starts starts the machine of the test, or wakes it.
func (w *fixture) starts(machine backend.Machine) *backend.Server {
	w.Helper()
	w.do(w.driver.Start(w.Context(), machine))
	return w.eventually("it runs", is(backend.StateRunning))
}

// stops powers the machine of the test off at once.
func (w *fixture) stops() *backend.Server {
	w.Helper()
	w.do(w.driver.Stop(w.Context(), backend.Identity{UID: uid}, 0))
	return w.eventually("it is off", is(backend.StateStopped))
}

// noProcess checks that the machine of the test has no QEMU.
func (w *fixture) noProcess() {
	w.Helper()
	if pids, err := findOrphans(uid); err != nil || len(pids) > 0 {
		w.Errorf("processes of the machine are %v, %v", pids, err)
	}
}

// check runs qemu-img check on an image.
func (w *fixture) check(path string) {
	w.Helper()
	if out, err := exec.Command(w.driver.imageTool, "check", "-U", "-q", path).CombinedOutput(); err != nil {
		w.Errorf("check %s: %v: %s", path, err, out)
	}
}

// delete deletes a machine.
func (w *fixture) delete(machine backend.Machine) {
	w.Helper()
	harness.Eventually(w, machine.Name+" is deleted", func() bool {
		err := w.driver.Delete(w.Context(), machine.Identity, backend.DeleteOptions{})
		w.do(err)
		return err == nil
	})
}

// remove deletes the machine of the test and checks that nothing is left over.
func (w *fixture) remove() {
	w.Helper()
	w.delete(backend.Machine{Identity: backend.Identity{UID: uid, Namespace: "default", Name: "the machine of the test"}})
	if left := w.leftovers(w.T); len(left) > 0 {
		w.Errorf("left behind: %v", left)
	}
	w.noProcess()
	if process.IsMarked(networkMark + filepath.Join(w.driver.networksDir(), "default")) {
		w.Error("leaked the network")
	}
}
