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

// RealNode returns this machine for a real node, or skips the test where that is not possible.
// Until the end of the test no other test of any package has a real node: leftovers of a node are
// searched for on the whole machine.
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
	t.Cleanup(func() { _ = lock.Close() }) // releases the lock
	for {
		err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
		if err == nil {
			return machine
		}
		if !errors.Is(err, syscall.EINTR) {
			t.Fatalf("wait for other tests with a real node: %v", err)
		}
	}
}
