package drivertest

import (
	"bytes"
	"context"
	"errors"
	"image/png"
	"io"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// rfbGreeting is the first message of a VNC server, see RFC 6143, section 7.1.1.
const rfbGreeting = "RFB 003.008\n"

// screenIs checks what the calls of drivers that implement backend.Screener return for a server that has no display now.
func (f *fixture) screenIs(machine backend.Machine, state string, want error) {
	f.Helper()
	screener, ok := f.driver.(backend.Screener)
	if !ok {
		return
	}
	for what, call := range map[string]func(context.Context) error{
		"Screen": func(ctx context.Context) error {
			conn, err := screener.Screen(ctx, machine.Identity)
			if err == nil {
				err = conn.Close()
			}
			return err
		},
		"Screenshot": func(ctx context.Context) error {
			_, err := screener.Screenshot(ctx, machine.Identity)
			return err
		},
	} {
		if err := f.call(what, call); !errors.Is(err, want) {
			f.Errorf("%s of %s: %v", what, state, err)
		}
	}
}

// testReached tests the ways to a server, with one that gets a display for its second run.
func testReached(f *fixture) {
	machine := f.newMachine()
	f.dials(machine, backend.StateAbsent)
	f.consoleOff(machine, false)
	f.screenIs(machine, "nothing", backend.ErrNotFound)
	f.create(machine)
	f.dials(machine, backend.StateStopped)
	f.consoleOff(machine, true)
	f.screenIs(machine, "a server that is off", backend.ErrUnavailable)
	f.start(machine)
	f.dials(machine, backend.StateRunning)
	f.screenIs(machine, "a server without a display", backend.ErrInvalid)
	screener, ok := f.driver.(backend.Screener)
	if !ok {
		f.consoleUntilOff(machine)
		f.remove(machine)
		return
	}
	machine.Display, machine.Hash = v1alpha1.DisplayVGA, machine.Hash+"-vga"
	f.must("Reconfigure", func(ctx context.Context) error { return f.driver.Reconfigure(ctx, machine) })
	if pending := f.observe(machine).Pending; len(pending) != 1 || pending[0] != "display" {
		f.Errorf("changes that wait for a restart: %v", pending)
	}
	f.screenIs(machine, "a server that was started without a display", backend.ErrInvalid)
	f.consoleUntilOff(machine)
	f.start(machine)
	shot, err := screener.Screenshot(f.Context(), machine.Identity)
	if err != nil {
		f.Fatalf("Screenshot: %v", err)
	}
	if image, err := png.Decode(bytes.NewReader(shot)); err != nil || image.Bounds().Empty() {
		f.Errorf("the screenshot: %v", err)
	}
	f.open() // a new manager
	f.until(machine, backend.StateRunning)
	testScreens(f, machine)
	f.remove(machine)
}

// testScreens tests two connections to the display of a server, and stops it.
func testScreens(f *fixture, machine backend.Machine) {
	screener := f.driver.(backend.Screener)
	var first, second io.ReadWriteCloser
	for _, into := range []*io.ReadWriteCloser{&first, &second} {
		conn, err := screener.Screen(f.Context(), machine.Identity)
		if err != nil {
			f.Fatalf("Screen: %v", err)
		}
		*into = conn
		greeting := make([]byte, len(rfbGreeting))
		if _, err := io.ReadFull(conn, greeting); err != nil || string(greeting) != rfbGreeting {
			f.Errorf("the VNC server greets with %q, %v", greeting, err)
		}
	}
	_ = first.Close() // the other one goes on
	if _, err := second.Write([]byte(rfbGreeting)); err != nil {
		f.Errorf("write to a screen: %v", err)
	}
	f.ends("the connection to a screen, with the run", second, func() { f.stop(machine, 0) })
}
