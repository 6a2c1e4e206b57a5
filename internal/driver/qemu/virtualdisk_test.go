package qemu

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// newDisk returns an empty VirtualDisk.
func newDisk(name string, size int64) backend.VirtualDisk {
	return backend.VirtualDisk{
		DiskIdentity: backend.DiskIdentity{UID: uuid.NewUUID(), Namespace: "default", Name: name, Cluster: "cluster"}, SizeBytes: size,
	}
}

// disk returns the state of a disk.
func (w *fixture) disk(disk backend.VirtualDisk) backend.DiskState {
	w.Helper()
	state, err := w.driver.ObserveDisk(w.Context(), disk.DiskIdentity)
	w.do(err)
	return state
}

// ensure creates or grows a disk, and waits until that has ended.
func (w *fixture) ensure(disk backend.VirtualDisk) backend.DiskState {
	w.Helper()
	w.do(w.driver.EnsureDisk(w.Context(), disk))
	harness.Eventually(w, "the disk is done", func() bool { return !w.disk(disk).Busy })
	return w.disk(disk)
}

// other returns another machine of the namespace, with disks.
func other(name string, disks ...backend.Disk) backend.Machine {
	machine := firmware(uuid.NewUUID())
	machine.Name, machine.Disks = name, disks
	return machine
}

// attached returns the disk data of a machine, which is a VirtualDisk.
func attached(disk string) backend.Disk { return backend.Disk{Name: "data", VirtualDisk: disk} }

// create creates a machine, which is off.
func (w *fixture) create(machine backend.Machine) {
	w.Helper()
	w.do(w.driver.Create(w.Context(), machine))
	w.until(machine, "it is created", is(backend.StateStopped))
}

// until waits for a state of a machine.
func (w *fixture) until(machine backend.Machine, what string, holds func(*backend.Server) bool) {
	w.Helper()
	var server backend.Server
	defer func() {
		if w.Failed() {
			w.Logf("server is %+v, ended %+v", server, server.Ended)
		}
	}()
	harness.Eventually(w, machine.Name+": "+what, func() bool {
		var err error
		server, err = w.driver.Observe(w.Context(), machine.Identity)
		return err == nil && holds(&server)
	})
}

// has waits until a machine has its disks.
func (w *fixture) has(machine backend.Machine, disk backend.VirtualDisk) {
	w.Helper()
	w.until(machine, "it has its disks", disksDone)
	if owner := w.disk(disk).AttachedTo; owner == nil || owner.UID != machine.UID {
		w.Errorf("the disk %s is attached to %+v, not %s", disk.Name, owner, machine.Name)
	}
}

// waitsFor waits until a machine waits for a disk, and the message has these words.
func (w *fixture) waitsFor(machine backend.Machine, words string) {
	w.Helper()
	w.until(machine, "it waits: "+words, func(s *backend.Server) bool {
		return len(s.Disks) == 1 && !s.Disks[0].Failed && strings.Contains(s.Disks[0].Message, words)
	})
}

// change changes the disks of a machine.
func (w *fixture) change(machine *backend.Machine, disks ...backend.Disk) {
	w.Helper()
	machine.Hash, machine.Disks = machine.Hash+"+", disks
	w.do(w.driver.Reconfigure(w.Context(), *machine))
}

// newContent returns the path of an image with that text.
func (w *fixture) newContent(text string) string {
	w.Helper()
	path := filepath.Join(w.TempDir(), "content.raw")
	w.do(os.WriteFile(path, append([]byte(text), make([]byte, 1<<20)...)[:1<<20], 0o600))
	return path
}

// diskBegins checks the size of the disk that a guest sees, and with what it begins.
func (w *fixture) diskBegins(disk backend.VirtualDisk, text string) {
	w.Helper()
	raw := filepath.Join(w.TempDir(), "raw")
	out, err := exec.Command(w.driver.imageTool, "convert", "-O", "raw", w.driver.virtualDiskPath(disk.UID), raw).CombinedOutput()
	if err != nil {
		w.Fatalf("read the disk %s: %v: %s", disk.Name, err, out)
	}
	if got, _ := os.ReadFile(raw); int64(len(got)) != disk.SizeBytes || !strings.HasPrefix(string(got), text) {
		w.Errorf("the disk %s has %d bytes, which begin with %q", disk.Name, len(got), got[:min(len(got), 20)])
	}
}

// deleteDisk deletes a disk that nobody uses, and checks that nothing is left.
func (w *fixture) deleteDisk(disk backend.VirtualDisk) {
	w.Helper()
	harness.Eventually(w, disk.Name+" is gone", func() bool {
		err := w.driver.DeleteDisk(w.Context(), disk.DiskIdentity, false)
		if err != nil && !errors.Is(err, backend.ErrInProgress) {
			w.Fatalf("DeleteDisk: %v", err)
		}
		return err == nil
	})
	if left, _ := filepath.Glob(filepath.Join(w.driver.disksDir(), "*"+string(disk.UID)+"*")); len(left) > 0 {
		w.Errorf("left over: %v", left)
	}
}

// A disk is created, claimed by one of two machines, grown, released to the other one, and deleted when nobody has it.
func TestVirtualDiskHasOneMachine(t *testing.T) {
	w := newFixture(t)
	disk := newDisk("shared", 8<<20)
	disk.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: w.newContent("of-both")}}
	a, b := other("a", attached("shared")), other("b", attached("shared"))
	a.Image.Path, b.Image.Path = emptyImage(t), emptyImage(t)
	w.create(a)
	w.waitsFor(a, "waiting for the VirtualDisk shared, which is not on this host")
	if state := w.ensure(disk); !state.Created || state.Failure != nil || state.SizeBytes != 8<<20 {
		t.Fatalf("state: %+v", state)
	}
	w.has(a, disk)
	w.create(b)
	w.waitsFor(b, "which the machine a has")

	// A new manager, and a machine that is started and stopped, change nothing about that.
	w.open()
	w.has(a, disk)
	w.waitsFor(b, "which the machine a has")
	for _, machine := range []backend.Machine{a, b} {
		_ = w.driver.Start(t.Context(), machine)
		w.until(machine, "it runs", is(backend.StateRunning))
	}
	w.has(a, disk)
	w.waitsFor(b, "which the machine a has")

	// It is grown while it is in use, and cannot be deleted.
	disk.SizeBytes = 16 << 20
	w.do(w.driver.EnsureDisk(t.Context(), disk))
	harness.Eventually(t, "the disk has grown", func() bool { return w.disk(disk).SizeBytes == 16<<20 })
	if err := w.driver.DeleteDisk(t.Context(), backend.DiskIdentity{UID: disk.UID}, false); !errors.Is(err, backend.ErrDiskInUse) || !strings.Contains(err.Error(), "machine a has it") {
		t.Errorf("delete a disk in use: %v", err)
	}
	w.driver.findDisk(disk.UID).deleting = false

	// The guest is only firmware and does not release it, so a has it until it is off.
	w.change(&a)
	w.waitsFor(a, "waiting for the guest to release it")
	w.waitsFor(b, "which the machine a has")
	_ = w.driver.Stop(t.Context(), a.Identity, 0)
	w.has(b, disk)
	w.until(b, "it is plugged", func(*backend.Server) bool {
		conn, err := w.driver.machines[b.UID].monitor()
		w.do(err)
		p, err := queryDisks(w.Context(), conn)
		w.do(err)
		return p.Sizes[qemu.DiskNode("data")] == 16<<20
	})
	w.delete(b)
	if owner := w.disk(disk).AttachedTo; owner != nil {
		t.Errorf("the disk of a deleted machine is attached to %+v", owner)
	}
	w.check(w.driver.virtualDiskPath(disk.UID))
	w.change(&a, attached("shared"))
	w.has(a, disk)
	w.delete(a)
	w.diskBegins(disk, "of-both")
	w.deleteDisk(disk)
}

// A clone has the data of its source, waits while that is in use, and keeps it from being started meanwhile.
func TestVirtualDiskClone(t *testing.T) {
	w := newFixture(t)
	source, clone := newDisk("source", 4<<20), newDisk("clone", 8<<20)
	source.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: w.newContent("from-the-image")}}
	clone.From = "source"
	if err := w.driver.EnsureDisk(t.Context(), clone); !errors.Is(err, backend.ErrSourceMissing) {
		t.Errorf("a clone of nothing: %v", err)
	}
	w.ensure(source)
	machine := other("a", attached("source"))
	machine.Image.Path = emptyImage(t)
	w.create(machine)
	_ = w.driver.Start(t.Context(), machine)
	w.until(machine, "it runs", is(backend.StateRunning))
	w.has(machine, source)
	if err := w.driver.EnsureDisk(t.Context(), clone); !errors.Is(err, backend.ErrSourceInUse) || !strings.Contains(err.Error(), "the running machine a has") {
		t.Errorf("a clone of a disk in use: %v", err)
	}
	_ = w.driver.Stop(t.Context(), machine.Identity, 0)
	w.until(machine, "it is off", is(backend.StateStopped))
	if state := w.ensure(clone); !state.Created || state.Failure != nil || state.SizeBytes != 8<<20 || state.AttachedTo != nil {
		t.Fatalf("state: %+v", state)
	}
	w.check(w.driver.virtualDiskPath(clone.UID))
	w.diskBegins(clone, "from-the-image")
	small := newDisk("small", 1<<20)
	small.From = "source"
	if state := w.ensure(small); state.Created || state.Failure == nil || !strings.Contains(state.Failure.Error(), "more than spec.size") {
		t.Errorf("a clone that is too small: %+v", state)
	}
	w.deleteDisk(small)

	// A start waits for a clone that is being made.
	v := w.driver.findDisk(source.UID)
	w.do(v.beginRead())
	_ = w.driver.Start(t.Context(), machine)
	w.until(machine, "it waits for the clone", func(s *backend.Server) bool { return strings.Contains(s.Progress, "is being cloned") })
	if s, _ := w.driver.Observe(t.Context(), machine.Identity); s.IsOn() {
		t.Error("the machine is on while its disk is being cloned")
	}
	v.endRead()
	w.until(machine, "it runs", is(backend.StateRunning))
	w.delete(machine)
	w.deleteDisk(source)
	w.deleteDisk(clone)
}

// A disk that has lost its file is not replaced by an empty one, and a machine that was removed by hand does not hold its
// disk for ever.
func TestVirtualDiskLosses(t *testing.T) {
	w := newFixture(t)
	disk := newDisk("data", 4<<20)
	w.ensure(disk)
	machine := other("a", attached("data"))
	machine.Image.Path = emptyImage(t)
	w.create(machine)
	w.has(machine, disk)
	w.do(os.RemoveAll(filepath.Join(w.driver.machinesDir(), string(machine.UID))))
	w.open()
	if owner := w.disk(disk).AttachedTo; owner != nil {
		t.Errorf("attached to %+v, which is gone", owner)
	}
	w.do(os.Remove(w.driver.virtualDiskPath(disk.UID)))
	if state := w.ensure(disk); state.Lost == "" {
		t.Errorf("state: %+v", state)
	}
	_ = w.driver.Create(t.Context(), machine)
	w.until(machine, "it says that the disk is lost", func(s *backend.Server) bool {
		return s.Ended != nil && s.Task == backend.TaskNone && s.Ended.Cause == backend.CauseCreateFailed && strings.Contains(s.Ended.Message, "is missing: restore it")
	})
	w.delete(machine)
	w.deleteDisk(disk)

	// A definition that cannot be read is kept.
	other := newDisk("other", 4<<20)
	w.ensure(other)
	w.do(os.WriteFile(filepath.Join(w.driver.disksDir(), string(other.UID), diskDefinitionFile), []byte("{"), 0o600))
	w.open()
	if err := w.driver.EnsureDisk(t.Context(), other); err == nil || !strings.Contains(err.Error(), "restore it") {
		t.Errorf("create over an unreadable definition: %v", err)
	}
	if err := w.driver.DeleteDisk(t.Context(), other.DiskIdentity, false); err == nil {
		t.Error("deleted a disk whose definition is unreadable")
	}
}

// A deleted disk may be retained, and its file is listed.
func TestVirtualDiskRetained(t *testing.T) {
	w := newFixture(t)
	disk := newDisk("data", 4<<20)
	w.ensure(disk)
	stored, err := w.driver.Disks(t.Context())
	if w.do(err); len(stored) != 1 || stored[0].Name != "data" || stored[0].VirtualBytes != 4<<20 || stored[0].AttachedTo != "" {
		t.Errorf("disks are %+v", stored)
	}
	w.do(w.driver.DeleteDisk(t.Context(), disk.DiskIdentity, true))
	kept, err := w.driver.Retained(t.Context())
	if w.do(err); len(kept) != 1 || kept[0].Name != "data" || kept[0].VirtualBytes != 4<<20 {
		t.Errorf("retained are %+v", kept)
	}
}
