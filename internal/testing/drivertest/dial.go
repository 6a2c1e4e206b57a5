package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// dialedPort is a port at which no machine of a test listens.
const dialedPort = 9

// dials tests drivers that implement backend.Dialer, with a server in a state.
func (f *fixture) dials(machine backend.Machine, state backend.State) {
	f.Helper()
	dialer, ok := f.driver.(backend.Dialer)
	if !ok {
		return
	}
	dial := func(ctx context.Context) error {
		conn, err := dialer.Dial(ctx, machine.Identity, dialedPort)
		if err == nil {
			f.Logf("connected to %s", conn.RemoteAddr())
			_ = conn.Close()
		}
		return err
	}
	if state == backend.StateRunning {
		if f.backend.Apart {
			return
		}
		ctx, cancel := context.WithTimeout(f.Context(), time.Second)
		defer cancel()
		if err := f.call("Dial", func(context.Context) error { return dial(ctx) }); err == nil || errors.Is(err, backend.ErrInvalid) != f.cannotDial {
			f.Errorf("Dial of a port without a listener: %v", err)
		}
		return
	}
	err := f.call("Dial", dial)
	if state == backend.StateAbsent {
		if !errors.Is(err, backend.ErrNotFound) {
			f.Errorf("Dial of nothing: %v", err)
		}
		return
	}
	// A driver that cannot do it says so.
	f.cannotDial = errors.Is(err, backend.ErrInvalid)
	if !f.cannotDial && !errors.Is(err, backend.ErrUnavailable) {
		f.Errorf("Dial of a server that is off: %v", err)
	}
}
