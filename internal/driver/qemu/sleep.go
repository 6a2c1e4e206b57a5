package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/process"
)

// sleepRetryInterval is the interval between attempts to put a machine to sleep: each halts it for a moment.
var sleepRetryInterval = 30 * time.Second

// Sleep implements backend.Driver.
func (d *Driver) Sleep(ctx context.Context, id backend.Identity, options backend.SleepOptions) error {
	m, err := d.find(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	isOff, begun := m.run == "", m.task.Busy()
	m.mu.Unlock()
	if isOff {
		return m.changeSleep(options)
	}
	if at, err := m.task.Failure(backend.TaskSleep); err != nil && time.Since(at) < sleepRetryInterval {
		return err
	}
	if options.Idle && !begun && m.isUsed(ctx) {
		return fmt.Errorf("put machine %s to sleep: %w", id.UID, backend.ErrActive)
	}
	return m.begin(backend.TaskSleep, func(ctx context.Context) error { return m.sleep(ctx, options) })
}

// sleep saves the memory of the machine and ends its QEMU. If it fails, the machine is as it was.
func (m *machine) sleep(ctx context.Context, options backend.SleepOptions) error {
	m.mu.Lock()
	m.wanted = false
	isAsleep := m.def.Asleep != nil
	m.mu.Unlock()
	if isAsleep {
		return m.endQEMU(ctx) // the previous attempt ended in between
	}
	select {
	case m.d.starting <- struct{}{}:
		defer func() { <-m.d.starting }()
	case <-ctx.Done():
		return ctx.Err()
	}
	m.files.Lock() // no disk is plugged or grown meanwhile
	defer m.files.Unlock()
	if err := m.countSaved(1); err != nil {
		m.savedBytes.Store(0)
		return err
	}
	o := m.own()
	if o == nil {
		return backend.ErrNotRunning
	}
	saving := &savedMemory{SleepOptions: options}
	m.mu.Lock()
	m.saving = saving
	m.mu.Unlock()
	err := o.Sleep(ctx, m.saver(saving, func(ctx context.Context, conn *qmp.Client, memory *savedmemory.Memory) error {
		m.progress("saving its memory")
		return memory.Write(ctx, conn, m.dir, m.countSaved)
	}))
	if err != nil {
		m.savedBytes.Store(0)
		return fmt.Errorf("save the memory of the machine: %w", err)
	}
	return m.endQEMU(ctx)
}

// describeMemory describes the memory of the running machine, without its file. It fails if the memory would not fit a new
// QEMU.
func (m *machine) describeMemory(ctx context.Context, conn *qmp.Client) (*savedMemory, error) {
	m.mu.Lock()
	saved := &savedMemory{Run: m.run, Memory: savedmemory.Memory{Shape: m.def.Shape}}
	m.mu.Unlock()
	l := m.wakingLaunch()
	if err := m.fillFiles(ctx, l); err != nil {
		return nil, err
	}
	saved.CPU = l.Processors()
	if saved.Shape != l.Shape() {
		return nil, errors.New("the hardware of the machine is not that of its next start, because it got processors or Keelson was upgraded since its start: " +
			"it can sleep after a restart. Set spec.restartRequestedAt to the current time")
	}
	ctx, cancel := context.WithTimeout(ctx, savedmemory.Timeout)
	defer cancel()
	var err error
	if saved.QEMU, err = savedmemory.Version(ctx, conn); err != nil {
		return nil, err
	}
	if saved.Disks, err = queryDiskAddresses(ctx, conn); err != nil {
		return nil, err
	}
	saved.DIMMs, err = queryDIMMs(ctx, conn)
	return saved, err
}

// queryDiskAddresses returns the plugged disks of spec.disks.
func queryDiskAddresses(ctx context.Context, conn *qmp.Client) ([]qemu.PluggedDisk, error) {
	plugged, err := queryDisks(ctx, conn)
	if err != nil {
		return nil, err
	}
	var all []qemu.PluggedDisk
	for _, device := range plugged.devices {
		name, isDisk := strings.CutPrefix(device, qemu.DiskNode(""))
		if !isDisk {
			continue
		}
		var at int // the slot times eight, plus the function
		if err := conn.Run(ctx, "qom-get", map[string]any{"path": "/machine/peripheral/" + device, "property": "addr"}, &at); err != nil {
			return nil, err
		}
		all = append(all, qemu.PluggedDisk{Name: name, Address: fmt.Sprintf("%x.%x", at>>3, at&7)})
	}
	slices.SortFunc(all, func(a, b qemu.PluggedDisk) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// queryDIMMs returns the plugged memory.
func queryDIMMs(ctx context.Context, conn *qmp.Client) ([]qemu.DIMM, error) {
	var devices []struct {
		Data struct {
			ID, Memdev       string
			Size, Slot, Addr int64
		}
	}
	if err := conn.Run(ctx, "query-memory-devices", nil, &devices); err != nil {
		return nil, err
	}
	var all []qemu.DIMM
	for _, device := range devices {
		d := device.Data
		all = append(all, qemu.DIMM{ID: d.ID, Backend: strings.TrimPrefix(d.Memdev, "/objects/"), Size: d.Size, Slot: d.Slot, Address: d.Addr})
	}
	return all, nil
}

// recordAsleep makes saved the saved memory of a machine that is off, nil for none, durably, together with another change. When it returns
// an error, the record is as it was.
func (m *machine) recordAsleep(saved *savedMemory, change func(*definition)) error {
	return m.record(func(def *definition) {
		def.setAsleep(saved)
		change(def)
	}, func(found *definition) bool { return (found.Asleep == nil) == (saved == nil) })
}

// setAsleep makes saved the saved memory; nil for none.
func (def *definition) setAsleep(saved *savedMemory) {
	def.Asleep, def.Owner.Phase = saved, owner.Off
	if saved != nil {
		def.Owner.Phase = owner.Asleep
	}
}

// record changes the definition of the machine durably. When it returns an error, the definition is as it was. has reports whether a
// definition has the change. change must not change what the definition refers to.
func (m *machine) record(change func(*definition), has func(*definition) bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	defer func() { m.savedBytes.Store(m.def.Asleep.size()) }()
	before := m.def
	change(&m.def)
	err := m.def.write(m.dir)
	if err == nil {
		return nil
	}
	// The record may have got its name before the failure. What the next manager would read counts.
	if found, readErr := readDefinition(m.dir); readErr == nil && has(&found) {
		m.d.options.Log.Error(err, "The definition of a machine may be lost at a power cut", "folder", m.dir)
		return nil
	}
	m.def = before
	return fmt.Errorf("record the state of the machine: %w", err)
}

// endQEMU ends a QEMU that is not to run the guest: its memory is saved, or was loaded and not used.
func (m *machine) endQEMU(ctx context.Context) error {
	m.mu.Lock()
	proc := m.proc
	isOff := m.run == ""
	if !isOff {
		m.def.StopRun = m.run
		m.save()
	}
	m.mu.Unlock()
	if isOff {
		return nil
	}
	err := proc.Stop(ctx, process.StopOptions{
		Polite: m.quit, PoliteTimeout: savedmemory.Timeout, TermTimeout: monitorTimeout, KillTimeout: savedmemory.Timeout,
	})
	if err != nil {
		return err
	}
	step("asleep")
	return m.waitOff(ctx)
}

// endIfAsleep ends the QEMU of a machine that is asleep, unless that is being done: a manager was killed in between.
func (m *machine) endIfAsleep() {
	m.mu.Lock()
	left := m.def.Asleep != nil && m.run != "" && !m.task.Busy()
	m.mu.Unlock()
	if left {
		_ = m.begin(backend.TaskSleep, m.endQEMU) // it continues in the background, or another task has begun
	}
}

// writablePaths returns the files that the guest writes to, with these disks.
func (m *machine) writablePaths(disks []qemu.PluggedDisk) ([]string, error) {
	l := m.wakingLaunch()
	var all []string
	if l.Root != nil {
		all = append(all, m.path(diskFile))
	}
	if l.machine.Firmware == v1alpha1.FirmwareUEFI {
		all = append(all, m.path(varsFile))
	}
	for _, disk := range disks {
		record, found := m.diskRecord(disk.Name)
		if !found || !m.ownsDisk(&record) {
			return nil, savedmemory.Unusable("the machine has no disk %s any more", disk.Name)
		}
		all = append(all, m.recordPath(&record))
	}
	return all, nil
}
