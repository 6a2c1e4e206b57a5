package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// disksDone checks that no change of a disk is pending.
func disksDone(s *backend.Server) bool {
	return s != nil && len(s.Disks) == 0 && len(s.Pending) == 0
}

// diskFiles returns the files of the disks of spec.disks.
func (w *fixture) diskFiles() map[string]string {
	w.Helper()
	files, err := dataDisks(filepath.Join(w.driver.machinesDir(), string(uid)))
	w.do(err)
	return files
}

// hasFiles waits until exactly these disks have files, and all work on disks is done.
func (w *fixture) hasFiles(names ...string) {
	w.Helper()
	w.eventually("the disks are as specified", func(s *backend.Server) bool {
		files := w.diskFiles()
		for _, name := range names {
			if files[name] == "" {
				return false
			}
		}
		return len(files) == len(names) && disksDone(s)
	})
}

// checkDisks runs qemu-img check on all disks of the machine of the test.
func (w *fixture) checkDisks() {
	w.Helper()
	files := w.diskFiles()
	files["the root disk"] = filepath.Join(w.driver.machinesDir(), string(uid), diskFile)
	for _, path := range files {
		if _, err := os.Stat(path); err != nil {
			continue // it has none
		}
		w.check(path)
	}
}

// A disk is plugged into a running machine, grown, removed and plugged again; the guest finds it by its name.
func TestLongGuestSeesDisks(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	machine := booted()
	machine.Disks = []backend.Disk{{Name: "first", SizeBytes: 8 << 20}}
	run := w.run(machine).Run
	w.shell()
	w.typed("until [ -b /dev/disk/by-id/virtio-first ]; do sleep 0.1; done; echo first-$(blockdev --getsize64 /dev/disk/by-id/virtio-first)")
	w.shows("first-8388608")

	machine.Hash, machine.Disks = "2", append(machine.Disks, backend.Disk{Name: "data", SizeBytes: 64 << 20})
	began := time.Now()
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.typed("until [ -b /dev/disk/by-id/virtio-data ]; do sleep 0.1; done; mkfs.ext4 -q /dev/disk/by-id/virtio-data && mount /dev/disk/by-id/virtio-data /mnt && echo kept > /mnt/a && sync && echo written-$((40+2))")
	w.shows("written-42")
	t.Logf("the guest had written to it after %v", time.Since(began))
	w.hasFiles("first", "data")

	machine.Hash, machine.Disks[1].SizeBytes = "3", 128<<20
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.typed("until [ $(blockdev --getsize64 /dev/disk/by-id/virtio-data) = 134217728 ]; do sleep 0.1; done; echo grown-$((40+2))")
	w.shows("grown-42")
	w.typed("resize2fs /dev/disk/by-id/virtio-data && [ $(df -P -m /mnt | tail -n 1 | awk '{print $2}') -gt 100 ] && echo resized-$((40+2))")
	w.shows("resized-42")

	// The data is there after a new manager and a new run.
	w.open()
	w.eventually("a new manager finds it", answers)
	w.do(w.driver.Stop(t.Context(), machine.Identity, time.Minute))
	w.eventually("it is off", is(backend.StateStopped))
	w.checkDisks()
	w.starts(machine)
	w.shell()
	w.typed("until mount /dev/disk/by-id/virtio-data /mnt; do sleep 0.1; done; echo $(cat /mnt/a)-after-$((40+2)); umount /mnt")
	w.shows("kept-after-42")

	again := w.server().Run
	machine.Hash, machine.Disks = "4", machine.Disks[1:]
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.hasFiles("data")
	w.typed("while [ -e /dev/disk/by-id/virtio-first ]; do sleep 0.1; done; ls /dev/disk/by-id; echo gone-$((40+2))")
	w.shows("gone-42")
	if now := w.server().Run; now != again || run == again {
		t.Errorf("runs are %s, %s and %s", run, again, now)
	}
	var sets []struct{ FDs []struct{ Opaque string } }
	w.ask("query-fdsets", map[string]any{}, &sets)
	for _, set := range sets {
		for _, fd := range set.FDs {
			if fd.Opaque == qemu.DiskFileNode("first") {
				t.Error("QEMU still has a descriptor of the removed disk")
			}
		}
	}
	w.remove()
}

// A guest that does not release a disk keeps it until it is off; its file stays until then.
func TestRemovalWaitsForTheGuest(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 8 << 20}, {Name: "kept", SizeBytes: 8 << 20, Retain: true}}
	w.run(machine)
	w.hasFiles("data", "kept")
	machine.Hash, machine.Disks = "2", nil
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.eventually("it waits for the guest", func(s *backend.Server) bool {
		return len(s.Disks) == 2 && !s.Disks[0].Failed && s.Disks[0].Message == "waiting for the guest to release it"
	})
	if files := w.diskFiles(); len(files) != 2 {
		t.Errorf("files are %v", files)
	}
	w.do(w.driver.Stop(t.Context(), machine.Identity, 0))
	w.hasFiles()
	retained, err := w.driver.Retained(t.Context())
	w.do(err)
	if len(retained) != 1 || retained[0].Namespace != "default" || retained[0].Name != "vm" || retained[0].VirtualBytes != 8<<20 {
		t.Errorf("retained are %+v", retained)
	}
	w.remove()
}

// Disks can be added, grown and removed while a machine is off.
func TestDisksOfAStoppedMachine(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	w.create(machine)
	machine.Hash, machine.Disks = "2", []backend.Disk{{Name: "a", SizeBytes: 8 << 20}, {Name: "b", SizeBytes: 8 << 20}}
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.hasFiles("a", "b")
	w.open()
	machine.Hash, machine.Disks = "3", []backend.Disk{{Name: "a", SizeBytes: 16 << 20}}
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.hasFiles("a")
	info, err := inspect(t.Context(), w.driver.imageTool, w.driver.machines[uid].user(), w.diskFiles()["a"], "qcow2")
	if w.do(err); info.VirtualSize != 16<<20 {
		t.Errorf("the size is %d", info.VirtualSize)
	}
	w.remove()
}

// A disk that has lost its file is replaced by an empty one neither at a start nor in a snapshot. A restore brings it back.
func TestLostDisks(t *testing.T) {
	w := newFixture(t)
	machine := w.withData()
	w.run(machine)
	w.fillBoth(1, 2)
	kept := snapshotOf(1, "kept")
	w.takes(kept, machine)
	for i, lost := range []string{v1alpha1.RootDiskName, "data"} {
		refused := snapshotOf(2+i, "refused")
		w.stops()
		path := w.driver.machines[uid].path(fileOf(lost))
		w.do(os.Remove(path))
		w.open()
		w.do(w.driver.Start(t.Context(), machine))
		w.eventually("the start fails without the disk "+lost, func(s *backend.Server) bool {
			return s.Ended != nil && s.Task == backend.TaskNone && s.Ended.Cause == backend.CauseStartFailed && strings.Contains(s.Ended.Message, "the file of the disk is missing: restore it")
		})
		w.do(w.driver.TakeSnapshot(t.Context(), refused, backend.Source{Server: machine.Identity}))
		harness.Eventually(t, "a snapshot fails", func() bool { return w.snapshotState(refused).Failure != nil })
		w.do(w.driver.DeleteSnapshot(t.Context(), refused))
		if _, err := os.Lstat(path); err == nil {
			t.Errorf("there is a new disk %s", lost)
		}
		if failed := w.restores(lost, kept).FailedRestore; failed != nil {
			t.Fatal(failed.Err)
		}
		w.hasContent(machine.DiskBytes, 1, 2)
		w.starts(machine)
	}
	w.remove()
	w.deleteSnapshot(kept)
}

// A disk gets the content of its image.
func TestLongDiskFromImage(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	image := filepath.Join(t.TempDir(), "content.raw")
	w.do(os.WriteFile(image, append([]byte("from-the-image-42"), make([]byte, 1<<20)...)[:1<<20], 0o600))
	machine := booted()
	w.run(machine)
	w.shell()
	machine.Hash, machine.Disks = "2", []backend.Disk{{Name: "data", SizeBytes: 8 << 20, Image: &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: image}}}}
	w.do(w.driver.Reconfigure(t.Context(), machine))
	w.typed("until [ -b /dev/disk/by-id/virtio-data ]; do sleep 0.1; done; head -c 17 /dev/disk/by-id/virtio-data; echo")
	w.shows("from-the-image-42")
	w.hasFiles("data")
	w.remove()
}

// Names become names of files and of devices in QEMU, so the driver does not rely on the schema.
func TestInvalidDisks(t *testing.T) {
	for _, disks := range [][]backend.Disk{
		{{Name: ""}}, {{Name: "../a"}}, {{Name: "A"}}, {{Name: "a,b"}}, {{Name: "root"}}, {{Name: "a-name-with-21-chars-"}}, {{Name: "a"}, {Name: "a"}},
		slices.Repeat([]backend.Disk{{}}, maxDisks+1),
	} {
		machine := firmware(uid)
		machine.Disks = disks
		var wrong *backend.FieldError
		if err := Validate(&machine); !errors.As(err, &wrong) || wrong.Field != "spec.disks" {
			t.Errorf("disks %v: %v", disks, err)
		}
	}
}
