package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// helperVirtual is the name of a way in virtualWays; if not empty, the manager of the test goes it.
const helperVirtual = "KEELSON_TEST_VIRTUAL"

// derived returns a UID that the manager of the test knows, too.
func derived(n int) types.UID { return types.UID(fmt.Sprintf("%s%04x", string(uid)[:32], n)) }

// The disks and machines of the ways: the machine of the test, and a second one.
func diskOf(n int, name string, size int64) backend.VirtualDisk {
	return backend.VirtualDisk{DiskIdentity: backend.DiskIdentity{UID: derived(n), Namespace: "default", Name: name, Cluster: "cluster"}, SizeBytes: size}
}

func firstDisk() backend.VirtualDisk { return diskOf(1, "first", 8<<20) }

func grownDisk() backend.VirtualDisk { return diskOf(1, "first", 16<<20) }

func clonedDisk() backend.VirtualDisk {
	disk := diskOf(2, "second", 12<<20)
	disk.From = "first"
	return disk
}

func imageDisk() backend.VirtualDisk {
	disk := diskOf(3, "third", 4<<20)
	disk.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: os.Getenv(helperImage)}}
	return disk
}

func machineA(disks ...backend.Disk) backend.Machine { return machineOf(uid, "a", disks) }
func machineB(disks ...backend.Disk) backend.Machine { return machineOf(derived(4), "b", disks) }

func machineOf(uid types.UID, name string, disks []backend.Disk) backend.Machine {
	machine := firmware(uid)
	machine.Name, machine.Disks, machine.DiskBytes, machine.MemoryBytes = name, disks, 64<<20, booted().MemoryBytes
	machine.Image.Path = os.Getenv(helperImage)
	machine.Hash = fmt.Sprint(len(disks))
	return machine
}

// repeat calls a function until it returns nil.
func repeat(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

var errNotYet = errors.New("not yet")

// ensureUntil creates or grows a disk.
func ensureUntil(ctx context.Context, d *Driver, disk backend.VirtualDisk) error {
	return repeat(ctx, func() error {
		if err := d.EnsureDisk(ctx, disk); err != nil {
			return err
		}
		state, err := d.ObserveDisk(ctx, disk.DiskIdentity)
		if err == nil && (!state.Created || state.Busy || state.SizeBytes < disk.SizeBytes) {
			return fmt.Errorf("%w: %+v", errNotYet, state)
		}
		return err
	})
}

// changeUntil changes a machine until its disks are as specified.
func changeUntil(ctx context.Context, d *Driver, machine backend.Machine) error {
	if err := repeat(ctx, func() error { return d.Reconfigure(ctx, machine) }); err != nil {
		return err
	}
	return repeat(ctx, func() error {
		server, err := d.Observe(ctx, machine.Identity)
		if err == nil && !disksDone(&server) {
			return fmt.Errorf("%w: %+v", errNotYet, server.Disks)
		}
		return err
	})
}

func deleteUntil(ctx context.Context, d *Driver, machine backend.Machine) error {
	return repeat(ctx, func() error { return d.Delete(ctx, machine.Identity, backend.DeleteOptions{}) })
}

func deleteDiskUntil(ctx context.Context, d *Driver, disk backend.VirtualDisk, retain bool) error {
	return repeat(ctx, func() error { return d.DeleteDisk(ctx, disk.DiskIdentity, retain) })
}

// virtualWay is a change of disks that a manager is killed in.
type virtualWay struct {
	name string
	// disk means that the first disk exists before, a and b that the machines do, with these disks, and on that they run.
	disk bool
	a, b []backend.Disk
	on   bool
	// guest means that the machine a runs the default guest, which releases disks.
	guest bool
	do    func(ctx context.Context, d *Driver) error
	// owner is the machine that has the first disk afterwards; gone means that it is deleted.
	owner string
	gone  bool
}

func virtualWays() []virtualWay {
	data := []backend.Disk{attached("first")}
	none := []backend.Disk{}
	return []virtualWay{
		{name: "create", do: func(ctx context.Context, d *Driver) error { return ensureUntil(ctx, d, firstDisk()) }},
		{name: "create from an image", disk: true, do: func(ctx context.Context, d *Driver) error { return ensureUntil(ctx, d, imageDisk()) }},
		{name: "clone", disk: true, do: func(ctx context.Context, d *Driver) error { return ensureUntil(ctx, d, clonedDisk()) }},
		{name: "clone of a disk of a stopped machine", disk: true, a: data, owner: "a", do: func(ctx context.Context, d *Driver) error { return ensureUntil(ctx, d, clonedDisk()) }},
		{name: "grow", disk: true, do: func(ctx context.Context, d *Driver) error { return ensureUntil(ctx, d, grownDisk()) }},
		{name: "grow in a stopped machine", disk: true, a: data, owner: "a", do: func(ctx context.Context, d *Driver) error { return ensureUntil(ctx, d, grownDisk()) }},
		{name: "grow in a running machine", disk: true, a: data, on: true, owner: "a", do: func(ctx context.Context, d *Driver) error { return ensureUntil(ctx, d, grownDisk()) }},
		{name: "attach to a stopped machine", disk: true, a: none, owner: "a", do: func(ctx context.Context, d *Driver) error { return changeUntil(ctx, d, machineA(data...)) }},
		{name: "attach to a running machine", disk: true, a: none, on: true, owner: "a", do: func(ctx context.Context, d *Driver) error { return changeUntil(ctx, d, machineA(data...)) }},
		{name: "detach from a stopped machine", disk: true, a: data, do: func(ctx context.Context, d *Driver) error { return changeUntil(ctx, d, machineA()) }},
		{name: "detach from a running machine", disk: true, a: data, on: true, guest: true, do: func(ctx context.Context, d *Driver) error { return changeUntil(ctx, d, machineA()) }},
		{name: "move from a stopped to a running machine", disk: true, a: data, b: data, on: true, owner: "b", do: func(ctx context.Context, d *Driver) error {
			if err := repeat(ctx, func() error { return d.Stop(ctx, machineA().Identity, 0) }); err != nil {
				return err
			}
			return errors.Join(changeUntil(ctx, d, machineA()), changeUntil(ctx, d, machineB(data...)))
		}},
		{name: "move from a deleted machine", disk: true, a: data, b: data, on: true, owner: "b", do: func(ctx context.Context, d *Driver) error {
			return errors.Join(deleteUntil(ctx, d, machineA()), changeUntil(ctx, d, machineB(data...)))
		}},
		{name: "delete", disk: true, gone: true, do: func(ctx context.Context, d *Driver) error { return deleteDiskUntil(ctx, d, firstDisk(), false) }},
		{name: "retain", disk: true, gone: true, do: func(ctx context.Context, d *Driver) error { return deleteDiskUntil(ctx, d, firstDisk(), true) }},
	}
}

// runVirtualHelper is a manager that goes a way.
func runVirtualHelper(d *Driver, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), drivertest.HelperLimit)
	defer cancel()
	for _, way := range virtualWays() {
		if way.name == name {
			return errors.Join(way.do(ctx, d), d.Close())
		}
	}
	return fmt.Errorf("there is no way %q", name)
}

// goVirtual runs a manager that goes a way until it is killed at a step, and opens the next one.
func (w *fixture) goVirtual(way, step string) ([]string, error) {
	w.Helper()
	w.do(w.driver.Close())
	steps, err := drivertest.Manager(w, drivertest.Goal(way), step,
		helperState+"="+w.options.StateDir, helperUID+"="+string(uid), helperVirtual+"="+way, helperImage+"="+os.Getenv(helperImage))
	w.open()
	return steps, err
}

// pluggedIn returns the names of the machines whose QEMU has a device or the file of the first disk.
func (w *fixture) pluggedIn() []string {
	w.Helper()
	var in []string
	for _, m := range w.driver.all() {
		conn, err := m.monitor()
		if err != nil {
			continue // it is off
		}
		p, err := queryDisks(w.Context(), conn)
		w.do(err)
		if _, has := p.Sizes[qemu.DiskFileNode("data")]; has || slices.Contains(p.devices, qemu.DiskNode("data")) {
			in = append(in, m.id.Name)
		}
	}
	return in
}

// before brings about what a way begins with.
func (w *fixture) before(way *virtualWay) {
	w.Helper()
	if way.disk {
		w.do(ensureUntil(w.Context(), w.driver, firstDisk()))
	}
	machines := map[*backend.Machine]bool{}
	if way.a != nil {
		a := machineA(way.a...)
		machines[&a] = way.on
		if way.guest {
			a.Image, a.MemoryBytes = booted().Image, booted().MemoryBytes
		}
		w.create(a)
	}
	if way.b != nil {
		b := machineB(way.b...)
		machines[&b] = way.on
		w.create(b)
	}
	for machine, on := range machines {
		if !on {
			continue
		}
		_ = w.driver.Start(w.Context(), *machine)
		up := is(backend.StateRunning)
		if way.guest {
			up = answers
		}
		w.until(*machine, "it has started", up)
	}
	if slices.Equal(way.a, []backend.Disk{attached("first")}) {
		w.has(machineA(), firstDisk())
	}
}

// A manager killed while a VirtualDisk is created, cloned, grown, attached, moved, detached or deleted is followed by one that
// completes that. At no time have two machines the disk, and nothing is left over.
func TestLongKilledWhileVirtualDisksChange(t *testing.T) {
	needGuest(t)
	t.Setenv(helperImage, emptyImage(t))
	for _, way := range virtualWays() {
		t.Run(way.name, func(t *testing.T) {
			steps, killed := []string{""}, 0
			for i := 0; i < len(steps); i++ {
				t.Run(steps[i], func(t *testing.T) {
					w := newFixture(t)
					w.before(&way)
					all, err := w.goVirtual(way.name, steps[i])
					if steps[i] == "" {
						w.do(err)
						steps = append(steps, slices.DeleteFunc(all, func(s string) bool { return s == "" })...)
					} else if err != nil {
						killed++
					} // else the manager ended first: machines look at their disks once more after a change, in the background
					if in := w.pluggedIn(); len(in) > 1 {
						t.Fatalf("attached twice: %v", in)
					}
					ctx, cancel := context.WithTimeout(t.Context(), harness.WaitTimeout)
					defer cancel()
					w.do(way.do(ctx, w.driver))
					w.checkVirtual(&way)
				})
			}
			if killed == 0 {
				t.Errorf("no manager was killed; the steps are %q", steps)
			}
		})
	}
}

// checkVirtual checks the state after a way, and removes everything.
func (w *fixture) checkVirtual(way *virtualWay) {
	w.Helper()
	if way.gone {
		kept, err := w.driver.Retained(w.Context())
		if w.do(err); len(kept) != map[string]int{"retain": 1}[way.name] {
			w.Errorf("retained are %+v", kept)
		}
	} else {
		owner := ""
		if state := w.disk(firstDisk()); state.AttachedTo != nil {
			owner = state.AttachedTo.Name
		}
		if owner != way.owner {
			w.Errorf("the disk is attached to %q, want %q", owner, way.owner)
		}
		var want []string
		if way.on && way.owner != "" {
			want = []string{way.owner}
		}
		if in := w.pluggedIn(); !slices.Equal(in, want) {
			w.Errorf("QEMU of %v has the disk, want %v", in, want)
		}
	}
	for _, machine := range []backend.Machine{machineA(), machineB()} {
		w.delete(machine)
	}
	for _, disk := range []backend.VirtualDisk{firstDisk(), clonedDisk(), imageDisk()} {
		if w.driver.findDisk(disk.UID) == nil {
			continue
		}
		w.check(w.driver.virtualDiskPath(disk.UID))
		if parts, _ := filepath.Glob(filepath.Join(w.driver.disksDir(), string(disk.UID), "*")); len(parts) != 2 {
			w.Errorf("files of the disk %s: %v", disk.Name, parts)
		}
		w.deleteDisk(disk)
	}
	if left, _ := filepath.Glob(filepath.Join(w.driver.disksDir(), "*")); len(left) > 0 {
		w.Errorf("left over: %v", left)
	}
}
