package drivertest

import (
	"context"
	"slices"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// testDisks adds, grows and removes disks of a server that is on. Its guest may hold removed disks until it is off, and changes may wait
// for a restart.
func testDisks(f *fixture) {
	if !f.driver.Capabilities().Disks {
		return // the driver rejects spec.disks
	}
	machine := f.newMachine()
	machine.Disks = []backend.Disk{{Name: "first", SizeBytes: 8 << 20}}
	f.create(machine)
	f.start(machine)
	apply := func(what, hash string, disks ...backend.Disk) {
		f.Helper()
		machine.Hash, machine.Disks = hash, disks
		f.must(what, func(ctx context.Context) error { return f.driver.Reconfigure(ctx, machine) })
	}
	done := func(what string) {
		f.Helper()
		if slices.Contains(f.observe(machine).Pending, "disks") {
			if len(f.observe(machine).Disks) == 0 {
				f.Errorf("%s: no disk waits for a restart", what)
			}
			f.stop(machine, 0)
			f.start(machine)
		}
		harness.Eventually(f, what, func() bool {
			server := f.observe(machine)
			return len(server.Disks) == 0 && len(server.Pending) == 0 && server.Hash == machine.Hash
		})
	}
	apply("add a disk", "2", backend.Disk{Name: "first", SizeBytes: 8 << 20}, backend.Disk{Name: "second", SizeBytes: 8 << 20})
	done("a disk is added")
	apply("grow a disk", "3", backend.Disk{Name: "first", SizeBytes: 16 << 20}, backend.Disk{Name: "second", SizeBytes: 8 << 20})
	done("a disk is grown")
	apply("remove a disk", "4", backend.Disk{Name: "first", SizeBytes: 16 << 20})
	f.open()
	f.until(machine, backend.StateRunning)
	f.stop(machine, 0)
	done("a disk is removed")
	f.remove(machine)
}
