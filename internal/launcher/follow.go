package launcher

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// follow follows QEMU until the guest has ended, and makes QEMU quit then. Otherwise cause is empty, and err is why the connection to
// QEMU ended. running ends with QEMU.
func (l *launcher) follow(ctx, running context.Context) (cause Cause, err error) {
	conn, err := l.dialMonitor(ctx, running)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if l.memory == nil {
		err = call(conn, "cont")
	} else if err = l.load(conn); err != nil {
		_ = call(conn, "quit") // it may have ended
	}
	if err != nil {
		return "", err
	}
	l.access.setMonitor(conn)
	defer l.access.setMonitor(nil)
	if l.definition.NoAgent {
		l.ready.set(true)
	}
	l.beginBoot()
	return l.followEvents(ctx, conn)
}

// followEvents follows a QEMU that runs the guest.
func (l *launcher) followEvents(ctx context.Context, conn *qmp.Client) (cause Cause, err error) {
	stopping := ctx.Done()
	button := time.NewTicker(powerInterval)
	button.Stop()
	defer button.Stop()
	check := time.NewTicker(checkInterval)
	defer check.Stop()
	for {
		select {
		case event, open := <-conn.Events():
			if open {
				cause = l.handle(conn, event)
			}
			if open && cause == "" {
				continue
			}
			return l.guestEnded(conn, cause)
		case <-check.C:
			l.check(conn, true)
			l.watchBoot(conn, checkInterval)
			continue
		case got := <-l.checks.results:
			l.endCheck(conn, got)
			continue
		case done := <-l.sleeper.requests:
			l.sleeper.waiting = append(l.sleeper.waiting, done)
			l.sleeper.begin(func() error { return l.saveMemory(conn) })
			continue
		case err := <-l.sleeper.results:
			if l.sleeper.end(err) == nil {
				return CauseAsleep, call(conn, "quit")
			}
			if stopping == nil {
				_, _ = fmt.Fprintf(l.messages, "The machine is powered off, because it cannot sleep: %v\n", err) // a message only
				button.Reset(powerInterval)
			}
			continue
		case l.lost = <-l.boots:
			if !l.unnamed.Load() || l.halted || l.sleeper.running { // it has answered, or could not
				l.limitFork()
				continue
			}
			return CauseMemoryLost, call(conn, "quit")
		case <-stopping:
			stopping = nil
			if l.definition.SleepWhenEvicted && !l.powersOff.Load() && !l.checks.hung {
				l.sleeper.begin(func() error { return l.saveMemory(conn) })
				continue
			}
			l.check(conn, true)
			button.Reset(powerInterval)
		case <-button.C:
		}
		if l.sleeper.running {
			continue // until it has ended
		}
		if cause, err := l.pressButton(conn); cause != "" || err != nil {
			return cause, err
		}
	}
}

// guestEnded makes QEMU quit when the guest has ended. Without a cause, the connection has ended.
func (l *launcher) guestEnded(conn *qmp.Client, cause Cause) (Cause, error) {
	switch {
	case l.sleeper.running && l.sleeper.end(<-l.sleeper.results) == nil:
		return CauseAsleep, call(conn, "quit")
	case cause == "":
		return "", qmp.ErrClosed
	}
	return cause, call(conn, "quit")
}

// pressButton presses the power button. It returns the cause if that ends the machine at once.
func (l *launcher) pressButton(conn *qmp.Client) (cause Cause, err error) {
	if l.halting.Load() {
		l.takes.interrupt(errPowersOff)
		step("copy interrupted")
		return "", nil // when it has gone on
	}
	if l.halted && !l.isFull() { // the guest would not notice the button
		return CauseHost, call(conn, "quit")
	}
	return "", call(conn, "system_powerdown")
}

// handle handles an event. It returns the cause if the guest has ended.
func (l *launcher) handle(conn *qmp.Client, event qmp.Event) Cause {
	var data struct {
		Reason, Action string
		Node           string `json:"node-name"`
		Open           bool
	}
	_ = json.Unmarshal(event.Data, &data) // other events have other data
	switch event.Name {
	case "GUEST_PANICKED":
		return CauseGuestPanic
	case "SHUTDOWN":
		switch data.Reason {
		case "guest-panic":
			return CauseGuestPanic
		case "guest-shutdown":
			return CauseGuestShutdown
		}
		// Other reasons end the process, which is observed separately.
	case "BLOCK_IO_ERROR":
		if data.Action == "stop" { // QEMU halts the guest next
			l.checks.addFull(l.definition.AllDisks(), data.Node)
		}
	case "STOP", "RESUME":
		if l.halted = event.Name == "STOP"; l.halted {
			l.check(conn, false)
		}
	case "RESET":
		l.guestReset()
	case "VSERPORT_CHANGE":
		if data.Open && !l.definition.NoAgent {
			l.agentOpened()
		} else {
			l.agentClosed()
		}
	}
	return ""
}
