package qemu

import (
	"context"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
)

// prepareFork returns what makes the definition of a new machine that of one that goes on with the memory in its snapshot, if there is
// one, and it fits the machine. Otherwise the machine boots. m.files is held.
func (m *machine) prepareFork(ctx context.Context, machine backend.Machine, base *qemu.Image, from *snapshotDefinition) (func(*definition), error) {
	if from == nil || from.Memory == nil {
		return func(*definition) {}, nil
	}
	saved, why, err := m.forkMemory(ctx, machine, base, from)
	if err != nil {
		return nil, err
	}
	if why != "" {
		savedmemory.Remove(m.dir)
		m.d.options.Log.Info("A machine that is made of a snapshot with memory boots", "machine", m.id.UID, "why", why)
		return func(def *definition) { def.Ended = newMemoryEnd(backend.CauseMemoryLost, why) }, nil
	}
	if err := writeSeed(m.path(seedFile), &machine); err != nil {
		return nil, err
	}
	step("fork prepared")
	started := machine
	started.MemoryBytes = from.Memory.Started.MemoryBytes
	return func(def *definition) {
		def.asleepWith(*saved, started, from.Memory)
		def.SeedSum, def.StartedSeedSum = seedSum(machine.Seed), seedSum(machine.Seed)
		def.Owner.Owed.Name = true
	}, nil
}

// forkMemory returns the memory in a snapshot as that of a new machine, whose disks are those of the snapshot, or why it does not fit.
func (m *machine) forkMemory(ctx context.Context, machine backend.Machine, base *qemu.Image, from *snapshotDefinition) (saved *savedMemory, why string, err error) {
	if machine.Image != nil {
		return nil, savedmemory.NoGuestForks, nil
	}
	if why := from.differsFrom(&machine); why != "" {
		return nil, why, nil
	}
	memory := from.Memory
	machine.MemoryBytes = memory.BootMemory // the rest was plugged
	l := m.launchOf(machine, base)
	if err := m.fillFiles(ctx, l); err != nil {
		return nil, "", err
	}
	was := *l
	was.identify(memory.Started.Identity)
	was.MAC = memory.MAC
	if was.Shape() != memory.Shape {
		return nil, "the machine has other devices, processors or memory than that of the snapshot", nil
	}
	saved = &savedMemory{}
	*saved = memory.savedMemory
	saved.Shape = l.Shape()
	paths, err := m.writablePaths(memory.Disks)
	if err == nil {
		saved.Files, err = savedmemory.Stamp(m.dir, paths)
	}
	return saved, "", err
}

// differsFrom returns why the disks of a new machine are not those that the memory in the snapshot fits; empty if they are.
func (def *snapshotDefinition) differsFrom(machine *backend.Machine) string {
	sizes := map[string]int64{}
	for _, disk := range def.Disks {
		sizes[disk.Name] = disk.SizeBytes
	}
	return machine.DisksDifferFrom(sizes)
}
