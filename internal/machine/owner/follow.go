package owner

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// follow follows QEMU until it ends. It connects to the monitor again if necessary.
func (o *Owner) follow() {
	defer close(o.done)
	defer o.leaveAgent()
	defer o.cancel()
	pause, answered := firstDialPause, time.Now()
	for {
		conn, err := o.dial()
		if err == nil {
			pause = firstDialPause
			err = o.followMonitor(conn)
			o.setMonitor(nil)
			conn.Close()
			answered = time.Now()
		}
		if time.Since(answered) > monitorTimeout {
			o.setSilent(true)
		}
		if o.hasWorked() {
			_ = o.decide(nil, false) // also if QEMU does not answer
		}
		wait := pause
		if errors.Is(err, qmp.ErrFlood) {
			wait = floodPause // what was missed is asked for then
		}
		timer := time.NewTimer(wait)
		select {
		case <-o.m.Gone:
			timer.Stop()
			o.end()
			return
		case <-o.ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		pause = min(2*pause, lastDialPause)
	}
}

// hasWorked reports whether the work of the phase has ended.
func (o *Owner) hasWorked() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.work != NoWork && o.work != Pending
}

// dial connects to the monitor, and verifies that it is that of the machine.
func (o *Owner) dial() (*qmp.Client, error) {
	ctx, cancel := context.WithTimeout(o.ctx, monitorTimeout)
	defer cancel()
	conn, err := qmp.Dial(ctx, filepath.Join(o.m.Dir, qemu.MonitorSocket))
	if err != nil {
		return nil, err
	}
	var got struct{ UUID string }
	if err = conn.Run(ctx, "query-uuid", nil, &got); err == nil && got.UUID != o.m.UID {
		err = fmt.Errorf("the monitor belongs to machine %s", got.UUID)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// followMonitor follows a monitor until the connection or QEMU ends.
func (o *Owner) followMonitor(conn *qmp.Client) error {
	o.setMonitor(conn)
	check, boot, press := time.NewTicker(CheckInterval), time.NewTicker(bootInterval), time.NewTimer(pressInterval)
	press.Stop() // until it is to be off
	defer check.Stop()
	defer boot.Stop()
	defer press.Stop()
	if err := o.refresh(conn); err != nil {
		return err
	}
	o.m.Connected(conn)
	due := false
	for {
		if err := o.decide(conn, due); err != nil {
			return err
		}
		due = false
		if left := o.untilPress(); left > 0 {
			press.Reset(left)
		}
		select {
		case event, open := <-conn.Events():
			if !open {
				return qmp.ErrClosed
			}
			if event.Name == "RESET" {
				boot.Reset(bootInterval)
			}
			if !o.handle(event) {
				continue
			}
		case <-o.look:
		case <-press.C:
		case <-check.C:
			due = true
		case <-boot.C:
			looksAgain, err := o.watchBoot(conn, bootInterval)
			if err != nil {
				return err
			}
			if !looksAgain {
				boot.Stop()
			}
			continue
		case <-o.m.Gone:
			return nil
		case <-o.ctx.Done():
			return nil
		}
		if err := o.refresh(conn); err != nil {
			return err
		}
	}
}

// end decides what the end of QEMU means, when nothing uses it any more.
func (o *Owner) end() {
	o.mu.Lock()
	o.status = Gone
	o.mu.Unlock()
	for {
		_ = o.decide(nil, false) // nothing is done without a monitor
		if phase := o.Record().Phase; phase == Ended || phase == Asleep {
			return
		}
		select {
		case <-o.look: // the work has ended
		case <-o.ctx.Done():
			return
		}
	}
}

// decide does what Next says, until there is nothing to do. due means that a periodic check is due.
func (o *Owner) decide(conn *qmp.Client, due bool) error {
	for {
		seen := o.observe(due)
		o.mu.Lock()
		phase := o.record.Phase
		next, action := Next(phase, seen, o.wanted)
		o.mu.Unlock()
		if next != phase && !o.enter(phase, next) {
			continue
		}
		if err := o.do(conn, action); err != nil || next == phase {
			return err
		}
		due = false
	}
}

// observe returns what the owner sees.
func (o *Owner) observe(due bool) Observed {
	o.mu.Lock()
	seen := Observed{QEMU: o.status, Work: o.work, Due: due, Press: time.Since(o.pressed) >= pressInterval}
	if o.record.Owed.Name && o.unnamed == "" && time.Since(o.started) >= ForkTimeout {
		o.unnamed = fmt.Sprintf("its agent did not answer within %s", ForkTimeout)
	}
	seen.Unnamed = o.record.Owed.Name && o.unnamed != ""
	full := slices.Clone(o.full)
	o.mu.Unlock()
	seen.Room = due && seen.QEMU == NoSpace && o.m.HasRoom(full)
	return seen
}

// enter makes next the phase, and reports whether it is. Memory counts as saved, or as used, only if that is durable.
func (o *Owner) enter(phase, next Phase) bool {
	o.mu.Lock()
	f := facts{memory: o.memory, over: o.over, failure: o.workError}
	if o.record.Owed.Name && o.work == NoWork {
		f.unnamed = o.unnamed
	}
	works := next == Saving || next == Copying
	if works { // before others see the phase, and end the work
		o.work, o.wanted.Work = Pending, ""
	}
	o.mu.Unlock()
	f.logBytes = o.logBytes()
	change := func(r *Record) { r.enter(next, f) }
	if phase == Loading && next == Running || next == Asleep {
		if err := o.change(change); err != nil {
			if phase == Saving {
				savedmemory.Remove(o.m.Memory)
				o.mu.Lock()
				o.status = Stands
				o.mu.Unlock()
			}
			o.finish(Failed, err)
			return false
		}
	} else {
		o.note(change)
	}
	switch {
	case phase == Loading && next == Running:
		Step("memory used")
		savedmemory.Remove(o.m.Memory)
		Step("memory removed")
	case phase == Loading && next == Ended:
		savedmemory.Remove(o.m.Memory)
	case phase == Saving && next == Asleep:
		Step("sleep recorded")
	case next == Ended && f.over.Cause != "":
		Step("guest ended")
	}
	o.mu.Lock()
	if !works {
		o.work = NoWork
	}
	if next == Running {
		o.full, o.started = nil, time.Now()
		if o.record.Owed.Name {
			time.AfterFunc(ForkTimeout, o.lookSoon)
		}
	}
	o.mu.Unlock()
	o.tell(false)
	return true
}

// do does an action. The error means that the connection is unusable.
func (o *Owner) do(conn *qmp.Client, action Action) error {
	if conn == nil || action == Nothing {
		return nil
	}
	command := map[Action]string{Continue: "cont", Halt: "stop", Press: "system_powerdown", Quit: "quit"}[action]
	if action == Interrupt {
		o.interruptWork(errPowersOff)
		return nil
	}
	o.mu.Lock()
	if action == Press {
		o.pressed = time.Now()
	}
	o.mu.Unlock()
	// To let the guest run, QEMU opens its disks for writing; to halt it, it writes what they have cached.
	ctx, cancel := context.WithTimeout(o.ctx, savedmemory.Timeout)
	defer cancel()
	if err := connectionError(conn.Run(ctx, command, nil, nil)); err != nil || action == Quit {
		return err
	}
	Step(string(action) + " done")
	return o.refresh(conn)
}

// untilPress returns when the power button is to be pressed again; 0 if that is not wanted.
func (o *Owner) untilPress() time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.wanted.Power != PowerOff {
		return 0
	}
	return max(time.Millisecond, pressInterval-time.Since(o.pressed))
}

func (o *Owner) setMonitor(conn *qmp.Client) {
	o.mu.Lock()
	o.conn = conn
	o.mu.Unlock()
	if conn != nil {
		o.setSilent(false)
	}
}

func (o *Owner) setSilent(silent bool) {
	o.mu.Lock()
	changed := o.silent != silent
	o.silent = silent
	o.mu.Unlock()
	if changed {
		o.tell(false)
	}
}
