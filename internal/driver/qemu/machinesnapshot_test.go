package qemu

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func snapshotOf(n int, name string) backend.SnapshotIdentity {
	return backend.SnapshotIdentity{UID: derived(n), Namespace: "default", Name: name}
}

// snapshotState returns the state of a snapshot.
func (w *fixture) snapshotState(id backend.SnapshotIdentity) backend.SnapshotState {
	w.Helper()
	state, err := w.driver.ObserveSnapshot(w.Context(), id)
	w.do(err)
	return state
}

// take takes a snapshot.
func (w *fixture) take(id backend.SnapshotIdentity, of backend.Source) backend.SnapshotState {
	w.Helper()
	w.do(w.driver.TakeSnapshot(w.Context(), id, of))
	harness.Eventually(w, "the snapshot is taken", func() bool {
		state := w.snapshotState(id)
		if state.Failure != nil {
			w.Fatal(state.Failure)
		}
		return state.Taken
	})
	return w.snapshotState(id)
}

// takes takes a snapshot of the disks of a machine.
func (w *fixture) takes(id backend.SnapshotIdentity, of backend.Machine) backend.SnapshotState {
	w.Helper()
	state := w.take(id, backend.Source{Server: of.Identity})
	stored, err := StoredSnapshots(w.driver.options.StateDir)
	w.do(err)
	want := backend.StoredSnapshot{Namespace: id.Namespace, Name: id.Name, Machine: of.Name, TakenAt: state.TakenAt, AllocatedBytes: state.AllocatedBytes}
	if !slices.Contains(stored, want) {
		w.Errorf("the snapshots are %+v, without %+v", stored, want)
	}
	return state
}

// deleteSnapshot deletes a snapshot, and checks that nothing is left.
func (w *fixture) deleteSnapshot(id backend.SnapshotIdentity) {
	w.Helper()
	harness.Eventually(w, id.Name+" is gone", func() bool {
		err := w.driver.DeleteSnapshot(w.Context(), id)
		w.do(err)
		return err == nil
	})
	if left, _ := filepath.Glob(filepath.Join(w.driver.snapshotsDir(), "*")); len(left) > 0 {
		w.Errorf("left over: %v", left)
	}
}

// fill writes bytes at the beginning of a disk of the running machine of the test, as its guest would do.
func (w *fixture) fill(disk string, with byte) {
	w.Helper()
	device := map[string]string{"root": "disk"}[disk]
	if device == "" {
		device = qemu.DiskNode(disk)
	}
	var output string
	w.ask("human-monitor-command", map[string]any{"command-line": fmt.Sprintf(`qemu-io -d %s/virtio-backend "write -P %d 0 256k"`, device, with)}, &output)
	if output != "" {
		w.Fatalf("write to the disk %s: %s", disk, output)
	}
}

// fillBoth fills both disks of withData.
func (w *fixture) fillBoth(root, data byte) {
	w.Helper()
	w.fill("root", root)
	w.fill("data", data)
}

// checkFilled checks the beginning of a disk in a file, which has a size.
func (w *fixture) checkFilled(path string, with byte, size int64) {
	w.Helper()
	w.check(path)
	raw := filepath.Join(w.TempDir(), "raw")
	if out, err := exec.Command(w.driver.imageTool, "convert", "-U", "-O", "raw", path, raw).CombinedOutput(); err != nil {
		w.Fatalf("read %s: %v: %s", path, err, out)
	}
	content, err := os.ReadFile(raw)
	w.do(err)
	if int64(len(content)) != size || !bytes.Equal(content[:256<<10], bytes.Repeat([]byte{with}, 256<<10)) {
		w.Errorf("%s has %d bytes and begins with %x, want %d bytes of %x", path, len(content), content[0], size, with)
	}
}

// withData returns the machine of the test, with a disk data.
func (w *fixture) withData() backend.Machine {
	machine := w.firmware()
	machine.DiskBytes, machine.Disks = 8<<20, []backend.Disk{{Name: "data", SizeBytes: 4 << 20}}
	return machine
}

// A snapshot of a running machine has its disks as they were at one moment, and stays as it is when the guest writes on, the
// machine falls asleep, and is deleted.
func TestSnapshotOfARunningMachine(t *testing.T) {
	at := hookSteps(t)
	w := newFixture(t)
	machine := w.withData()
	id := snapshotOf(1, "first")
	if err := w.driver.TakeSnapshot(t.Context(), id, backend.Source{Server: machine.Identity}); !errors.Is(err, backend.ErrNotFound) {
		t.Errorf("a snapshot of nothing: %v", err)
	}
	w.run(machine)
	w.fillBoth(1, 2)
	at.set("backup begun", func() { w.fillBoth(3, 4) })
	state := w.takes(id, machine)
	at.clear()
	if len(state.Disks) != 2 || state.Disks[0] != (backend.SnapshotDisk{Name: "root", VirtualBytes: 8 << 20}) ||
		state.Disks[1] != (backend.SnapshotDisk{Name: "data", VirtualBytes: 4 << 20}) || state.AllocatedBytes == 0 || state.TakenAt.IsZero() {
		t.Errorf("state: %+v", state)
	}
	check := func() {
		t.Helper()
		s := w.driver.findSnapshot(id.UID)
		w.checkFilled(s.path("root"), 1, 8<<20)
		w.checkFilled(s.path("data"), 2, 4<<20)
	}
	check()
	w.noBackups()

	// It is taken once, and the machine can sleep, wake and go.
	w.takes(id, machine)
	w.sleeps()
	second := snapshotOf(2, "second")
	w.takes(second, machine)
	w.checkFilled(w.driver.findSnapshot(second.UID).path("root"), 3, 8<<20)
	w.starts(machine)
	w.remove()
	check()
	w.do(w.driver.DeleteSnapshot(t.Context(), second))
	w.open()
	check()
	if state := w.snapshotState(id); !state.Taken || state.Lost != "" {
		t.Errorf("after a restart: %+v", state)
	}
	w.do(os.Remove(w.driver.findSnapshot(id.UID).path("data")))
	if state := w.snapshotState(id); !strings.Contains(state.Lost, "disk-data.qcow2 is missing: restore it") {
		t.Errorf("without a file: %+v", state)
	}
	w.deleteSnapshot(id)
}

// noBackups checks that the QEMU of the machine of the test has nothing of a copy.
func (w *fixture) noBackups() {
	w.Helper()
	conn, err := w.driver.machines[uid].monitor()
	w.do(err)
	left, err := diskbackup.Left(w.Context(), conn)
	w.do(err)
	if len(left) > 0 {
		w.Errorf("QEMU has %q", left)
	}
}

// A snapshot of a machine that dies meanwhile fails, and the next attempt takes it of the machine that is off. One of a machine
// without disks is refused, and one that is deleted while it is being taken leaves nothing.
func TestSnapshotAttempts(t *testing.T) {
	at := hookSteps(t)
	w := newFixture(t)
	machine := w.withData()
	id := snapshotOf(1, "first")
	w.run(machine)
	w.fill("root", 7)
	at.set("backup begun", func() { w.kill(t, uid) })
	w.do(w.driver.TakeSnapshot(t.Context(), id, backend.Source{Server: machine.Identity}))
	harness.Eventually(t, "the attempt has failed", func() bool { return w.snapshotState(id).Failure != nil })
	at.clear()
	w.eventually("it is off", is(backend.StateStopped))
	w.takes(id, machine)
	if _, err := os.Stat(w.driver.findSnapshot(id.UID).path("data")); err != nil {
		t.Error(err)
	}

	w.starts(machine)
	second := snapshotOf(2, "second")
	begun, goOn := make(chan struct{}), make(chan struct{})
	at.set("backup prepared", func() { close(begun); <-goOn })
	w.do(w.driver.TakeSnapshot(t.Context(), second, backend.Source{Server: machine.Identity}))
	<-begun
	if err := w.driver.DeleteSnapshot(t.Context(), second); !errors.Is(err, backend.ErrInProgress) {
		t.Errorf("delete it while it is taken: %v", err)
	}
	close(goOn)
	harness.Eventually(t, "it is gone", func() bool { return w.driver.DeleteSnapshot(t.Context(), second) == nil })
	at.clear()
	w.noBackups()
	w.remove()
	w.deleteSnapshot(id)

	bare := booted()
	w.create(bare)
	if err := w.driver.TakeSnapshot(t.Context(), id, backend.Source{Server: bare.Identity}); !errors.Is(err, backend.ErrNoDisks) {
		t.Errorf("a machine without disks: %v", err)
	}
	w.remove()
}
