package owner

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// boot is what an owner sees of a boot.
type boot struct {
	// ran is how long the guest has run since it was powered on or reset, and clock measures that.
	ran   time.Duration
	clock guestboot.Clock
	// unseen means that the owner has not seen all of it.
	unseen bool
}

// logBytes returns the size of the serial log.
func (o *Owner) logBytes() int64 {
	if o.m.LogBytes == nil {
		return 0
	}
	return o.m.LogBytes()
}

// guestReset notes that the guest boots again. A firmware that resets the machine has not said anything by that.
func (o *Owner) guestReset() {
	bytes := o.logBytes()
	o.note(func(r *Record) {
		if r.Boot == nil {
			o.boot.ran, r.Boot = 0, &Boot{LogBytes: bytes}
		}
	})
	o.mu.Lock()
	o.guest.known = false
	changed := o.guest.state == AgentConnected || o.guest.state == AgentLost
	if changed {
		o.guest.state = AgentWaiting
	}
	o.mu.Unlock()
	if changed {
		o.tell(true)
	}
}

// hasBooted notes how long the guest has needed to boot. Only a guest that writes on its console can be told from one that hangs at the
// next boot: others may have much to do before their agent starts.
func (o *Owner) hasBooted() {
	bytes := o.logBytes()
	o.note(func(r *Record) {
		switch {
		case r.Boot == nil:
			return
		case o.boot.unseen:
		case bytes == r.Boot.LogBytes:
			r.BootTime = 0
		default:
			r.BootTime = max(r.BootTime, o.boot.ran, bootInterval)
		}
		r.Boot = nil
	})
}

// watchBoot looks after a guest that boots, once in an interval, and resets it if it probably hangs. It reports whether to look again.
func (o *Owner) watchBoot(conn *qmp.Client, interval time.Duration) (again bool, err error) {
	bytes := o.logBytes()
	o.mu.Lock()
	was := o.record.Boot
	if was == nil || was.GaveUp {
		o.mu.Unlock()
		return false, nil
	}
	if o.record.Phase != Running || o.status != Runs {
		o.mu.Unlock()
		return true, nil
	}
	o.boot.ran += o.boot.clock.Tick(interval)
	seen := guestboot.Boot{Usual: cmp.Or(o.record.BootTime, o.m.UsualBoot), Ran: o.boot.ran, Resets: was.Resets}
	// A guest that waits to become a machine has its agent connected all along.
	seen.Spoke = !o.record.Owed.Start && (bytes != was.LogBytes || o.guest.leave != nil || o.guest.known || o.guest.state == AgentLost)
	waits := o.guest.state == AgentWaiting
	o.mu.Unlock()
	switch guestboot.Decide(seen) {
	case guestboot.Leave:
		// The boot of a guest with an agent ends when that answers.
		if again = waits || !seen.Spoke; !again {
			o.hasBooted()
		}
		return again, nil
	case guestboot.GiveUp:
		o.note(func(r *Record) {
			r.BootTime = 0 // if it is not the default guest, nobody knows whether it will ever speak
			r.Boot = &Boot{LogBytes: bytes, Silence: Silence{Resets: was.Resets, After: seen.Limit(), GaveUp: true}}
		})
		return false, nil
	case guestboot.Reset:
	default:
		return true, nil
	}
	o.note(func(r *Record) {
		o.boot.ran, r.Owed.Start = 0, false // a guest that was to become a machine boots as one
		r.Boot = &Boot{LogBytes: bytes, Silence: Silence{Resets: was.Resets + 1, After: seen.Limit()}}
	})
	o.m.Log(fmt.Sprintf("The guest said nothing for %v, and is reset, %d of %d times", seen.Limit(), was.Resets+1, guestboot.MaxResets))
	Step("silent guest recorded")
	ctx, cancel := context.WithTimeout(o.ctx, monitorTimeout)
	defer cancel()
	return true, connectionError(conn.Run(ctx, "system_reset", nil, nil))
}
