package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// runDiskHelper is a manager that changes the disks of the existing machine, and waits until that is complete.
func runDiskHelper(d *Driver, disks string) error {
	ctx, cancel := context.WithTimeout(context.Background(), drivertest.HelperLimit)
	defer cancel()
	m := d.machines[uid]
	if m == nil {
		return errors.New("there is no machine")
	}
	machine := m.def.Machine
	machine.Hash = "changed"
	if err := json.Unmarshal([]byte(disks), &machine.Disks); err != nil {
		return err
	}
	for ctx.Err() == nil {
		if err := d.Reconfigure(ctx, machine); err == nil {
			break
		} else if !errors.Is(err, backend.ErrUnavailable) {
			return err
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // this acts as a manager
	}
	for ctx.Err() == nil {
		server, err := d.Observe(ctx, machine.Identity)
		if err != nil {
			return err
		}
		if disksDone(&server) {
			return d.Close()
		}
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // this acts as a manager
	}
	return fmt.Errorf("the disks of %s did not change in time", machine.UID)
}

// changeDisks runs a manager that changes the disks of the machine of the test, until it is killed at a step.
func (w *fixture) changeDisks(disks []backend.Disk, step string) ([]string, error) {
	w.Helper()
	raw, err := json.Marshal(disks)
	w.do(err)
	w.do(w.driver.Close())
	steps, err := drivertest.Manager(w, "change disks", step,
		helperState+"="+w.options.StateDir, helperUID+"="+string(uid), helperDisks+"="+string(raw))
	w.open()
	return steps, err
}

// hasPlugged checks that QEMU has exactly these disks of spec.disks, each once.
func (w *fixture) hasPlugged(names ...string) {
	w.Helper()
	conn, err := w.driver.machines[uid].monitor()
	w.do(err)
	p, err := queryDisks(w.Context(), conn)
	w.do(err)
	for _, name := range []string{"data", "base"} {
		want := 0
		if slices.Contains(names, name) {
			want = 1
		}
		nodes := 0
		if _, found := p.Sizes[qemu.DiskNode(name)]; found {
			nodes++
		}
		devices := len(p.devices) - len(slices.DeleteFunc(slices.Clone(p.devices), func(d string) bool { return d == qemu.DiskNode(name) }))
		if sets := len(p.Sets[qemu.DiskFileNode(name)]); sets != want || nodes != want || devices != want {
			w.Errorf("disk %s: QEMU has %d sets of descriptors, %d block nodes, %d devices; want %d of each", name, sets, nodes, devices, want)
		}
	}
}

// A manager killed while disks change is followed by one that completes the change: no disk is lost, doubled, or left behind.
func TestLongKilledWhileDisksChange(t *testing.T) {
	needGuest(t)
	data := []backend.Disk{{Name: "data", SizeBytes: 8 << 20}}
	grown := []backend.Disk{{Name: "data", SizeBytes: 16 << 20}}
	retained := []backend.Disk{{Name: "data", SizeBytes: 8 << 20, Retain: true}}
	for _, way := range []struct {
		name          string
		on            bool
		before, after []backend.Disk
		retained      int
	}{
		{"plugged", true, nil, data, 0},
		{"grown", true, data, grown, 0},
		{"unplugged", true, retained, []backend.Disk{}, 1},
		{"added to a stopped machine", false, nil, data, 0},
		{"removed from a stopped machine", false, retained, []backend.Disk{}, 1},
	} {
		t.Run(way.name, func(t *testing.T) {
			steps := []string{""}
			for i := 0; i < len(steps); i++ {
				t.Run(steps[i], func(t *testing.T) {
					w := newFixture(t)
					// Only a guest releases a disk.
					machine, started := firmware(uid), is(backend.StateRunning)
					if machine.Image.Path = emptyImage(t); way.name == "unplugged" {
						machine, started = booted(), answers
					}
					machine.DiskBytes, machine.Disks = 64<<20, way.before
					w.create(machine)
					if way.on {
						w.do(w.driver.Start(t.Context(), machine))
						w.eventually("it has started", started)
					}
					all, err := w.changeDisks(way.after, steps[i])
					if steps[i] == "" {
						w.do(err)
						steps = append(steps, slices.DeleteFunc(all, func(s string) bool { return s == "" })...)
					} else if err == nil {
						t.Fatalf("the manager was not killed at %q", steps[i])
					}
					machine.Hash, machine.Disks = "changed", way.after
					harness.Eventually(t, "the change is accepted", func() bool { return w.driver.Reconfigure(t.Context(), machine) == nil })
					var names []string
					for _, disk := range way.after {
						names = append(names, disk.Name)
					}
					w.hasFiles(names...)
					if way.on {
						w.hasPlugged(names...)
						w.stops()
					}
					w.checkDisks()
					kept, err := w.driver.Retained(t.Context())
					if w.do(err); len(kept) != way.retained {
						t.Errorf("retained are %+v, want %d", kept, way.retained)
					}
					w.remove()
				})
			}
			if len(steps) < 2 && way.name != "grown" {
				t.Errorf("steps are %q", steps)
			}
		})
	}
}
