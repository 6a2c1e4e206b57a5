package drivertest

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// consoleCalls are the calls of drivers that implement backend.Consoler.
func (f *fixture) consoleCalls(machine backend.Machine) (connect, readLog func(context.Context) error) {
	consoler := f.driver.(backend.Consoler)
	connect = func(ctx context.Context) error {
		conn, err := consoler.Console(ctx, machine.Identity)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	readLog = func(ctx context.Context) error {
		log, err := consoler.ConsoleLog(ctx, machine.Identity, backend.LogOptions{Tail: 10})
		if err == nil {
			_, err = io.Copy(io.Discard, log)
			err = errors.Join(err, log.Close())
		}
		return err
	}
	return connect, readLog
}

// consoleOff tests the console of a server that does not exist, or never ran.
func (f *fixture) consoleOff(machine backend.Machine, exists bool) {
	f.Helper()
	if _, ok := f.driver.(backend.Consoler); !ok {
		return
	}
	connect, readLog := f.consoleCalls(machine)
	if exists {
		if err := f.call("Console", connect); !errors.Is(err, backend.ErrUnavailable) {
			f.Errorf("Console of a server that is off: %v", err)
		}
		f.must("ConsoleLog of a server that never ran", readLog)
		return
	}
	for what, call := range map[string]func(context.Context) error{"Console": connect, "ConsoleLog": readLog} {
		if err := f.call(what, call); !errors.Is(err, backend.ErrNotFound) {
			f.Errorf("%s of nothing: %v", what, err)
		}
	}
}

// consoleUntilOff tests the console of a server that is on, and stops it.
func (f *fixture) consoleUntilOff(machine backend.Machine) {
	f.Helper()
	consoler, ok := f.driver.(backend.Consoler)
	if !ok {
		f.stop(machine, 0)
		return
	}
	conn, err := consoler.Console(f.Context(), machine.Identity)
	if err != nil {
		f.Fatalf("Console: %v", err)
	}
	if _, err := conn.Write([]byte("\r")); err != nil {
		f.Errorf("write to the console: %v", err)
	}
	f.ends("the connection to a console, with the run", conn, func() { f.stop(machine, 0) })
	_, readLog := f.consoleCalls(machine)
	f.must("ConsoleLog of a server that is off", readLog)
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	log, err := consoler.ConsoleLog(ctx, machine.Identity, backend.LogOptions{Follow: true})
	if err != nil {
		f.Fatalf("follow the log: %v", err)
	}
	f.ends("a log that is followed, with its context", log, cancel)
}

// ends checks that a stream ends because of cause, and closes it.
func (f *fixture) ends(what string, stream io.ReadCloser, cause func()) {
	f.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, stream) // any error is an end
	}()
	cause()
	select {
	case <-ended:
	case <-time.After(callLimit):
		f.Errorf("%s does not end", what)
	}
	_ = stream.Close() // it has ended
}
