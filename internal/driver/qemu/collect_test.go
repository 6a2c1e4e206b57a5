package qemu

import (
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

const week = 7 * 24 * time.Hour

// newImageFixture returns a fixture that keeps unused images for a week, and a machine with a
// downloaded image.
func newImageFixture(t *testing.T) (*fixture, *server, backend.Machine) {
	t.Helper()
	w := newFixture(t)
	w.options.ImageKeep = week
	w.open()
	s := newServer(t, 1<<20)
	machine := w.firmware()
	machine.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{URL: s.URL, Sha256: s.digest()}, Agent: machine.Image.Agent}
	return w, s, machine
}

// collect runs a collection at a later time.
func (w *fixture) collect(later time.Duration) {
	w.Helper()
	if _, err := w.driver.images.collect(time.Now().Add(later), w.driver.imagesInUse); err != nil {
		w.Errorf("collect: %v", err)
	}
}

// expectBases fails the test if a disk lacks its image, and returns all disks.
func (w *fixture) expectBases() []string {
	w.Helper()
	disks, err := filepath.Glob(filepath.Join(w.driver.machinesDir(), "*", diskFile))
	w.do(err)
	retained, err := RetainedDisks(w.options.StateDir)
	w.do(err)
	for _, disk := range retained {
		disks = append(disks, disk.Path)
	}
	for _, disk := range disks {
		base, err := readBacking(disk)
		if err == nil {
			_, err = os.Stat(base)
		}
		if err != nil {
			w.Errorf("the disk %s has lost its image: %v", disk, err)
		}
	}
	return disks
}

// deleteKeepingDisk deletes a machine and retains its disk.
func (w *fixture) deleteKeepingDisk(id backend.Identity) {
	w.Helper()
	w.eventually("it is deleted", func(*backend.Server) bool {
		err := w.driver.Delete(w.Context(), id, backend.DeleteOptions{KeepDisk: true})
		w.do(err)
		return err == nil
	})
}

// An image stays as long as anything needs it, and for a while after that, also across restarts of
// the manager.
func TestUnusedImagesAreCollected(t *testing.T) {
	w, s, machine := newImageFixture(t)
	has := func(want bool, when string) {
		t.Helper()
		if got := slices.Contains(names(t, w.driver.imagesDir()), s.digest()); got != want {
			t.Fatalf("%s the image exists: %t", when, got)
		}
	}
	definition := filepath.Join(w.driver.machinesDir(), string(uid), definitionFile)
	w.create(machine)
	w.collect(2 * week)
	has(true, "with a machine that is off")
	w.open()
	w.collect(4 * week)
	has(true, "with a machine of an earlier manager")
	w.do(w.driver.Close())
	w.do(os.WriteFile(definition, []byte("{"), 0o600))
	w.open()
	w.collect(6 * week)
	has(true, "with a machine whose definition is unreadable")
	w.deleteKeepingDisk(machine.Identity)
	w.collect(8 * week)
	has(true, "with a retained disk")
	disks := w.expectBases()
	if len(disks) != 1 {
		t.Fatalf("disks: %v", disks)
	}
	w.do(os.Remove(disks[0]))
	w.open()
	w.collect(9*week - time.Hour)
	has(true, "less than a week after its last use")
	w.open()
	w.collect(9*week + time.Hour)
	has(false, "a week after its last use")
}

// Images that are not known to be unused stay, and so do other files.
func TestFilesThatAreNotCollected(t *testing.T) {
	w := newFixture(t)
	dir := w.driver.imagesDir()
	makePart(t, dir, anyDigest, 1, 0)
	makePart(t, dir, "notes.txt", 1, 0)
	makePart(t, dir, anyDigest[:63], 1, 0)
	disk := filepath.Join(w.driver.retainedDir(), "broken.qcow2")
	w.do(os.WriteFile(disk, damagedHeader(), 0o600))
	w.options.ImageKeep = week
	w.open() // which collects in the background
	keep := func(keep time.Duration) {
		w.driver.images.mu.Lock()
		defer w.driver.images.mu.Unlock()
		w.driver.images.keep = keep
	}
	if _, err := w.driver.images.collect(time.Now(), w.driver.imagesInUse); err == nil || !strings.Contains(err.Error(), disk) {
		t.Errorf("collect: %v", err)
	}
	all := []string{anyDigest[:63], anyDigest, "notes.txt"}
	if diff := cmp.Diff(all, names(t, dir)); diff != "" {
		t.Errorf("with an unreadable disk (-want +got):\n%s", diff)
	}
	keep(0)
	w.do(os.WriteFile(disk, []byte("no disk"), 0o600))
	w.collect(0)
	if diff := cmp.Diff(all, names(t, dir)); diff != "" {
		t.Errorf("if images are kept indefinitely (-want +got):\n%s", diff)
	}
	keep(week)
	w.collect(0)
	if diff := cmp.Diff([]string{anyDigest[:63], "notes.txt"}, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// damagedHeader returns the header of a disk whose backing file is not known.
func damagedHeader() []byte {
	header := make([]byte, 1024)
	binary.BigEndian.PutUint32(header, diskimage.Qcow2Magic)
	binary.BigEndian.PutUint64(header[8:], 1<<40) // the offset of the backing file's name
	binary.BigEndian.PutUint32(header[16:], 100)
	return header
}

// A damaged disk keeps the image that its record has, and no other one. Without a record it may need any.
func TestDamagedDisksKeepTheirImages(t *testing.T) {
	const needed, unused = "0", "1"
	base := func(w *fixture, name string) *qemu.Image {
		return &qemu.Image{Path: filepath.Join(w.driver.imagesDir(), strings.Repeat(name, 64)), Format: diskimage.Qcow2}
	}
	snapshotUID, diskUID := types.UID("0b5b4d8e-0000-4000-8000-0000000000a1"), types.UID("0b5b4d8e-0000-4000-8000-0000000000a2")
	for name, test := range map[string]struct {
		// record makes the record of a disk, and returns its file.
		record func(w *fixture) string
		known  bool
	}{
		"the root disk of a machine": {func(w *fixture) string {
			m := w.driver.machines[uid]
			m.def.Base = base(w, needed)
			return m.path(diskFile)
		}, true},
		"a disk of a machine": {func(w *fixture) string {
			m := w.driver.machines[uid]
			m.def.DiskRecords = map[string]diskRecord{"data": {Base: base(w, needed), Created: true}}
			return m.path(diskPath("data"))
		}, true},
		"a disk of a machine that is not complete": {func(w *fixture) string {
			m := w.driver.machines[uid]
			m.def.DiskRecords = map[string]diskRecord{"data": {Base: base(w, needed)}}
			return m.path(diskPath("data"))
		}, false},
		"a disk of a machine that is not in its record": {func(w *fixture) string { return w.driver.machines[uid].path(diskPath("data")) }, false},
		"the root disk of a machine that is being restored": {func(w *fixture) string {
			m := w.driver.machines[uid]
			m.def.Base, m.def.Restoring = base(w, needed), &restoring{}
			return m.path(diskFile)
		}, false},
		"a VirtualDisk": {func(w *fixture) string {
			v := &virtualDisk{d: w.driver, dir: filepath.Join(w.driver.disksDir(), string(diskUID))}
			v.def.Base, v.def.Created = base(w, needed), true
			w.driver.disks[diskUID] = v
			return v.path()
		}, true},
		"a disk of a snapshot": {func(w *fixture) string {
			s := &machineSnapshot{d: w.driver, dir: filepath.Join(w.driver.snapshotsDir(), string(snapshotUID))}
			s.def.Taken, s.def.Disks = true, []snapshotDisk{{Name: "data", Base: base(w, needed)}}
			w.driver.snapshots[snapshotUID] = s
			return s.path("data")
		}, true},
		"a disk of a snapshot that is not taken": {func(w *fixture) string {
			s := &machineSnapshot{d: w.driver, dir: filepath.Join(w.driver.snapshotsDir(), string(snapshotUID))}
			s.def.Disks = []snapshotDisk{{Name: "data", Base: base(w, needed)}}
			w.driver.snapshots[snapshotUID] = s
			return s.path("data")
		}, false},
		"a retained disk": {func(w *fixture) string { return filepath.Join(w.driver.retainedDir(), "default", "vm", "1.qcow2") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			w.options.ImageKeep = week
			w.open()
			w.create(w.firmware())
			dir := w.driver.imagesDir()
			makePart(t, dir, strings.Repeat(needed, 64), 1, 0)
			makePart(t, dir, strings.Repeat(unused, 64), 1, 0)
			disk := test.record(w)
			w.do(os.MkdirAll(filepath.Dir(disk), 0o700))
			w.do(os.WriteFile(disk, damagedHeader(), 0o600))
			_, err := w.driver.images.collect(time.Now(), w.driver.imagesInUse)
			if err == nil || !strings.Contains(err.Error(), disk) {
				t.Errorf("collect: %v", err)
			}
			want := []string{strings.Repeat(needed, 64)}
			if !test.known {
				want = append(want, strings.Repeat(unused, 64))
			}
			if diff := cmp.Diff(want, names(t, dir)); diff != "" {
				t.Errorf("images (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAbandonedPartsAreCollected(t *testing.T) {
	i := newImages(t.TempDir(), Options{})
	busy, arrived := source{"http://busy", anyDigest}, source{"http://arrived", strings.Repeat("0", 64)}
	i.downloads[busy] = &download{}
	const fresh = 48 * 60 // minutes
	makePart(t, i.dir, busy.part(), 1, 0)
	makePart(t, i.dir, arrived.part(), 1, fresh)
	makePart(t, i.dir, arrived.digest, 1, 0)
	makePart(t, i.dir, "fresh.part", 1, fresh)
	makePart(t, i.dir, "old.part", 1, 0)
	removed, err := i.collect(time.Unix(0, 0).Add(49*time.Hour), nil)
	if err != nil {
		t.Error(err)
	}
	slices.Sort(removed)
	if diff := cmp.Diff([]string{arrived.part(), "old.part"}, removed); diff != "" {
		t.Errorf("removed (-want +got):\n%s", diff)
	}
}

// A collection never removes the image of a machine at any step of an operation, however briefly
// images are kept.
func TestImagesAreCollectedAtEveryStep(t *testing.T) {
	var current atomic.Pointer[fixture]
	before := step
	t.Cleanup(func() { step = before })
	collect := func() {
		if w := current.Load(); w != nil {
			w.collect(0)
		}
	}
	step = func(name string) {
		if name != "image removed" && name != "created" { // collect needs locks that are held at these
			collect()
		}
	}
	w, s, machine := newImageFixture(t)
	w.options.ImageKeep = 1 // nanosecond
	w.open()
	current.Store(w)
	var always sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	always.Go(func() {
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for ctx.Err() == nil {
			collect()
			<-again.C
		}
	})
	for range 3 {
		w.run(machine)
		w.expectBases()
		w.deleteKeepingDisk(machine.Identity)
		disks := w.expectBases()
		if len(disks) != 1 {
			t.Fatalf("disks: %v", disks)
		}
		w.do(os.Remove(disks[0]))
		collect()
		if left := names(t, w.driver.imagesDir()); len(left) > 0 {
			t.Errorf("unused images: %v", left)
		}
	}
	stop()
	always.Wait()
	current.Store(nil)
	if len(s.requests) != 3 {
		t.Errorf("it was downloaded %d times", len(s.requests))
	}
}

// A manager that is killed at any step of a creation, or of a deletion that retains the disk,
// leaves no disk without its image to the next one.
func TestLongImagesOfKilledManagersAreNotCollected(t *testing.T) {
	for _, way := range []struct{ before, goal drivertest.Goal }{{"", drivertest.ToRun}, {drivertest.ToRun, drivertest.ToDelete}} {
		prepare := func(t *testing.T) (w *fixture, machine backend.Machine, variables []string) {
			w, s, machine := newImageFixture(t)
			if way.before != "" {
				w.reach(machine, way.before)
			}
			w.do(w.driver.Close())
			return w, machine, []string{helperState + "=" + w.options.StateDir, helperUID + "=" + string(uid),
				helperImage + "=" + s.URL + "#" + s.digest(), helperKeep + "=yes"}
		}
		w, _, variables := prepare(t)
		steps, err := drivertest.Manager(t, way.goal, "", variables...)
		w.do(err)
		if !slices.Contains(steps, "disk created") && !slices.Contains(steps, "disk retained") {
			t.Fatalf("steps to %s are %q", way.goal, steps)
		}
		w.open()
		w.remove()
		for _, at := range steps {
			t.Run(string(way.goal)+" "+at, func(t *testing.T) {
				w, machine, variables := prepare(t)
				if _, err := drivertest.Manager(t, way.goal, at, variables...); err == nil {
					t.Fatalf("the manager was not killed at %q", at)
				}
				w.open()
				w.collect(2 * week)
				w.expectBases()
				w.do(drivertest.Reach(t.Context(), keepsDisks{settled{w.driver}}, machine, way.goal))
				w.collect(4 * week)
				if disks := w.expectBases(); len(disks) != 1 {
					t.Errorf("disks: %v", disks)
				}
				w.remove()
			})
		}
	}
}
