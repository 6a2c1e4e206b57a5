package qemu

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
)

// remove ends the machine and removes everything that belongs to it. The disk goes only after the
// end of the process is confirmed.
func (m *machine) remove(ctx context.Context, options backend.DeleteOptions) error {
	m.closeDisks()
	m.mu.Lock()
	if m.run != "" {
		m.def.StopRun = m.run
		m.save()
	}
	m.mu.Unlock()
	step("delete begun")
	if err := m.stop(ctx, options.Grace); err != nil {
		return err
	}
	m.progress("removing its files")
	if err := m.killUnrecorded(ctx); err != nil {
		return err
	}
	if err := m.d.processes.Remove(string(m.id.UID)); err != nil {
		return err
	}
	step("process forgotten")
	m.mu.Lock()
	m.leaving = true
	m.mu.Unlock()
	if err := m.d.networks.sync(ctx, m.id.Namespace); err != nil {
		return err
	}
	m.files.Lock()
	defer m.files.Unlock()
	if err := m.finishRestore(); err != nil { // the disks that are retained are those that the machine should have
		m.d.options.Log.Error(err, "Could not finish the restore of a machine that is deleted", "machine", m.id.UID)
	}
	if options.KeepDisk {
		if err := m.retain(); err != nil {
			return err
		}
	}
	if err := m.retainDisks(options); err != nil {
		return err
	}
	if err := m.d.releaseDisks(m.id.UID); err != nil {
		return err
	}
	step("virtual disks released")
	if err := removeFolder(m.dir); err != nil {
		return err
	}
	step("folder removed")
	m.d.forget(m)
	return nil
}

// killUnrecorded kills a process of the machine that its definition does not have, because it was
// removed or damaged. It then discards an unreadable process record.
func (m *machine) killUnrecorded(ctx context.Context) error {
	proc, err := m.d.processes.Find(string(m.id.UID))
	if err == nil {
		if err := proc.Stop(ctx, process.StopOptions{TermTimeout: monitorTimeout, KillTimeout: monitorTimeout}); err != nil {
			return err
		}
	}
	if err := killOrphans(ctx, m.id.UID); err != nil {
		return err
	}
	var damage *process.DamagedError
	if !errors.As(err, &damage) {
		return nil
	}
	m.d.options.Log.Info("Discarding an unreadable process record; no QEMU of the machine is running",
		"VirtualMachine", m.id.Namespace+"/"+m.id.Name, "record", damage.Folder, "reason", damage.Err.Error())
	return m.d.processes.Discard(damage.ID)
}

// deleteUnknown removes a machine without a definition: its folder, if its definition is
// unreadable, and its process, if the state directory was removed. Retaining the disk needs no
// definition.
func (d *Driver) deleteUnknown(id backend.Identity, options backend.DeleteOptions) error {
	m := newMachine(d, definition{Machine: backend.Machine{Identity: id}})
	strays, err := findOrphans(id.UID)
	if err != nil {
		return err
	}
	_, err = os.Stat(m.dir)
	if len(strays) == 0 && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	d.mu.Lock()
	if d.machines[id.UID] == nil {
		d.machines[id.UID] = m
	}
	m = d.machines[id.UID]
	d.mu.Unlock()
	return m.begin(backend.TaskDelete, func(ctx context.Context) error { return m.remove(ctx, options) })
}
