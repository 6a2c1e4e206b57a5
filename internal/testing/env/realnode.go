package env

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
)

// RealNode returns this machine, to run a real node on, or skips the test where that is not possible. Until the test ends
// it is the only one with a real node, of all packages: what a node leaves behind is looked for on the machine as a whole.
func RealNode(t testing.TB) node.Machine {
	t.Helper()
	kube, err := Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	machine := node.Look(filepath.Join(filepath.Dir(kube), "node"))
	if missing := machine.Missing(); len(missing) > 0 {
		t.Skipf("No real node here, missing: %s", strings.Join(missing, "; "))
	}
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), "keelson-real-node.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Close() }) // gives it up
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		if err == nil {
			return machine
		}
		if !errors.Is(err, syscall.EINTR) {
			t.Fatalf("wait for the tests that have a real node: %v", err)
		}
	}
}
