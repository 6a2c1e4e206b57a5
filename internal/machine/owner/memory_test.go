package owner

import (
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// A copy that waits for its turn does not delay a machine that is to sleep.
func TestNoCopyBeginsBeforeASleep(t *testing.T) {
	o := booting(t)
	o.countSleeps(1)
	if _, err := o.CopyDisks(t.Context(), Copy{}); !errors.Is(err, errFallsAsleep) {
		t.Errorf("the copy says %v", err)
	}
	o.countSleeps(-1)
	if _, err := o.CopyDisks(t.Context(), Copy{}); !errors.Is(err, ErrNotOn) { // it has no monitor
		t.Errorf("the next copy says %v", err)
	}
}

// Work that cannot begin, because QEMU has ended, ends its phase.
func TestWorkWithoutQEMU(t *testing.T) {
	for _, phase := range []Phase{Saving, Copying} {
		o := booting(t)
		gone := make(chan struct{})
		close(gone)
		o.m.Gone = gone
		go func() {
			for range 2 { // to enter the phase, and to leave it
				<-o.look
				_ = o.decide(nil, false)
			}
		}()
		if _, err := o.enterWork(t.Context(), phase); !errors.Is(err, qmp.ErrClosed) || o.Record().Phase != Running {
			t.Errorf("%s says %v, and is followed by %s", phase, err, o.Record().Phase)
		}
	}
}
