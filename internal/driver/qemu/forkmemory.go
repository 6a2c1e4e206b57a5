package qemu

import (
	"context"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
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
		def.GuestForked = true
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

// disconnectFork takes the network from a guest that has the memory of another machine. It gets it when it knows which machine it is.
func (m *machine) disconnectFork(ctx context.Context, conn *qmp.Client) error {
	m.mu.Lock()
	forked := m.def.GuestForked
	m.mu.Unlock()
	if !forked {
		return nil
	}
	if err := savedmemory.SetLink(ctx, conn, false); err != nil {
		return fmt.Errorf("take the network from the guest: %w", err)
	}
	step("fork disconnected")
	return nil
}

// renameGuest tells a guest that has the memory of another machine which machine it is, and connects its network.
func (m *machine) renameGuest(ctx context.Context, agent *qmp.Client) error {
	m.mu.Lock()
	forked, address := m.def.GuestForked, m.def.hardwareAddress()
	m.mu.Unlock()
	if !forked {
		return nil
	}
	monitor, err := m.monitor()
	if err != nil {
		return err
	}
	if err := savedmemory.Rename(ctx, agent, monitor, address, ""); err != nil {
		if savedmemory.IsUnusable(err) {
			m.bootInstead(err.Error())
		}
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.def.GuestForked = false
	m.save()
	step("fork complete")
	return nil
}

// bootInstead ends a guest that does not know which machine it is. The machine boots then.
func (m *machine) bootInstead(why string) {
	m.d.options.Log.Info("A machine that was made of a snapshot with memory boots", "machine", m.id.UID, "why", why)
	m.mu.Lock()
	m.def.Unsaved, m.def.GuestForked = why, false
	m.save()
	m.mu.Unlock()
	_ = m.begin(backend.TaskStop, m.endQEMU) // it continues in the background
}

// bootIfUnnamed ends a guest that has not answered for long, and so does not know which machine it is.
func (m *machine) bootIfUnnamed() {
	m.mu.Lock()
	unnamed := m.def.GuestForked && m.power == backend.StateRunning && m.task == nil && time.Since(m.startedAt) > savedmemory.ForkTimeout
	m.mu.Unlock()
	if unnamed {
		m.bootInstead(fmt.Sprintf("its agent did not answer within %s", savedmemory.ForkTimeout))
	}
}
