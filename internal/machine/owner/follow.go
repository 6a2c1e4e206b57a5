package owner

import (
	"context"
	"encoding/json"
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
		if phase := o.Record().Phase; phase == Starting || phase == Loading {
			_ = o.decide(nil, false) // the work may have ended
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
	memory, unnamed, over, work, why := o.memory, o.unnamed, o.over, o.work, o.workError
	o.mu.Unlock()
	bytes := o.logBytes()
	change := func(r *Record) {
		r.Phase = next
		switch {
		case phase == Starting && next == Running && r.Boot != nil:
			r.Boot = &Boot{LogBytes: bytes} // without what QEMU itself has printed at its start
		case phase == Loading && next == Running:
			r.Memory, r.Owed.Clock = nil, true
		case phase == Loading && next == Ended:
			r.Memory, r.Ended = nil, &End{Cause: CauseMemoryLost, Message: why.Error(), At: time.Now()}
		case phase == Saving && next == Asleep:
			r.Memory, r.Boot = memory, nil
		case next == Ended && over.Cause != "":
			r.Ended = &over
		case next == Ended && work == NoWork && r.Owed.Name && unnamed != "":
			r.Owed.Name, r.Ended = false, &End{Cause: CauseMemoryLost, Message: unnamed, At: time.Now()}
		}
	}
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
	case next == Ended && over.Cause != "":
		Step("guest ended")
	}
	o.mu.Lock()
	if next != phase && next != Saving && next != Copying {
		o.work = NoWork
	}
	if next == Running {
		o.full = nil
		o.started = time.Now()
		if o.record.Owed.Name {
			time.AfterFunc(ForkTimeout, o.lookSoon)
		}
	}
	if next == Saving || next == Copying {
		o.work, o.wanted.Work = Pending, ""
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

// refresh asks QEMU for what events report, in case some were missed, unless it is at work: it may not answer for long then.
func (o *Owner) refresh(conn *qmp.Client) error {
	o.mu.Lock()
	works := o.work == Pending && o.status != Silent
	o.mu.Unlock()
	if works {
		return nil
	}
	ctx, cancel := context.WithTimeout(o.ctx, monitorTimeout)
	defer cancel()
	var status struct{ Status string }
	if err := conn.Run(ctx, "query-status", nil, &status); err != nil {
		return err
	}
	var devices []struct {
		Label string
		Open  bool `json:"frontend-open"`
	}
	if err := conn.Run(ctx, "query-chardev", nil, &devices); err != nil {
		return err
	}
	for _, device := range devices {
		if device.Label == qemu.AgentChardev {
			o.setAgentOpen(device.Open)
		}
	}
	o.mu.Lock()
	before := o.status
	o.answers = true
	o.status = statusOf(status.Status)
	if cause := causes[status.Status]; cause != "" && o.over.Cause == "" {
		o.over = End{Cause: cause, At: time.Now()}
	}
	if o.over.Cause != "" {
		o.status = Over // whatever QEMU makes of it
	}
	changed := o.status != before
	o.mu.Unlock()
	if changed {
		o.tell(false)
	}
	return nil
}

// causes are why a guest has ended, by the state of QEMU and by the reason in its event.
var causes = map[string]Cause{
	"shutdown": CauseGuestShutdown, "guest-panicked": CauseGuestPanic, "internal-error": CauseError,
	"guest-shutdown": CauseGuestShutdown, "guest-panic": CauseGuestPanic,
}

// statusOf returns the status of a guest that has not ended, by the state of QEMU.
func statusOf(state string) Status {
	switch state {
	case "running":
		return Runs
	case "prelaunch":
		return Waiting
	case "inmigrate":
		return Incoming
	case "io-error": // QEMU reports other errors of a disk to the guest
		return NoSpace
	}
	return Stands
}

// connectionError returns err if it means that the connection is unusable, else nil.
func connectionError(err error) error {
	var refused *qmp.Error
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// handle handles an event, and reports whether to look at QEMU.
func (o *Owner) handle(event qmp.Event) bool {
	var data struct {
		Reason, Action string
		Node           string `json:"node-name"`
		Open           bool
	}
	_ = json.Unmarshal(event.Data, &data) // other events have other data
	switch event.Name {
	case "STOP", "RESUME":
		return true
	case "BLOCK_IO_ERROR":
		o.mu.Lock()
		defer o.mu.Unlock()
		if data.Action == "stop" && !slices.Contains(o.full, data.Node) { // QEMU halts the guest next
			o.full = append(o.full, data.Node)
		}
		return true
	case "GUEST_PANICKED":
		data.Reason = "guest-panic"
		fallthrough
	case "SHUTDOWN":
		cause := causes[data.Reason]
		if cause == "" {
			return false // the end of the process is observed separately
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.over.Cause == "" {
			o.over = End{Cause: cause, At: time.Now()}
		}
		return true
	case "RESET":
		o.guestReset()
	case "DEVICE_DELETED":
		o.m.Released()
	case "VSERPORT_CHANGE":
		o.setAgentOpen(data.Open)
	}
	return false
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
