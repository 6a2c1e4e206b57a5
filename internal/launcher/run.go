package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskspace"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

const (
	// program is QEMU.
	program = "qemu-system-x86_64"
	// exitTimeout is how long QEMU has to exit after it was told to.
	exitTimeout = 5 * time.Second
	// usualBoot is how long the default guest usually needs to boot, also if the Pod has little of a processor.
	usualBoot = 30 * time.Second
)

// notAnswering is why nothing is known of a guest.
const notAnswering = "its QEMU does not answer. See the storage of its volumes and the load of its node; to end it, set spec.action to stopped"

// run runs QEMU until it ends.
func (l *launcher) run(ctx context.Context, config *qemu.Config) Ended {
	found, err := exec.LookPath(program)
	if err != nil {
		return Ended{Cause: CauseStartFailed, Message: err.Error()}
	}
	var output tail
	confinement := config.Confinement()
	path, argv := confinement.Command(found, config.Arguments()...)
	cmd := exec.Command(path)
	cmd.Args, cmd.Dir, cmd.ExtraFiles = argv, l.dirs.Run, append([]*os.File{l.console}, l.locks...)
	cmd.Stdout, cmd.Stderr = io.MultiWriter(l.messages, &output), io.MultiWriter(l.messages, &output)
	if err := cmd.Start(); err != nil {
		return Ended{Cause: CauseStartFailed, Message: err.Error()}
	}
	gone := make(chan struct{})
	var status error
	go func() {
		status = cmd.Wait()
		close(gone)
	}()
	describe := func() string { return confinement.Named(output.String()) }
	m := l.machine(cmd.Process.Pid, gone)
	m.Rejected = func() string {
		if exit := (*exec.ExitError)(nil); errors.As(status, &exit) && exit.ExitCode() > 0 {
			return describe()
		}
		return ""
	}
	failure := l.own(ctx, m, func() { _ = cmd.Process.Kill() }) // it may have ended
	<-gone
	return l.describe(ctx, failure, status, describe())
}

// machine returns what the owner has to know of the machine.
func (l *launcher) machine(pid int, gone <-chan struct{}) owner.Machine {
	m := owner.Machine{
		UID: l.definition.UID, Dir: l.dirs.Run, Memory: l.dirs.Disk, PID: pid, Gone: gone, NoAgent: l.definition.NoAgent, Address: hardwareAddress,
		Instance: l.definition.UID, Save: l.save, HasRoom: l.hasRoom, Full: l.fullMessage, Changed: func(bool) { l.showState() },
		Connected: func(*qmp.Client) {}, Released: func() {}, Answered: func() {},
		Log: func(message string) { _, _ = fmt.Fprintln(l.messages, message) }, // a message only
	}
	if !l.definition.OwnSystem() { // only the default guest is known to open the channel of its agent early
		m.UsualBoot = usualBoot
	}
	return m
}

// own owns QEMU until it ends, or is killed. failure is why saved memory was not loaded.
func (l *launcher) own(ctx context.Context, m owner.Machine, kill func()) (failure error) {
	record := owner.Record{Phase: owner.Starting, Boot: &owner.Boot{}}
	if l.memory != nil {
		record = owner.Record{Phase: owner.Loading, Memory: &l.memory.Memory, Owed: owner.Owed{Name: l.memory.GuestOf != nil}}
	}
	o := owner.New(m, record, false)
	l.owner.Store(o)
	o.Start()
	defer o.Close()
	if l.memory != nil {
		failure = o.Load(ctx, func(ctx context.Context, conn *qmp.Client) error { return l.memory.Load(ctx, conn, l.dirs.Disk) })
	}
	never := func(owner.State) bool { return false }
	if err := o.Await(ctx, never); errors.Is(err, context.Canceled) {
		if l.definition.SleepWhenEvicted && !l.powersOff.Load() && !o.State().Silent {
			if err := l.sleep(o); err != nil {
				_, _ = fmt.Fprintf(l.messages, "The machine is powered off, because it cannot sleep: %v\n", err) // a message only
			}
		}
		o.SetPower(owner.PowerOff)
		if err := o.Await(context.Background(), func(s owner.State) bool { return s.Silent }); err == nil {
			l.silent = true
			kill() // nobody knows what it does
		}
	}
	select {
	case <-o.Done():
	case <-time.After(exitTimeout):
		kill()
		<-o.Done()
	}
	return failure
}

// describe returns how the machine ended. failure is why saved memory was not loaded, and status how QEMU ended.
func (l *launcher) describe(ctx context.Context, failure, status error, output string) Ended {
	record := l.owner.Load().Record()
	var exit *exec.ExitError
	signalled := errors.As(status, &exit) && exit.Sys().(syscall.WaitStatus).Signaled()
	switch {
	case record.Ended != nil && record.Ended.Cause == owner.CauseMemoryLost:
		return Ended{Cause: CauseMemoryLost, Message: record.Ended.Message}
	case failure != nil && record.Phase == owner.Asleep && ctx.Err() == nil && !signalled:
		return Ended{Cause: CauseStartFailed, Message: fmt.Sprintf("wake the machine: %v: %v: %s", failure, status, output)}
	case failure == nil && record.Phase == owner.Asleep:
		return Ended{Cause: CauseAsleep, SavedBytes: record.Memory.Size}
	case l.silent:
		return Ended{Cause: CauseHost, Message: "its Pod was stopped, and its QEMU, which did not answer, was killed"}
	case ctx.Err() != nil && (record.Ended != nil || status == nil):
		return Ended{Cause: CauseHost, Message: "its Pod was stopped"}
	case record.Ended != nil:
		return Ended{Cause: Cause(record.Ended.Cause)}
	case signalled:
		signal := exit.Sys().(syscall.WaitStatus).Signal()
		return Ended{Cause: CauseHost, Message: fmt.Sprintf("QEMU was killed by signal %d (%s)", signal, signal)}
	case !l.owner.Load().State().Answers:
		return Ended{Cause: CauseStartFailed, Message: fmt.Sprintf("QEMU: %v: %s", status, output)}
	}
	return Ended{Cause: CauseError, Message: fmt.Sprintf("QEMU: %v: %s", status, output)}
}

// guest returns the owner of the machine while there is a guest; otherwise nil.
func (l *launcher) guest() *owner.Owner {
	o := l.owner.Load()
	if o == nil {
		return nil
	}
	if state := o.State(); !state.IsOn() {
		return nil
	}
	return o
}

// monitor returns the connection to QEMU while there is a guest; otherwise nil.
func (l *launcher) monitor() *qmp.Client {
	if o := l.guest(); o != nil {
		return o.Monitor()
	}
	return nil
}

// showState tells kubelet, the manager and the log the state of the guest.
func (l *launcher) showState() {
	l.showing.Lock() // what is shown last is what was seen last
	defer l.showing.Unlock()
	state := l.owner.Load().State()
	why := state.Message
	if state.Silent {
		why = notAnswering
	}
	if l.ready.set(state.IsOn() && (state.Agent == owner.AgentConnected || state.Agent == owner.AgentNone && state.Runs), why, state.Silence) {
		if why == "" {
			why = "it goes on"
		}
		_, _ = fmt.Fprintf(l.messages, "The guest is halted: %s\n", why) // a message only
	}
}

// hasRoom reports whether the volumes of disks have room; all volumes if there are no disks. The disks are named as their block nodes.
func (l *launcher) hasRoom(disks []string) bool {
	for _, disk := range l.fullDisks(disks) {
		if !diskspace.IsEnough(filepath.Dir(l.dirs.diskPath(disk))) {
			return false
		}
	}
	return true
}

// fullDisks returns the names of disks that are named as their block nodes; all disks if there are none: then the event was lost.
func (l *launcher) fullDisks(nodes []string) (disks []string) {
	var all []string
	for _, disk := range l.definition.AllDisks() {
		all = append(all, disk.Name)
		for _, node := range nodes {
			if node == qemu.DiskNode(disk.Name) {
				disks = append(disks, disk.Name)
			}
		}
	}
	if len(disks) == 0 {
		return all
	}
	return disks
}

// fullMessage returns why a guest is halted whose disks, named as their block nodes, are on full volumes, and what to do.
func (l *launcher) fullMessage(nodes []string) string {
	var names, fields []string
	for _, disk := range l.fullDisks(nodes) {
		field := "its size in spec.disks"
		if disk == qemu.RootDisk {
			field = "spec.resource.rootDisk"
		}
		names = append(names, "the "+disk+" disk")
		if len(fields) == 0 || fields[len(fields)-1] != field { // the root disk is the first one
			fields = append(fields, field)
		}
	}
	where, grow := "where its volume is", fmt.Sprintf(", or increase %s, if the StorageClass can expand volumes", strings.Join(fields, " and "))
	if l.definition.Ephemeral {
		where, grow = "on its node", ""
	}
	return fmt.Sprintf("the volume of %s is full. The guest resumes when %d MiB are free: free space %s%s",
		strings.Join(names, " and "), diskspace.Enough>>20, where, grow)
}
