package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
)

// forkTimeout is how long a guest that goes on with the memory of another machine may take until it knows which machine it is. It boots
// then.
const forkTimeout = 5 * time.Minute

// prepareFork returns what makes the definition of a new machine that of one that goes on with the memory in its snapshot, if there is
// one, and it fits the machine. Otherwise the machine boots. m.files is held.
func (m *machine) prepareFork(ctx context.Context, machine backend.Machine, base *baseImage, from *snapshotDefinition) (func(*definition), error) {
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
func (m *machine) forkMemory(ctx context.Context, machine backend.Machine, base *baseImage, from *snapshotDefinition) (saved *savedMemory, why string, err error) {
	if machine.Image != nil {
		return nil, "only the default guest can go on as another machine", nil
	}
	if why := from.differsFrom(machine); why != "" {
		return nil, why, nil
	}
	memory := from.Memory
	machine.MemoryBytes = memory.BootMemory // the rest was plugged
	l := m.newLaunch(machine, base)
	if err := m.fillFiles(ctx, l); err != nil {
		return nil, "", err
	}
	was := *l
	was.machine.Identity, was.mac = memory.Started.Identity, memory.MAC
	if was.shape() != memory.Shape {
		return nil, "the machine has other devices, processors or memory than that of the snapshot", nil
	}
	saved = &savedMemory{}
	*saved = memory.savedMemory
	saved.Shape = l.shape()
	paths, err := m.writablePaths(memory.Disks)
	if err == nil {
		saved.Files, err = savedmemory.Stamp(m.dir, paths)
	}
	return saved, "", err
}

// differsFrom returns why the disks of a new machine are not those that the memory in the snapshot fits; empty if they are.
func (def *snapshotDefinition) differsFrom(machine backend.Machine) string {
	if root := def.disk(v1alpha1.RootDiskName); machine.DiskBytes != 0 && (root == nil || machine.DiskBytes != root.SizeBytes) {
		return "its root disk is not as large as that in the snapshot"
	}
	for _, disk := range machine.Disks {
		from := def.disk(disk.Name)
		if from == nil || disk.Image != nil || disk.VirtualDisk != "" || disk.SizeBytes != 0 && disk.SizeBytes != from.SizeBytes {
			return fmt.Sprintf("its disk %s is not that in the snapshot", disk.Name)
		}
	}
	for _, disk := range def.Memory.Disks {
		if !slices.ContainsFunc(machine.Disks, func(own backend.Disk) bool { return own.Name == disk.Name }) {
			return fmt.Sprintf("it does not have the disk %s in the snapshot", disk.Name)
		}
	}
	return ""
}

// disconnectFork takes the network from a guest that has the memory of another machine. It gets it when it knows which machine it is.
func (m *machine) disconnectFork(ctx context.Context, conn *qmp.Client) error {
	m.mu.Lock()
	forked := m.def.GuestForked
	m.mu.Unlock()
	if !forked {
		return nil
	}
	if err := setLink(ctx, conn, false); err != nil {
		return fmt.Errorf("take the network from the guest: %w", err)
	}
	step("fork disconnected")
	return nil
}

// setLink connects the network card, or disconnects it.
func setLink(ctx context.Context, conn *qmp.Client, up bool) error {
	return runWithin(ctx, conn, "set_link", map[string]any{"name": "net", "up": up}, nil)
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
	calling, cancel := context.WithTimeout(ctx, savedmemory.Timeout) // the guest reads disks for that
	defer cancel()
	err = agent.Run(calling, "keelson-fork", map[string]any{"entropy": newEntropy(), "hardware-address": address}, nil)
	if refused := (*qmp.Error)(nil); errors.As(err, &refused) {
		m.bootInstead("the guest did not become another machine: " + err.Error())
		return err
	}
	if err != nil {
		return err
	}
	step("guest renamed")
	if err := setLink(ctx, monitor, true); err != nil {
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
	unnamed := m.def.GuestForked && m.power == backend.StateRunning && m.task == nil && time.Since(m.startedAt) > forkTimeout
	m.mu.Unlock()
	if unnamed {
		m.bootInstead(fmt.Sprintf("its agent did not answer within %s", forkTimeout))
	}
}
