package drivertest

import (
	"context"
	"errors"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// dialedPort is a port at which no machine of a test listens.
const dialedPort = 9

// testDial tests drivers that implement backend.Dialer.
func testDial(f *fixture) {
	dialer, ok := f.driver.(backend.Dialer)
	if !ok {
		return
	}
	machine := f.newMachine()
	dial := func(ctx context.Context) error {
		conn, err := dialer.Dial(ctx, machine.Identity, dialedPort)
		if err == nil {
			f.Logf("connected to %s", conn.RemoteAddr())
			_ = conn.Close()
		}
		return err
	}
	if err := f.call("Dial", dial); !errors.Is(err, backend.ErrNotFound) {
		f.Errorf("Dial of nothing: %v", err)
	}
	f.create(machine)
	// A driver that cannot do it says so.
	cannot := errors.Is(f.call("Dial", dial), backend.ErrInvalid)
	if err := f.call("Dial", dial); !cannot && !errors.Is(err, backend.ErrUnavailable) {
		f.Errorf("Dial of a server that is off: %v", err)
	}
	f.start(machine)
	if f.backend.Apart {
		f.remove(machine)
		return
	}
	err := f.call("Dial", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		return dial(ctx)
	})
	if err == nil || errors.Is(err, backend.ErrInvalid) != cannot {
		f.Errorf("Dial of a port without a listener: %v", err)
	}
	f.remove(machine)
}
