package qemu

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// wake lets a machine that is asleep go on where it was. If its memory cannot be used, it discards that, so that the machine
// boots from its disk at the next start.
func (m *machine) wake(ctx context.Context) error {
	select {
	case m.d.starting <- struct{}{}:
		defer func() { <-m.d.starting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	m.progress("loading its memory")
	err := m.load(ctx)
	if err == nil || ctx.Err() != nil {
		return err // the next manager ends a QEMU that does not run the guest
	}
	why := (*savedmemory.UnusableError)(nil)
	isUnusable, isAsleep := errors.As(err, &why), m.savedMemory() != nil
	if !isUnusable && !isAsleep { // its memory is used
		return err
	}
	if endErr := m.endQEMU(ctx); endErr != nil {
		return errors.Join(err, endErr)
	}
	if !isUnusable {
		return fmt.Errorf("wake the machine: %w", err)
	}
	m.d.options.Log.Info("The saved memory of a machine cannot be used; the machine boots from its disk", "machine", m.id.UID, "why", why.Why)
	if !isAsleep { // the owner of QEMU has discarded it
		return nil
	}
	return m.discardMemory(backend.CauseMemoryLost, why.Why)
}

// load starts QEMU, gives it the saved memory, and lets the machine go on. Until the record says that the memory is used,
// the guest does not run, and the memory can be loaded again.
func (m *machine) load(ctx context.Context) error {
	saved := m.savedMemory()
	var shared *sharedMemory
	l, proc, err := m.launch(ctx, func(ctx context.Context) (l *launch, err error) {
		l, shared, err = m.prepareWake(ctx, saved)
		return l, err
	})
	if shared != nil {
		defer shared.close()
	}
	if err != nil {
		return err
	}
	defer m.connect(ctx)()
	if err := m.waitUp(ctx, proc, l.Confinement()); err != nil {
		return err
	}
	o := m.own()
	if o == nil {
		return errors.New("QEMU ended while it started")
	}
	return o.Load(ctx, func(ctx context.Context, conn *qmp.Client) error {
		if shared == nil {
			return saved.Load(ctx, conn, m.dir)
		}
		err := loadDevices(ctx, conn, saved.QEMU, shared.devices)
		if err != nil && ctx.Err() == nil {
			m.d.loaded.forget(saved.SHA256) // the next attempt loads it by itself
			// This does not wrap the error: a QEMU that has ended would mean that it rejects the saved memory.
			return fmt.Errorf("load the memory that it shares with other machines: %v", err) //nolint:errorlint // see above
		}
		return err
	})
}

func (m *machine) savedMemory() *savedMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.def.Asleep
}

// wakingLaunch returns what the machine was started with, without what fillFiles finds.
func (m *machine) wakingLaunch() *launch {
	m.mu.Lock()
	machine, bootMemory, base := *m.startedWith(), m.def.BootMemory, m.def.Base
	m.mu.Unlock()
	machine.MemoryBytes = bootMemory // the rest was plugged
	return m.launchOf(machine, base)
}

// launchOf returns a start of the machine, without what fillFiles finds.
func (m *machine) launchOf(machine backend.Machine, base *qemu.Image) *launch {
	l := newLaunch(machine, m.d.kvm, m.d.plugs)
	l.User, l.Programs, l.Seed = m.user(), programDirs(m.d.binary), seedFile
	if !l.KVM && l.CPUs > 1 {
		l.Version = m.d.version()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l.MAC = m.def.hardwareAddress()
	if base != nil || m.def.RootCreated || machine.DiskBytes > 0 {
		l.Root = &qemu.Disk{Name: qemu.RootDisk, Path: diskFile, Base: base}
	}
	return l
}

// fillFiles fills in the kernel, the firmware and the image in the CD-ROM drive.
func (m *machine) fillFiles(ctx context.Context, l *launch) error {
	return errors.Join(m.kernelFor(l.machine.Image, l), m.prepareFirmware(l), m.findCDROM(ctx, l))
}

// prepareWake returns the QEMU that the saved memory fits, and the memory if other machines have it, too; otherwise, QEMU loads that. It
// changes none of the files that the guest writes to. m.files is held.
func (m *machine) prepareWake(ctx context.Context, saved *savedMemory) (_ *launch, shared *sharedMemory, err error) {
	l, err := m.findWake(ctx, saved)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	before := m.def.HostPorts
	var inUse []v1alpha1.Port
	if m.wakesOnConnection() {
		inUse = l.machine.Ports // its network listens at them
	}
	m.mu.Unlock()
	published, err := m.d.hostPorts(l.machine.Ports, before, inUse)
	if err != nil {
		return nil, nil, err
	}
	if shared = m.d.loaded.open(ctx, m, l, saved); shared != nil {
		l.Memory = memoryPath(shared.memory)
	}
	m.removeSockets()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.def.HostPorts, m.def.StopRun, m.def.MemoryShared = published, "", shared != nil
	if err := m.def.write(m.dir); err != nil {
		return nil, shared, fmt.Errorf("write machine: %w", err)
	}
	return l, shared, nil
}

// findWake returns the QEMU that the saved memory fits, without its ports.
func (m *machine) findWake(ctx context.Context, saved *savedMemory) (*launch, error) {
	if saved == nil {
		return nil, errors.New("the machine is not asleep")
	}
	if err := m.claimUser(); err != nil {
		return nil, err
	}
	l := m.wakingLaunch()
	l.Saved = &saved.Plugged
	if err := m.fillFiles(ctx, l); err != nil {
		return nil, err
	}
	if err := saved.Check("", l.Processors(), l.Shape()); err != nil {
		return nil, err
	}
	paths, err := m.writablePaths(saved.Disks)
	if err == nil {
		err = saved.CheckFiles(m.dir, paths)
	}
	if err != nil {
		return nil, err
	}
	for _, disk := range saved.Disks {
		record, _ := m.diskRecord(disk.Name)
		l.addDisks(m.d.disksDir(), record)
	}
	return l, nil
}

// discardMemory discards the saved memory of a machine whose QEMU has ended: it is off then.
func (m *machine) discardMemory(cause backend.Cause, why string) error {
	err := m.recordAsleep(nil, func(def *definition) {
		def.Ended = newMemoryEnd(cause, why)
	})
	if err != nil {
		return err
	}
	step("memory discarded")
	savedmemory.Remove(m.dir)
	// Its network listens at its ports no longer: the next start finds them free.
	ctx, cancel := context.WithTimeout(m.d.ctx, networkTimeout)
	defer cancel()
	_ = m.d.networks.sync(ctx, m.id.Namespace) // the network tries again
	return nil
}

// newMemoryEnd returns the end of saved memory that is not used.
func newMemoryEnd(cause backend.Cause, why string) *backend.Ended {
	now := time.Now()
	return &backend.Ended{Run: "memory-" + strconv.FormatInt(now.UnixNano(), 36), Cause: cause, Message: why, At: now}
}
