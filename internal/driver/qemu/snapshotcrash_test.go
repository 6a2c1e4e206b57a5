package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// helperSnapshot is the name of a way in snapshotWays; if not empty, the manager of the test goes it.
const helperSnapshot = "KEELSON_TEST_SNAPSHOT"

// snapshotMachine is the machine of the ways, which has two disks, and snapshotFork one that is made of its snapshot.
func snapshotMachine() backend.Machine {
	machine := machineA(backend.Disk{Name: "data", SizeBytes: 4 << 20})
	machine.DiskBytes = 8 << 20
	return machine
}

func snapshotFork() backend.Machine {
	machine := machineB(backend.Disk{Name: "data", SizeBytes: 4 << 20})
	machine.DiskBytes, machine.Image, machine.Snapshot = 16<<20, &v1alpha1.Image{Snapshot: "first"}, snapshotOf(1, "first").UID
	return machine
}

// snapshotWay is what a manager is killed in.
type snapshotWay struct {
	name string
	// on means that the machine runs, asleep that it is asleep, and taken that there is a snapshot of it already.
	on, asleep, taken bool
	// memory means that the snapshot has its memory.
	memory bool
	// changed means that the machine was asleep with other disks since.
	changed bool
	do      func(ctx context.Context, d *Driver) error
}

func snapshotWays() []snapshotWay {
	id := snapshotOf(1, "first")
	take := func(memory bool) func(ctx context.Context, d *Driver) error {
		return func(ctx context.Context, d *Driver) error {
			return repeat(ctx, func() error {
				if err := d.TakeSnapshot(ctx, id, backend.Source{Server: snapshotMachine().Identity, Memory: memory}); err != nil {
					return err
				}
				state, err := d.ObserveSnapshot(ctx, id)
				if err == nil && !state.Taken {
					return fmt.Errorf("%w: %+v", errNotYet, state)
				}
				return err
			})
		}
	}
	restore := func(memory bool) func(ctx context.Context, d *Driver) error {
		return func(ctx context.Context, d *Driver) error {
			return repeat(ctx, func() error {
				return d.RestoreServer(ctx, snapshotMachine().Identity, backend.Restore{Token: "once", Snapshot: id, Memory: memory})
			})
		}
	}
	return []snapshotWay{
		{name: "take of a running machine", on: true, do: take(false)},
		{name: "take of a stopped machine", do: take(false)},
		{name: "take of a running machine with its memory", on: true, memory: true, do: take(true)},
		{name: "take of a sleeping machine with its memory", asleep: true, memory: true, do: take(true)},
		{name: "fork", taken: true, do: func(ctx context.Context, d *Driver) error {
			return repeat(ctx, func() error {
				if err := d.Create(ctx, snapshotFork()); err != nil {
					return err
				}
				server, err := d.Observe(ctx, snapshotFork().Identity)
				if err == nil && server.State != backend.StateStopped {
					return errNotYet
				}
				return err
			})
		}},
		{name: "restore", taken: true, changed: true, do: restore(false)},
		{name: "restore with memory", taken: true, memory: true, changed: true, do: restore(true)},
		{name: "delete", taken: true, do: func(ctx context.Context, d *Driver) error {
			return repeat(ctx, func() error { return d.DeleteSnapshot(ctx, id) })
		}},
	}
}

// runSnapshotHelper is a manager that goes a way.
func runSnapshotHelper(d *Driver, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), drivertest.HelperLimit)
	defer cancel()
	for _, way := range snapshotWays() {
		if way.name == name {
			return errors.Join(way.do(ctx, d), d.Close())
		}
	}
	return fmt.Errorf("there is no way %q", name)
}

// A manager killed while a snapshot is taken, deleted, or a machine is made of it or restored from it, is followed by one that
// completes that, from complete files only. QEMU keeps nothing of an attempt, and nothing is left over.
func TestLongKilledWhileSnapshotsAreTaken(t *testing.T) {
	needQEMU(t)
	t.Setenv(helperImage, emptyImage(t))
	for _, way := range snapshotWays() {
		t.Run(way.name, func(t *testing.T) {
			steps, killed := []string{""}, 0
			for i := 0; i < len(steps); i++ {
				t.Run(steps[i], func(t *testing.T) {
					w := newFixture(t)
					w.create(snapshotMachine())
					w.starts(snapshotMachine())
					w.fillBoth(1, 2)
					if way.asleep {
						w.sleeps()
					}
					if way.taken && way.memory {
						w.takesMemory(snapshotOf(1, "first"), snapshotMachine())
					}
					if !way.on && !way.asleep {
						w.stops()
					}
					if way.taken && !way.memory {
						w.takes(snapshotOf(1, "first"), snapshotMachine())
					}
					if way.changed {
						w.changeAndSleep(3, 4)
					}
					w.do(w.driver.Close())
					all, err := drivertest.Manager(w, drivertest.Goal(way.name), steps[i], helperState+"="+w.options.StateDir,
						helperUID+"="+string(uid), helperSnapshot+"="+way.name, helperImage+"="+os.Getenv(helperImage))
					w.open()
					if steps[i] == "" {
						w.do(err)
						slices.Sort(all) // a manager is killed when it is at a step for the first time
						steps = append(steps, slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })...)
					} else if err != nil {
						killed++
					}
					if way.on {
						// One that was halted is found paused, and goes on.
						w.eventually("it answers", func(s *backend.Server) bool { return s.State == backend.StateRunning || s.State == backend.StatePaused })
						w.do(w.driver.Resume(t.Context(), snapshotMachine().Identity))
						w.eventually("it runs", is(backend.StateRunning))
					}
					if way.changed {
						w.isWhole(way.memory)
					}
					ctx, cancel := context.WithTimeout(t.Context(), harness.WaitTimeout)
					defer cancel()
					w.do(way.do(ctx, w.driver))
					if way.changed {
						w.hasContent(8<<20, 1, 2)
						if way.memory {
							w.starts(snapshotMachine())
							if !w.wasWoken() {
								t.Error("the machine has booted")
							}
						}
						w.changeAndSleep(5, 6)
						w.open()
						w.do(way.do(ctx, w.driver)) // it was done
						w.hasContent(8<<20, 5, 6)
					}
					w.checkSnapshots(&way)
				})
			}
			if killed == 0 {
				t.Errorf("no manager was killed; the steps are %q", steps)
			}
		})
	}
}

// changeAndSleep changes the content of the disks of the machine, which is off, and puts it to sleep.
func (w *fixture) changeAndSleep(root, data byte) {
	w.Helper()
	w.starts(snapshotMachine())
	w.fillBoth(root, data)
	w.sleeps()
}

// isWhole checks that the machine has all disks of before and its memory, or all disks of the snapshot and the memory in it, if there
// is any, and knows it.
func (w *fixture) isWhole(memory bool) {
	w.Helper()
	if server := w.server(); server.Restored == "" {
		w.hasContent(8<<20, 3, 4)
		if server.State != backend.StateAsleep || !w.hasMemory() {
			w.Errorf("it is %s before the restore, with memory: %v", server.State, w.hasMemory())
		}
		return
	} else if (server.State == backend.StateAsleep) != memory || w.hasMemory() != memory {
		w.Errorf("it is %s after the restore, with memory: %v", server.State, w.hasMemory())
	}
	w.hasContent(8<<20, 1, 2)
}

// checkSnapshots checks the state after a way, and removes everything.
func (w *fixture) checkSnapshots(way *snapshotWay) {
	w.Helper()
	if way.on {
		w.noBackups()
	}
	dirs := map[string]int64{}
	if s := w.driver.findSnapshot(snapshotOf(1, "first").UID); s != nil {
		dirs[s.dir] = 8 << 20
		if files, _ := filepath.Glob(filepath.Join(s.dir, "*")); (len(files) != 3) != way.memory {
			w.Errorf("files of the snapshot: %v", files)
		}
	}
	if way.name == "fork" {
		dirs[filepath.Join(w.driver.machinesDir(), string(snapshotFork().UID))] = 16 << 20
	}
	for dir, size := range dirs {
		w.checkFilled(filepath.Join(dir, diskFile), 1, size)
		w.checkFilled(filepath.Join(dir, diskPath("data")), 2, 4<<20)
	}
	w.delete(snapshotMachine())
	w.delete(snapshotFork())
	w.deleteSnapshot(snapshotOf(1, "first"))
}
