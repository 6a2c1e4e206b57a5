package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/driver/operation"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/process"
)

const (
	// templateUID means in the SMBIOS tables that the UUID is not known.
	templateUID types.UID = "00000000-0000-0000-0000-000000000000"
	// templateProcess is the process in which a template boots.
	templateProcess = "template"
	// templateMark is an entry in the environment of this process, by which it is found without its record.
	templateMark = "KEELSON_TEMPLATE="
	// templateWord on the command line of the kernel makes the guest wait until it is a machine, see guest/cmd/init.
	templateWord = "keelson.template"
	// templateTimeout limits the time in which a template is made. It has what the machines leave of the processor.
	templateTimeout = 10 * time.Minute
	// templatePoll is the interval of looks at a template that boots, and at the machines that start meanwhile.
	templatePoll = 100 * time.Millisecond
	// templateAnswer is the response timeout of the agent of a template, which may get little of the processor.
	templateAnswer = 30 * time.Second
	// trimTimeout limits the time in which a template gives or gets memory, and trimPercent is the part of its free memory that
	// it gives.
	trimTimeout = time.Minute
	trimPercent = 90
	// idlePriority is the lowest priority of a process, see nice(1).
	idlePriority = 19
)

// want has the template of a machine that has booted made in the background, if there is none.
func (t *templates) want(l *launch) {
	if noTemplate(&l.machine) != "" {
		return
	}
	bare, err := t.d.templateLaunch(l)
	if err != nil {
		return // the start of a machine reports it
	}
	build, key, err := t.key(bare)
	if err != nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all[key] != nil || time.Since(t.failed[key]) < templateRetry {
		return
	}
	_ = t.work.Begin(t.d.ctx, &t.d.tasks, operation.Work{
		Do: func(ctx context.Context) error { return t.make(ctx, bare, &template{Key: key, Build: build}) },
		Ended: func(err error) {
			if err != nil {
				t.mu.Lock()
				defer t.mu.Unlock()
				t.failed[key] = time.Now()
				t.d.options.Log.Error(err, "Could not make a template for machines; they boot", "retryAfter", templateRetry)
			}
		},
	})
}

// make makes a template: it boots the guest in a QEMU of its own, and saves the memory when the guest waits.
func (t *templates) make(ctx context.Context, l *launch, made *template) error {
	ctx, cancel := context.WithTimeout(ctx, templateTimeout)
	defer cancel()
	if err := t.awaitCalm(ctx); err != nil {
		return err
	}
	user, err := t.d.users.claim(templateUID, 0)
	if err != nil {
		return err
	}
	defer t.d.users.release(templateUID)
	if l.User = newUser(user); l.User != nil {
		l.User.Groups = t.d.users.groups
	}
	dir := t.path(makingDir)
	defer func() { _ = os.RemoveAll(dir) }() // if it fails, the next manager does
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return err
	}
	if l.Kernel, err = readable(l.Kernel, filepath.Join(dir, kernelFile), l.User); err != nil {
		return err
	}
	if l.Initrd, err = readable(l.Initrd, filepath.Join(dir, initrdFile), l.User); err != nil {
		return err
	}
	guest, err := newMemory(l.machine.MemoryBytes)
	if err != nil {
		return err
	}
	defer guest.Close()
	l.Memory = memoryPath(guest)
	step("template prepared")
	err = t.boot(ctx, l, made, dir)
	ending, cancelEnding := context.WithTimeout(context.WithoutCancel(ctx), networkTimeout)
	defer cancelEnding()
	if err := errors.Join(err, t.d.endTemplateProcess(ending)); err != nil {
		return err
	}
	step("template ended")
	if err := made.write(dir, guest); err != nil {
		return err
	}
	for _, name := range []string{serialLog, qemu.MonitorSocket, qemu.HumanSocket, qemu.ConsoleSocket, qemu.AgentSocket, kernelFile, initrdFile} {
		_ = os.Remove(filepath.Join(dir, name)) // some do not exist
	}
	if err := t.add(made); err != nil {
		return err
	}
	step("template made")
	t.d.options.Log.V(1).Info("Made a template for machines", "template", made.Key, "bytes", made.Size)
	return nil
}

// write writes the memory of the guest to the disk.
func (t *template) write(dir string, guest *os.File) error {
	devices, err := os.ReadFile(filepath.Join(dir, templateDevices))
	if err != nil {
		return err
	}
	memory, err := os.OpenFile(filepath.Join(dir, templateMemory), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	t.Size, t.SHA256, err = copyMemory(memory, guest, devices)
	return errors.Join(err, memory.Close())
}

// awaitCalm waits until no machine is being started.
func (t *templates) awaitCalm(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, templatePoll, true, func(context.Context) (bool, error) { return len(t.d.starting) == 0, nil })
}

// boot boots the guest until it waits.
func (t *templates) boot(ctx context.Context, l *launch, made *template, dir string) error {
	spec := t.d.newSpec(templateProcess, dir, l)
	spec.Env = append(spec.Env, templateMark+dir)
	proc, err := t.d.startIdly(spec)
	if err != nil {
		return fmt.Errorf("start QEMU: %w", err)
	}
	step("template started")
	ctx, cancel := untilEnd(ctx, proc)
	defer cancel()
	conn, err := dialTemplate(ctx, dir)
	if err == nil {
		defer conn.Close()
		err = awaitTemplate(ctx, conn, dir, (&guestboot.Clock{PID: proc.PID()}).Tick)
	}
	if err == nil {
		step("template booted")
		err = trimTemplate(ctx, conn, l.machine.MemoryBytes)
	}
	if err == nil {
		err = saveTemplate(ctx, conn, made, dir)
	}
	if hasEnded(proc) {
		return fmt.Errorf("QEMU ended: %s", lastOutput(l.Confinement().Named(proc.Status().LogTail)))
	}
	return err
}

// startIdly starts a process at the lowest priority. Its thread keeps that, so it ends with this call.
func (d *Driver) startIdly(spec process.Spec) (proc *process.Process, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, idlePriority) // it is allowed to everybody
		proc, err = d.processes.Start(spec)
	}()
	<-done
	return proc, err
}

func dialTemplate(ctx context.Context, dir string) (conn *qmp.Client, err error) {
	dialErr := wait.PollUntilContextCancel(ctx, templatePoll, true, func(ctx context.Context) (bool, error) {
		conn, err = qmp.Dial(ctx, filepath.Join(dir, qemu.MonitorSocket))
		return err == nil, nil
	})
	if dialErr != nil {
		return nil, errors.Join(dialErr, err)
	}
	return conn, nil
}

// awaitTemplate waits until the agent of the guest answers: then the guest waits. It resets a guest that hangs. tick returns the part of an
// interval that counts.
func awaitTemplate(ctx context.Context, conn *qmp.Client, dir string, tick func(time.Duration) time.Duration) error {
	boot := guestboot.Boot{Usual: usualBoot}
	err := wait.PollUntilContextCancel(ctx, templatePoll, true, func(ctx context.Context) (bool, error) {
		boot.Ran += tick(templatePoll)
		if guestboot.Decide(boot) == guestboot.Reset {
			boot.Resets, boot.Ran = boot.Resets+1, 0
			step("template reset")
			return false, conn.Run(ctx, "system_reset", nil, nil)
		}
		var devices []struct {
			Label string
			Open  bool `json:"frontend-open"`
		}
		if err := conn.Run(ctx, "query-chardev", nil, &devices); err != nil {
			return false, err
		}
		for _, device := range devices {
			if device.Label == qemu.AgentChardev && device.Open {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, templatePoll, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, templateAnswer)
		defer cancel()
		agent, err := qmp.DialAgent(ctx, filepath.Join(dir, qemu.AgentSocket))
		if err != nil {
			return false, nil //nolint:nilerr // the guest is asked again: what it gets while it opens the channel may be lost
		}
		agent.Close()
		return true, nil
	})
}

// trimTemplate takes the free memory from the guest and gives it back: QEMU has discarded its content, so that the machines
// need no memory of the host for it until they use it.
func trimTemplate(ctx context.Context, conn *qmp.Client, size int64) error {
	ctx, cancel := context.WithTimeout(ctx, trimTimeout)
	defer cancel()
	const interval = "guest-stats-polling-interval"
	set := func(property string, value any) error {
		return conn.Run(ctx, "qom-set", map[string]any{"path": qemu.BalloonPath, "property": property, "value": value}, nil)
	}
	if err := set(interval, 1); err != nil {
		return err
	}
	var stats struct {
		Updated int64 `json:"last-update"`
		Stats   struct {
			Free uint64 `json:"stat-free-memory"`
		}
	}
	err := wait.PollUntilContextCancel(ctx, templatePoll, true, func(ctx context.Context) (bool, error) {
		err := conn.Run(ctx, "qom-get", map[string]any{"path": qemu.BalloonPath, "property": "guest-stats"}, &stats)
		return stats.Updated > 0, err
	})
	if err := errors.Join(err, set(interval, 0)); err != nil {
		return err
	}
	free := int64(min(stats.Stats.Free, uint64(size))) //nolint:gosec // not more than the memory
	if err := inflate(ctx, conn, size-free/100*trimPercent); err != nil {
		return fmt.Errorf("take the free memory of the guest: %w", err)
	}
	if err := inflate(ctx, conn, size); err != nil {
		return fmt.Errorf("give the guest its memory back: %w", err)
	}
	return nil
}

// inflate changes the memory of a guest, and waits until it has that.
func inflate(ctx context.Context, conn *qmp.Client, size int64) error {
	if err := conn.Run(ctx, "balloon", map[string]any{"value": size}, nil); err != nil {
		return err
	}
	return wait.PollUntilContextCancel(ctx, templatePoll, true, func(ctx context.Context) (bool, error) {
		var balloon struct{ Actual int64 }
		err := conn.Run(ctx, "query-balloon", nil, &balloon)
		return balloon.Actual>>20 == size>>20, err
	})
}

// saveTemplate saves the state of the devices of the guest; its memory stays as it is.
func saveTemplate(ctx context.Context, conn *qmp.Client, made *template, dir string) error {
	var err error
	if made.QEMU, err = savedmemory.Version(ctx, conn); err != nil {
		return err
	}
	devices, err := os.OpenFile(filepath.Join(dir, templateDevices), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer devices.Close()
	if err := conn.Run(ctx, "stop", nil, nil); err != nil {
		return err
	}
	return saveDevices(ctx, conn, devices)
}

// endTemplateProcess ends the process of a template, also if its record was lost or damaged, and removes the record.
func (d *Driver) endTemplateProcess(ctx context.Context) error {
	proc, err := d.processes.Find(templateProcess)
	if err == nil {
		if err := proc.Stop(ctx, process.StopOptions{TermTimeout: time.Second, KillTimeout: time.Second}); err != nil {
			return err
		}
		return d.processes.Remove(templateProcess)
	}
	if _, err := process.EndMarked(ctx, templateMark+filepath.Join(d.templatesDir(), makingDir)); err != nil {
		return err
	}
	if errors.Is(err, process.ErrNotFound) {
		return nil
	}
	return d.processes.Discard(templateProcess)
}
