package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// FewBytes is what may have changed on the disks since they were copied, so that the machine is halted to copy that. Tests change it.
var FewBytes int64 = 16 << 20

// errFallsAsleep and errPowersOff are why a copy is interrupted, and errFull is why memory is neither saved nor copied.
var (
	errFallsAsleep = errors.New("the machine is falling asleep; the snapshot is taken when it is asleep")
	errPowersOff   = errors.New("the machine is being powered off")
	errFull        = errors.New("the machine does not run, because a volume of its disks is full")
)

// Saver is how the memory of a machine is saved.
type Saver struct {
	// Describe describes the memory of the running machine. It fails if the memory would not fit a new QEMU.
	Describe func(context.Context, *qmp.Client) (*savedmemory.Memory, error)
	// Write writes the memory of the halted machine to where it is kept.
	Write func(context.Context, *qmp.Client, *savedmemory.Memory) error
	// Disks returns the files that the guest writes to, if it goes on with the memory.
	Disks func() ([]string, error)
}

// Sleep saves the memory of the machine, whose QEMU ends then. If it fails, the machine is as it was.
func (o *Owner) Sleep(ctx context.Context, s Saver) error {
	o.countSleeps(1)
	defer o.countSleeps(-1)
	o.interruptWork(errFallsAsleep)
	end, err := o.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer end()
	if o.Record().Phase == Asleep { // another one has asked for the same
		return nil
	}
	conn, err := o.enterWork(ctx, Saving)
	if err != nil {
		return err
	}
	saved, err := o.save(ctx, conn, s)
	o.mu.Lock()
	o.memory = saved
	o.mu.Unlock()
	return o.leaveWork(Saving, err)
}

// save saves the memory of a machine.
func (o *Owner) save(ctx context.Context, conn *qmp.Client, s Saver) (*savedmemory.Memory, error) {
	if err := diskbackup.End(ctx, conn); err != nil { // of a manager that was killed; QEMU does not let the disks go meanwhile
		return nil, err
	}
	saved, err := s.Describe(ctx, conn)
	if err != nil {
		return nil, err
	}
	Step("sleep begun")
	wasRunning, err := savedmemory.Halt(ctx, conn)
	if err == nil {
		Step("halted")
		err = s.Write(ctx, conn, saved)
	}
	if err == nil {
		err = savedmemory.Keep(o.m.Memory)
	}
	var disks []string
	if err == nil {
		Step("memory kept")
		disks, err = s.Disks()
	}
	if err == nil { // QEMU has written all that it had to, and has let the disks go
		saved.Files, err = savedmemory.Stamp(o.m.Memory, disks)
	}
	if err == nil {
		saved.At = time.Now().UTC()
		return saved, nil
	}
	savedmemory.Remove(o.m.Memory)
	savedmemory.Cancel(context.WithoutCancel(ctx), conn) // also if there was no time to save it
	if wasRunning {
		err = errors.Join(err, o.goOn(ctx, conn, true))
	}
	return nil, err
}

// goOn lets a halted machine run, which takes its disks back. If it did not run before, it is halted again: QEMU takes disks back in no
// other way.
func (o *Owner) goOn(ctx context.Context, conn *qmp.Client, runs bool) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), savedmemory.Timeout)
	defer cancel()
	err := conn.Run(ctx, "cont", nil, nil)
	if err == nil && !runs {
		err = conn.Run(ctx, "stop", nil, nil)
	}
	if err != nil {
		return fmt.Errorf("resume the machine: %w", err)
	}
	return nil
}

// Load gives a QEMU that waits for it memory, and lets the guest run. load loads it. Until the record says that saved memory is used,
// the guest does not run, and the memory can be loaded again. The error is a savedmemory.UnusableError if the memory can never be used.
func (o *Owner) Load(ctx context.Context, load func(context.Context, *qmp.Client) error) error {
	err := o.load(ctx, load)
	result := Done
	switch {
	case savedmemory.IsUnusable(err):
		result = Unusable
	case err != nil:
		result = Failed
	}
	o.finish(result, err)
	waiting, cancel := context.WithTimeout(o.ctx, savedmemory.Timeout)
	defer cancel()
	awaitErr := o.Await(waiting, func(s State) bool { return s.Phase != Starting && s.Phase != Loading && (s.Phase != Running || s.Runs) })
	if err == nil {
		err = awaitErr
	}
	if phase := o.Record().Phase; err == nil && (phase == Ended || phase == Asleep) {
		o.mu.Lock()
		err = o.workError // the use of the memory could not be recorded
		o.mu.Unlock()
		if err == nil {
			err = ErrNotOn
		}
	}
	return err
}

func (o *Owner) load(ctx context.Context, load func(context.Context, *qmp.Client) error) error {
	conn, err := o.awaitMonitor(ctx)
	if err != nil {
		return err
	}
	if err = load(ctx, conn); err != nil {
		return o.describeLoad(ctx, err)
	}
	Step("memory loaded")
	if !o.Record().Owed.Name {
		return nil
	}
	if err := savedmemory.SetLink(ctx, conn, false); err != nil {
		return fmt.Errorf("take the network from the guest: %w", err)
	}
	Step("fork disconnected")
	return nil
}

// describeLoad returns a savedmemory.UnusableError if QEMU has rejected the memory.
func (o *Owner) describeLoad(ctx context.Context, err error) error {
	if !errors.Is(err, qmp.ErrClosed) && !errors.Is(err, unix.EPIPE) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, monitorTimeout)
	defer cancel()
	select {
	case <-o.m.Gone:
		if output := o.m.Rejected(); output != "" {
			return savedmemory.Unusable("QEMU does not accept it: %s", output)
		}
	case <-ctx.Done():
	}
	return err
}

// awaitMonitor waits until the monitor answers.
func (o *Owner) awaitMonitor(ctx context.Context) (*qmp.Client, error) {
	for {
		o.mu.Lock()
		conn, status, changed := o.conn, o.status, o.changed
		o.mu.Unlock()
		if conn != nil && status != Silent {
			return conn, nil
		}
		select {
		case <-changed:
		case <-o.m.Gone:
			return nil, qmp.ErrClosed
		case <-o.done:
			return nil, ErrNotOn
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// countSleeps counts those who wait to save the memory, or save it.
func (o *Owner) countSleeps(more int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sleeps += more
}

// takeTurn waits for the turn of a copy, or of a sleep. end ends it.
func (o *Owner) takeTurn(ctx context.Context) (end func(), err error) {
	select {
	case o.working <- struct{}{}:
		return func() { <-o.working }, nil
	case <-o.done:
		return nil, ErrNotOn
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// interruptWork ends the copy that there is because of a reason.
func (o *Owner) interruptWork(why error) {
	o.mu.Lock()
	interrupt := o.interrupt
	o.mu.Unlock()
	if interrupt != nil {
		interrupt(why)
		Step("copy interrupted")
	}
}

// enterWork waits until the machine is in the phase of a work.
func (o *Owner) enterWork(ctx context.Context, phase Phase) (*qmp.Client, error) {
	o.mu.Lock()
	o.wanted.Work = phase
	conn, silent := o.conn, o.silent
	o.mu.Unlock()
	if conn == nil && silent {
		o.forgetWork()
		return nil, errors.New("the monitor of QEMU does not answer")
	}
	o.lookSoon()
	err := o.Await(ctx, func(s State) bool { return s.Phase == phase || s.Phase == Full })
	if err == nil && o.Record().Phase != phase {
		err = errFull
	}
	if err != nil && !o.forgetWork() {
		return nil, o.leaveWork(phase, err) // it was entered meanwhile
	}
	if err != nil {
		return nil, err
	}
	if conn, err = o.awaitMonitor(ctx); err != nil {
		return nil, o.leaveWork(phase, err)
	}
	return conn, nil
}

// forgetWork ends the wait for a phase. It reports whether the machine is not in it.
func (o *Owner) forgetWork() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	waits := o.wanted.Work != ""
	o.wanted.Work = ""
	return waits
}

// leaveWork ends the phase of a work with its result, which it returns.
func (o *Owner) leaveWork(phase Phase, err error) error {
	result := Done
	if err != nil {
		result = Failed
	}
	o.finish(result, err)
	if awaitErr := o.Await(context.Background(), func(s State) bool { return s.Phase != phase }); err == nil && awaitErr != nil {
		return awaitErr
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		err = o.workError // it could not be recorded
	}
	return err
}

// finish notes the result of the work.
func (o *Owner) finish(result Result, err error) {
	o.mu.Lock()
	o.work, o.workError = result, err
	o.mu.Unlock()
	o.lookSoon()
}
