package system

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Of linux/input-event-codes.h.
const (
	eventKey = 1
	keyPower = 116
)

// inputEvent is the size of struct input_event on 64-bit systems: two 8-byte times,
// type, code, value.
const inputEvent = 24

// WatchPowerButton calls pressed whenever the power button of an input device, file,
// is pressed, until ctx ends or the device goes away.
func WatchPowerButton(ctx context.Context, file string, pressed func()) error {
	device, err := os.OpenFile(file, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("opening an input device: %w", err)
	}
	defer device.Close()
	stop := context.AfterFunc(ctx, func() { device.Close() })
	defer stop()
	events := make([]byte, 64*inputEvent)
	for {
		n, err := device.Read(events)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		if powerPressed(events[:n]) {
			pressed()
		}
	}
}

// powerPressed looks for the power key going down.
func powerPressed(events []byte) bool {
	for ; len(events) >= inputEvent; events = events[inputEvent:] {
		kind := binary.NativeEndian.Uint16(events[16:])
		code := binary.NativeEndian.Uint16(events[18:])
		value := binary.NativeEndian.Uint32(events[20:])
		if kind == eventKey && code == keyPower && value == 1 {
			return true
		}
	}
	return false
}
