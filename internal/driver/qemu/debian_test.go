package qemu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// debianTimeout limits the boot of an emulated Debian on a busy host.
const debianTimeout = 8 * time.Minute

// needDebian returns the path of the Debian image, or skips the test if it is not built. CI has it
// and fails on skips.
func needDebian(t *testing.T) string {
	t.Helper()
	needQEMU(t)
	path, err := filepath.Abs(filepath.Join("..", "..", "..", "bin", "debian", "disk.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skip("SKIP: no Debian image: run make debian")
	}
	return path
}

// A standard cloud image of Debian, with its own boot loader and kernel, cloud-init, which finds
// the seed, and the QEMU guest agent.
func TestLongDebian(t *testing.T) {
	path := needDebian(t)
	w := newFixture(t)
	machine := firmware(uid)
	machine.MilliCPU, machine.MemoryBytes, machine.DiskBytes = 2000, 512<<20, 5<<30
	machine.Image = &v1alpha1.Image{Path: path}
	machine.Seed = &backend.Seed{
		UserData: "#cloud-config\n" +
			"hostname: from-the-seed\n" +
			"write_files: [{path: /etc/motto, content: \"steady\\n\"}]\n" +
			"runcmd:\n" + fmt.Sprintf(debianShell, shellPort) +
			"- [sh, -c, 'echo \"The seed of $(hostname) is applied: $(cat /etc/motto), $(cat /sys/block/vda/size) sectors\" >/dev/console']\n",
	}
	began := time.Now()
	w.run(machine)
	given := w.server().Addresses
	w.eventuallyWithin(debianTimeout, "the guest agent answers", answers)
	t.Logf("the guest agent answered after %v", time.Since(began))
	w.eventuallyWithin(debianTimeout, "cloud-init has applied the seed", func(*backend.Server) bool {
		return strings.Contains(w.serial(), "The seed of from-the-seed is applied: steady, 10485760 sectors")
	})
	t.Logf("the seed was applied after %v", time.Since(began))
	server := w.server()
	if !slices.Equal(server.Addresses, given) {
		t.Errorf("the guest has the addresses %v, want %v", server.Addresses, given)
	}
	testDisksOfDebian(t, w, &machine)
	began = time.Now()
	w.do(w.driver.Stop(t.Context(), machine.Identity, debianTimeout))
	server = w.eventuallyWithin(debianTimeout, "it is off", is(backend.StateStopped))
	t.Logf("it powered off within %v", time.Since(began))
	if server.Ended == nil || server.Ended.Cause != backend.CauseRequested {
		t.Errorf("ended with %+v", server.Ended)
	}
	if !strings.Contains(w.serial(), "reboot: Power down") {
		t.Errorf("it did not power off by itself:\n%s", w.serial())
	}
	w.remove()
}

// serial returns the serial log of the machine of the test.
func (w *fixture) serial() string {
	w.Helper()
	log, err := os.ReadFile(filepath.Join(w.driver.machinesDir(), string(uid), serialLog))
	w.do(err)
	return string(log)
}
