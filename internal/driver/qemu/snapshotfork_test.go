package qemu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// A machine that is made of a snapshot of a running guest has its data, boots as itself, and needs the snapshot no longer.
func TestLongForkOfARunningGuest(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	machine := booted(func(m *backend.Machine) {
		m.DiskBytes = 64 << 20
		m.Disks = []backend.Disk{{Name: "data", SizeBytes: 16 << 20}}
	})
	run := w.run(machine).Run
	w.shell()
	w.typed("echo of-the-root >/dev/vda; echo of-data >/dev/disk/by-id/virtio-data; sync; (while :; do echo x$((i=i+1)) >/tmp/x; done) & echo written-$((40+2))")
	w.shows("written-42")
	id := snapshotOf(1, "first")
	begin := time.Now()
	w.takes(id, machine)
	t.Logf("the snapshot took %v", time.Since(begin))
	if server := w.server(); server.Run != run || server.State != backend.StateRunning {
		t.Errorf("the machine is %+v", server)
	}
	w.remove()

	fork := other("fork", backend.Disk{Name: "data", SizeBytes: 32 << 20}, backend.Disk{Name: "new", SizeBytes: 1 << 20})
	fork.UID, fork.Snapshot, fork.Image, fork.DiskBytes, fork.MemoryBytes = uid, id.UID, &v1alpha1.Image{Snapshot: "first"}, 0, machine.MemoryBytes
	w.create(fork)
	w.deleteSnapshot(id)
	w.run(fork)
	w.shell()
	w.typed("echo $(hostname) has $(head -c 11 /dev/vda), $(head -c 7 /dev/disk/by-id/virtio-data) of $(blockdev --getsize64 /dev/disk/by-id/virtio-data), $(head -c 3 /dev/disk/by-id/virtio-new | tr '\\0' 0)")
	w.shows("fork has of-the-root, of-data of 33554432, 000")
	w.remove()
}

// A snapshot is copied, not shared: what a machine made of it writes is not in it. Without its snapshot, or with a disk that is too
// small, a machine is not created.
func TestForkOfAnImage(t *testing.T) {
	w := newFixture(t)
	machine := w.withData()
	w.run(machine)
	w.fillBoth(5, 6)
	id := snapshotOf(1, "first")
	w.takes(id, machine)
	w.remove()

	fork := machine
	fork.Snapshot, fork.Image, fork.DiskBytes = id.UID, &v1alpha1.Image{Snapshot: "first"}, 1<<20
	w.do(w.driver.Create(t.Context(), fork))
	w.eventually("it says why it is not created", func(s *backend.Server) bool {
		return s.Ended != nil && s.Task == backend.TaskNone && s.Ended.Message == "the disk root of the snapshot first has 8388608 bytes, more than spec.resource.rootDisk with 1048576: make it larger"
	})
	fork.DiskBytes = 16 << 20
	w.run(fork)
	w.fill("root", 8)
	s := w.driver.findSnapshot(id.UID)
	w.checkFilled(s.path("root"), 5, 8<<20)
	dir := filepath.Join(w.driver.machinesDir(), string(uid))
	w.checkFilled(filepath.Join(dir, "disk-data.qcow2"), 6, 4<<20)

	// A snapshot of a fork depends on the image only.
	second := snapshotOf(2, "second")
	w.takes(second, fork)
	w.checkFilled(w.driver.findSnapshot(second.UID).path("root"), 8, 16<<20)
	if backing, err := readBacking(w.driver.findSnapshot(second.UID).path("root")); err != nil || backing != machine.Image.Path {
		t.Errorf("the snapshot is based on %q, %v", backing, err)
	}
	w.remove()
	w.do(w.driver.DeleteSnapshot(t.Context(), second))
	w.do(os.Remove(s.path("root")))
	w.do(w.driver.Create(t.Context(), fork))
	w.eventually("it says what is missing", func(s *backend.Server) bool {
		return s.Ended != nil && s.Task == backend.TaskNone && s.Ended.Cause == backend.CauseCreateFailed
	})
	w.remove()
	w.deleteSnapshot(id)
	if err := w.driver.Create(t.Context(), fork); err != nil && !errors.Is(err, backend.ErrInProgress) {
		t.Error(err)
	}
	w.eventually("it says what is missing", func(s *backend.Server) bool {
		return s.Ended != nil && s.Task == backend.TaskNone && s.Ended.Cause == backend.CauseCreateFailed
	})
	w.remove()
}
