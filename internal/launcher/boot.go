package launcher

import (
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// usualBoot is how long the default guest usually needs to boot, also if the Pod has little of a processor.
const usualBoot = 30 * time.Second

// beginBoot begins to look after a guest that boots. Only the default guest is known to open the channel of its agent early; what other
// guests have to do first may take long.
func (l *launcher) beginBoot() {
	if l.memory == nil && !l.definition.OwnSystem() {
		l.boot.Usual = usualBoot
	}
}

// watchBoot looks after a guest that boots, once in an interval, and resets it if it probably hangs.
func (l *launcher) watchBoot(conn *qmp.Client, interval time.Duration) {
	if l.halted || l.sleeper.running || l.halting.Load() {
		return
	}
	l.boot.Ran += l.clock.Tick(interval)
	l.boot.Spoke = l.boot.Spoke || l.stopAgent != nil
	silence := &Silence{Resets: l.boot.Resets, After: l.boot.Limit()}
	switch guestboot.Decide(l.boot) {
	case guestboot.Wait:
	case guestboot.Leave:
		l.ready.setSilence(nil)
	case guestboot.GiveUp:
		silence.GaveUp = true
		l.ready.setSilence(silence)
	case guestboot.Reset:
		l.boot.Resets++
		silence.Resets = l.boot.Resets
		l.ready.setSilence(silence)
		_, _ = fmt.Fprintf(l.messages, "The guest said nothing for %s, and is reset, %d of %d times\n", silence.After, silence.Resets, guestboot.MaxResets) // a message only
		_ = call(conn, "system_reset")                                                                                                                      // it is tried again later
	}
}

// guestReset notes that the guest boots again. One that had spoken before has not been silent.
func (l *launcher) guestReset() {
	if l.boot.Spoke {
		l.boot.Resets = 0
	}
	l.boot.Ran, l.boot.Spoke = 0, false
	l.ready.set(l.definition.NoAgent)
}
