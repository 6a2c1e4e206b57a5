package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// Copy is how the disks of a running machine are copied.
type Copy struct {
	// Prepare gives QEMU the files of the copies, and returns the disks of the guest, and how the memory is saved; nil copies the disks only.
	Prepare func(context.Context, *qmp.Client, *diskbackup.Nodes) ([]diskbackup.Disk, *Saver, error)
	// Progress gets the percentage.
	Progress func(percent int64)
}

// Copied is what was copied.
type Copied struct {
	// At is the moment of the copy.
	At time.Time
	// Quiesced means that the file systems of the guest were frozen.
	Quiesced bool
	// Memory is the memory; nil if it was not wanted.
	Memory *savedmemory.Memory
}

// CopyDisks copies disks, and the memory if that is wanted, as they are at one moment: before the guest changes a part of a disk that is
// not copied yet, QEMU copies that part. The guest runs meanwhile, unless its memory is wanted.
func (o *Owner) CopyDisks(ctx context.Context, c Copy) (copied Copied, err error) {
	end, err := o.takeTurn(ctx)
	if err != nil {
		return copied, err
	}
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := o.setInterrupt(cancel); err != nil {
		return copied, err
	}
	defer func() { _ = o.setInterrupt(nil) }() // that never fails
	defer func() {
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
	}()
	conn := o.Monitor()
	if state := o.State(); conn == nil || !state.IsOn() {
		return copied, ErrNotOn
	}
	if err := diskbackup.End(ctx, conn); err != nil { // of a manager that was killed
		return copied, err
	}
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), savedmemory.Timeout)
		defer cancel()
		err = errors.Join(err, diskbackup.End(cleaning, conn)) // QEMU writes what it has cached
		Step("backup ended")
	}()
	nodes, err := diskbackup.Query(ctx, conn)
	if err != nil {
		return copied, err
	}
	disks, memory, err := c.Prepare(ctx, conn, nodes)
	if err != nil {
		return copied, err
	}
	if owed := o.Record().Owed; memory != nil && (owed.Name || owed.Start) {
		return copied, savedmemory.ErrUnnamed
	}
	Step("backup prepared")
	thaw := func() bool { return false }
	if memory == nil { // which has what the guest has not written yet
		thaw = o.freeze(ctx)
	}
	err = diskbackup.Begin(ctx, conn, disks, memory != nil)
	copied.At = time.Now().UTC()
	copied.Quiesced = thaw()
	if err != nil {
		return copied, err
	}
	Step("backup begun")
	err = diskbackup.Await(ctx, conn, c.Progress)
	Step("backup complete")
	if err == nil && memory != nil {
		copied.Memory, copied.At, err = o.copyMemory(ctx, conn, disks, memory, c.Progress)
	}
	return copied, err
}

// setInterrupt sets what ends the copy that there is; nil if there is none. It fails if a sleep waits: QEMU does not write its memory while
// it copies disks.
func (o *Owner) setInterrupt(interrupt context.CancelCauseFunc) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if interrupt != nil && o.sleeps > 0 {
		return errFallsAsleep
	}
	o.interrupt = interrupt
	return nil
}

// copyMemory halts the machine, copies what has changed on its disks since they were copied, saves its memory, and lets it go on. at is the
// moment of both.
func (o *Owner) copyMemory(ctx context.Context, conn *qmp.Client, disks []diskbackup.Disk, s *Saver, progress func(int64)) (saved *savedmemory.Memory, at time.Time, err error) {
	if err := diskbackup.CopyUntilFew(ctx, conn, disks, FewBytes, progress); err != nil {
		return nil, at, err
	}
	if saved, err = s.Describe(ctx, conn); err != nil {
		return nil, at, err
	}
	if _, err := o.enterWork(ctx, Copying); err != nil {
		return nil, at, err
	}
	wasRunning, err := savedmemory.Halt(context.WithoutCancel(ctx), conn)
	at = time.Now().UTC()
	saved.At = at
	Step("halted for a snapshot")
	if err == nil {
		err = diskbackup.CopyChanged(ctx, conn, disks, progress)
	}
	if err == nil {
		err = diskbackup.End(ctx, conn) // QEMU does not let the disks go before
	}
	if err == nil {
		err = s.Write(ctx, conn, saved)
	}
	Step("memory in the snapshot")
	if err != nil {
		savedmemory.Cancel(context.WithoutCancel(ctx), conn)
	}
	if err == nil || wasRunning {
		err = errors.Join(err, o.goOn(ctx, conn, wasRunning))
	}
	o.m.Log(fmt.Sprintf("The machine was halted for %v for a snapshot", time.Since(at).Round(time.Millisecond)))
	Step("gone on after a snapshot")
	return saved, at, o.leaveWork(Copying, err)
}

// freeze has the agent freeze the file systems of the guest, if it runs and has one. thaw thaws them, and reports whether they were frozen
// until then.
func (o *Owner) freeze(ctx context.Context) (thaw func() bool) {
	nothing := func() bool { return false }
	select {
	case o.guest.turn <- struct{}{}: // its queries wait
	case <-ctx.Done():
		return nothing
	}
	o.mu.Lock()
	agent, runs := o.guest.conn, o.record.Phase == Running && o.status == Runs
	o.mu.Unlock()
	end := func() { <-o.guest.turn }
	if agent == nil || !runs {
		end()
		return nothing
	}
	if err := o.change(func(r *Record) { r.Owed.Thaw = true }); err != nil {
		o.m.Log("The file systems of the guest are not frozen: " + err.Error())
		end()
		return nothing
	}
	Step("freeze recorded")
	if err := diskbackup.Freeze(ctx, agent); err != nil {
		o.m.Log("The agent of the guest does not freeze its file systems: " + err.Error())
	} else {
		Step("guest frozen")
	}
	return func() bool {
		defer end()
		wasFrozen, err := o.thaw(context.WithoutCancel(ctx), agent)
		if err != nil {
			o.m.Log("The file systems of the guest may be frozen; retrying: " + err.Error())
			agent.Close() // the next connection thaws them
		}
		return wasFrozen
	}
}

// thaw thaws the file systems of the guest, if they may be frozen. It reports whether they were.
func (o *Owner) thaw(ctx context.Context, agent *qmp.Client) (wasFrozen bool, err error) {
	if !o.Record().Owed.Thaw {
		return false, nil
	}
	if wasFrozen, err = diskbackup.Thaw(ctx, agent); err != nil {
		return false, err
	}
	Step("guest thawed")
	return wasFrozen, o.change(func(r *Record) { r.Owed.Thaw = false })
}
