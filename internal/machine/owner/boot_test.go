package owner

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
)

// machine returns a machine whose default guest needs usually 30 s to boot, and which tells nobody anything.
func machine(t *testing.T) Machine {
	t.Helper()
	return Machine{
		Dir: t.TempDir(), UsualBoot: 30 * time.Second, Save: func(Record) error { return nil }, Changed: func(bool) {}, Answered: func() {},
		Log: func(string) {},
	}
}

// booting returns the owner of a guest that boots.
func booting(t *testing.T) *Owner {
	t.Helper()
	o := New(machine(t), Record{Phase: Running, Boot: &Boot{}}, false)
	o.status = Runs
	return o
}

// watchOnce looks after the guest once, which obeys a reset.
func (o *Owner) watchOnce(t *testing.T, conn *qmp.Client, interval time.Duration) {
	t.Helper()
	before := o.Record().Boot
	if _, err := o.watchBoot(conn, interval); err != nil {
		t.Error(err)
	}
	if after := o.Record().Boot; before != nil && after != nil && after.Resets > before.Resets {
		o.handle(qmp.Event{Name: "RESET", Data: json.RawMessage(`{}`)})
	}
}

// The default guest is reset at most three times while it does not open the channel of its agent, and others learn of each time.
func TestSilentGuest(t *testing.T) {
	const reset = "system_reset"
	first, last := &Silence{Resets: 1, After: 5 * time.Minute}, &Silence{Resets: 3, After: 40 * time.Minute, GaveUp: true}
	written := func() int64 { return 1 }
	for name, test := range map[string]struct {
		change func(*Owner)
		want   []string
		// tells is what others learn in the end; nil if nothing.
		tells *Silence
	}{
		"silent":                   {func(*Owner) {}, []string{reset, reset, reset}, last},
		"its agent has spoken":     {func(o *Owner) { o.guest.leave = func() {} }, nil, nil},
		"it has written":           {func(o *Owner) { o.m.LogBytes = written }, nil, nil},
		"it answered before":       {func(o *Owner) { o.guest.known = true }, nil, nil},
		"it waits to be a machine": {func(o *Owner) { o.guest.leave, o.record.Owed.Start = func() {}, true }, []string{reset, reset, reset}, last},
		"another image":            {func(o *Owner) { o.m.UsualBoot = 0 }, nil, nil},
		"it was reset before":      {func(o *Owner) { o.record.Boot = &Boot{Silence: Silence{Resets: 2}} }, []string{reset}, last},
		"goes on where it was":     {func(o *Owner) { o.record.Boot = nil }, nil, nil},
		"its processors stand":     {func(o *Owner) { o.status = Stands }, nil, nil},
		"its memory is saved":      {func(o *Owner) { o.record.Phase = Saving }, nil, nil},
		"it is halted for a copy":  {func(o *Owner) { o.record.Phase = Copying }, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn, commands := fakeqemu.Monitor(t)
			o := booting(t)
			test.change(o)
			for i := range 10 * guestboot.MaxResets {
				o.watchOnce(t, conn, time.Hour)
				if i == 0 && test.tells != nil && name == "silent" {
					expectSilence(t, o, first)
				}
				if name == "it waits to be a machine" {
					o.guest.leave = nil // it boots
				}
			}
			if diff := cmp.Diff(test.want, commands()); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			expectSilence(t, o, test.tells)
		})
	}
}

// expectSilence fails the test if others do not learn of this silence.
func expectSilence(t *testing.T, o *Owner, want *Silence) {
	t.Helper()
	if diff := cmp.Diff(want, o.State().Silence); diff != "" {
		t.Errorf("others learn (-want +got):\n%s", diff)
	}
}

// A guest that has answered is not silent any more, and its next boot has all its resets.
func TestGuestSpeaksAfterAReset(t *testing.T) {
	conn, _ := fakeqemu.Monitor(t)
	o := booting(t)
	for range 2 {
		o.watchOnce(t, conn, time.Hour)
	}
	expectSilence(t, o, &Silence{Resets: 2, After: 10 * time.Minute})
	o.answered(t.Context(), nil)
	expectSilence(t, o, nil)
	o.handle(qmp.Event{Name: "RESET", Data: json.RawMessage(`{}`)})
	o.watchOnce(t, conn, time.Hour)
	expectSilence(t, o, &Silence{Resets: 1, After: 5 * time.Minute})
}
