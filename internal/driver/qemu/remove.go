package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
)

// remove ends the machine and removes everything that belongs to it. The disk goes only
// after the process is confirmed gone.
func (m *machine) remove(ctx context.Context, options backend.DeleteOptions) error {
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
	m.progress("its files are removed")
	if err := m.killUnrecorded(ctx); err != nil {
		return err
	}
	if err := m.d.processes.Remove(string(m.id.UID)); err != nil {
		return err
	}
	step("process forgotten")
	if options.KeepDisk {
		if err := m.retain(); err != nil {
			return err
		}
	}
	if err := m.d.removeFolder(m.dir); err != nil {
		return err
	}
	step("folder removed")
	m.d.forget(m)
	return nil
}

// killUnrecorded ends a process of the machine that its definition does not tell of, because
// somebody has removed or damaged that. A record that cannot be read is discarded then.
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
	if runtime.GOOS != "linux" {
		return damage // killOrphans sees nothing there, and QEMU may still run
	}
	m.d.options.Log.Info("Discarding a process record that cannot be read; no QEMU of the machine runs any more",
		"VirtualMachine", m.id.Namespace+"/"+m.id.Name, "record", damage.Folder, "reason", damage.Err.Error())
	return m.d.processes.Discard(damage.ID)
}

// removeFolder removes the folder of a machine, so that it is there or not: what is left
// by a crash in between has another name, and goes when the driver is opened.
func (d *Driver) removeFolder(dir string) error {
	trash := filepath.Join(filepath.Dir(dir), trashPrefix+filepath.Base(dir))
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("remove machine: %w", err)
	}
	err := os.Rename(dir, trash)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove machine: %w", err)
	}
	step("folder renamed")
	if err := os.RemoveAll(trash); err != nil {
		return fmt.Errorf("remove machine: %w", err)
	}
	return nil
}

// deleteUnknown removes what there may be of a machine of which nothing is remembered:
// its folder, if its definition cannot be read; its process, if somebody has removed the
// state directory. The disk needs no definition to be kept.
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
