package qemu

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/process"
)

// maxMilliCPU is the maximum number of processors of a QEMU machine, in thousandths.
const maxMilliCPU = 255_000

// Validate rejects machines that QEMU cannot run. The error is a *backend.FieldError.
func Validate(machine *backend.Machine) error {
	if err := machine.RequireWholeCPUs(Name); err != nil {
		return err
	}
	switch {
	case machine.MilliCPU > maxMilliCPU:
		return &backend.FieldError{Field: "spec.resource.cpu", Message: "the driver qemu supports at most 255 processors"}
	case machine.Image != nil && machine.Image.Container != "":
		return &backend.FieldError{Field: "spec.image.container", Message: "the driver qemu does not run containers; specify a disk image or a kernel"}
	}
	if machine.Image == nil && machine.Firmware == v1alpha1.FirmwareUEFI {
		return &backend.FieldError{Field: "spec.firmware", Message: "the default guest boots without UEFI; set spec.image, or remove the field"}
	}
	if err := machine.RejectPodFields(); err != nil {
		return err
	}
	return validateDisks(machine.Disks)
}

// validate rejects machines that cannot be created.
func validate(machine *backend.Machine) error {
	if err := Validate(machine); err != nil {
		return err
	}
	return checkUID(machine.UID)
}

// NewRule returns Validate for a driver that allows files in these directories: it also rejects paths outside of them,
// whether or not the files exist. Links are checked when a file is opened.
func NewRule(dirs confine.Dirs) func(*backend.Machine) error {
	return func(machine *backend.Machine) error {
		if err := Validate(machine); err != nil {
			return err
		}
		for _, file := range namedFiles(machine.Image) {
			if _, err := dirs.Check(file.path); err != nil {
				return &backend.FieldError{Field: "spec.image." + file.field, Message: describePathError(err, dirs)}
			}
		}
		for _, file := range namedFiles(machine.CDROM) {
			if _, err := dirs.Check(file.path); err != nil {
				return &backend.FieldError{Field: "spec.cdrom.image." + file.field, Message: describePathError(err, dirs)}
			}
		}
		for _, disk := range machine.Disks {
			for _, file := range namedFiles(disk.Image) {
				if _, err := dirs.Check(file.path); err != nil {
					return &backend.FieldError{Field: "spec.disks[" + disk.Name + "].image." + file.field, Message: describePathError(err, dirs)}
				}
			}
		}
		return nil
	}
}

// namedFile is a host file referenced by spec.image.
type namedFile struct{ field, path string }

// namedFiles returns the host files of an image, which may be nil.
func namedFiles(image *v1alpha1.Image) []namedFile {
	if image == nil {
		return nil
	}
	all := []namedFile{{"path", image.Path}, {"kernel", image.Kernel}, {"initrd", image.Initrd}}
	return slices.DeleteFunc(all, func(file namedFile) bool { return file.path == "" })
}

// fieldOf returns the name of a field of an image.
func fieldOf(image *v1alpha1.Image, field string) string {
	if image.Name != "" {
		return "spec." + field + " of the VirtualMachineImage " + image.Name
	}
	return "spec.image." + field
}

// checkFiles rejects an image with files that are not allowed, whether or not they exist.
func (d *Driver) checkFiles(image *v1alpha1.Image) error {
	for _, file := range namedFiles(image) {
		// A missing file is reported, and looked for again, when it is needed.
		if _, err := d.file(fieldOf(image, file.field), file.path); errors.Is(err, backend.ErrInvalid) {
			return err
		}
	}
	return nil
}

// Create implements backend.Driver.
func (d *Driver) Create(_ context.Context, machine backend.Machine) error {
	if err := errors.Join(validate(&machine), d.checkFiles(machine.Image), d.checkMemory(&machine)); err != nil {
		return err
	}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return fmt.Errorf("driver qemu is closed: %w", backend.ErrUnavailable)
	}
	m := d.machines[machine.UID]
	if m == nil || m.isFolderMissing() {
		m = newMachine(d, definition{Machine: machine})
		d.machines[machine.UID] = m
	}
	d.mu.Unlock()
	m.mu.Lock()
	created := m.def.Created
	m.mu.Unlock()
	if created {
		return nil
	}
	return m.begin(backend.TaskCreate, func(ctx context.Context) error {
		err := m.create(ctx, machine)
		if err == nil && slices.ContainsFunc(machine.Disks, func(disk backend.Disk) bool { return disk.VirtualDisk != "" }) {
			m.changeDisks() // it reports those that it waits for
		}
		return err
	})
}

// Start implements backend.Driver.
func (d *Driver) Start(_ context.Context, machine backend.Machine) error {
	if err := validate(&machine); err != nil {
		return err
	}
	m, err := d.find(machine.Identity)
	if err != nil {
		return err
	}
	m.mu.Lock()
	isOn, created := m.run != "", m.def.Created
	machine.Image = m.def.Image // the disk was created from it
	m.mu.Unlock()
	if isOn {
		return nil
	}
	if !created {
		return fmt.Errorf("machine %s is incomplete: %w", machine.UID, backend.ErrNotFound)
	}
	return m.begin(backend.TaskStart, func(ctx context.Context) error {
		if err := m.completeRestore(); err != nil {
			return err
		}
		if m.savedMemory() != nil {
			return m.wake(ctx)
		}
		return m.start(ctx, machine)
	})
}

// Stop implements backend.Driver.
func (d *Driver) Stop(_ context.Context, id backend.Identity, grace time.Duration) error {
	m, err := d.find(id)
	if err != nil {
		return err
	}
	m.mu.Lock()
	if m.run == "" && m.def.Asleep != nil {
		m.mu.Unlock()
		return m.discardMemory(backend.CauseRequested, "")
	}
	if m.run == "" {
		ended := backend.Ended{Run: m.def.LastRun, At: time.Now()}
		if m.def.Ended != nil {
			ended = *m.def.Ended
		}
		ended.Cause, ended.Message = backend.CauseRequested, ""
		m.def.Ended = &ended
		m.save()
		m.mu.Unlock()
		return nil
	}
	if m.def.StopRun != m.run {
		m.def.StopRun = m.run
		m.save()
	}
	m.mu.Unlock()
	step("stop noted")
	return m.begin(backend.TaskStop, func(ctx context.Context) error { return m.stop(ctx, grace) })
}

// Pause implements backend.Driver.
func (d *Driver) Pause(ctx context.Context, id backend.Identity) error {
	return d.switchPower(ctx, id, owner.Pause)
}

// Resume implements backend.Driver.
func (d *Driver) Resume(ctx context.Context, id backend.Identity) error {
	return d.switchPower(ctx, id, owner.On)
}

func (d *Driver) switchPower(ctx context.Context, id backend.Identity, power owner.Power) error {
	m, err := d.find(id)
	if err != nil {
		return err
	}
	o := m.own()
	if o == nil {
		return fmt.Errorf("machine %s is off: %w", id.UID, backend.ErrUnavailable)
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	if err := o.Switch(ctx, power); err != nil {
		return fmt.Errorf("machine %s: %w: %w", id.UID, backend.ErrUnavailable, err)
	}
	return nil
}

// stop ends the current run: it has the guest power off, then QEMU quit, and then kills QEMU. A QEMU that does not answer has the grace
// period, too: its guest powers off if it answers again.
func (m *machine) stop(ctx context.Context, grace time.Duration) error {
	m.mu.Lock()
	proc, o, off := m.proc, m.owner, m.run == ""
	m.mu.Unlock()
	if off {
		return nil
	}
	if grace > 0 {
		m.progress("the guest is powering off")
		o.SetPower(owner.PowerOff)
		timer := time.NewTimer(grace)
		select {
		case <-proc.Done():
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
	step("stop asked")
	err := proc.Stop(ctx, process.StopOptions{
		Polite:        m.quit,
		PoliteTimeout: monitorTimeout, TermTimeout: monitorTimeout, KillTimeout: monitorTimeout,
	})
	if err != nil {
		return err
	}
	step("stopped")
	// The owner records the end.
	return m.waitOff(ctx)
}

func (m *machine) quit(ctx context.Context) error {
	conn, err := m.monitor()
	if err != nil {
		return err
	}
	return conn.Run(ctx, "quit", nil, nil)
}

// waitOff waits until the end of the run is recorded.
func (m *machine) waitOff(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) { return m.isOff(), nil })
}

// Delete implements backend.Driver.
func (d *Driver) Delete(_ context.Context, id backend.Identity, options backend.DeleteOptions) error {
	if err := checkUID(id.UID); err != nil {
		return nil // such a machine was never created
	}
	m, err := d.find(id)
	if errors.Is(err, backend.ErrNotFound) {
		return d.deleteUnknown(id, options)
	}
	if err != nil {
		return err
	}
	m.mu.Lock()
	failed := m.taskErr
	m.taskErr = nil
	m.mu.Unlock()
	if failed != nil {
		return failed
	}
	return m.begin(backend.TaskDelete, func(ctx context.Context) error { return m.remove(ctx, options) })
}
