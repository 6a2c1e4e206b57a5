package owner

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

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
