package qemu

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/guestboot"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// silences makes the guest of the machine of the test one that has said nothing since it was powered on.
func (w *fixture) silences() *machine {
	m := w.driver.machines[uid]
	bytes := m.logBytes()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopAgent()
	m.agent, m.def.Booting = backend.AgentWaiting, &booting{LogBytes: bytes}
	return m
}

// looks looks after the guest of the machine of the test, as if it had run for long since the last time.
func (w *fixture) looks(m *machine) (again bool) {
	w.Helper()
	conn, err := m.monitor()
	w.do(err)
	m.mu.Lock()
	m.ran = time.Hour
	m.mu.Unlock()
	again, err = m.watchBoot(conn, 0)
	w.do(err)
	return again
}

// A guest that says nothing is reset three times, also by several managers. Then it is left alone, and not reset at its next start, unless it
// has spoken until then.
func TestSilentGuest(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	machine.Image.Agent = nil // it may have one
	w.run(machine)
	m := w.driver.machines[uid]
	if again := w.looks(m); !again || w.server().Silence != nil {
		t.Errorf("a guest that has never spoken: %+v, looked after: %t", w.server().Silence, again)
	}
	m.mu.Lock()
	m.def.BootTime = 4 * time.Second
	m.mu.Unlock()
	for i, after := range []time.Duration{40 * time.Second, 80 * time.Second, 160 * time.Second} {
		if again := w.looks(m); !again {
			t.Fatalf("it is left alone before reset %d", i+1)
		}
		if got, want := w.server().Silence, (backend.Silence{Resets: i + 1, After: after}); got == nil || *got != want {
			t.Errorf("the silence is %+v, want %+v", got, want)
		}
		w.open() // the next manager knows
		w.eventually("it answers", is(backend.StateRunning))
		m = w.driver.machines[uid]
	}
	if again := w.looks(m); again {
		t.Error("it is still looked after")
	}
	if got, want := w.server().Silence, (backend.Silence{Resets: guestboot.MaxResets, After: 320 * time.Second, GaveUp: true}); got == nil || *got != want {
		t.Errorf("the silence is %+v, want %+v", got, want)
	}
	w.do(w.driver.Stop(t.Context(), machine.Identity, 0))
	w.eventually("it is off", is(backend.StateStopped))
	w.do(w.driver.Start(t.Context(), machine))
	w.eventually("it runs", is(backend.StateRunning))
	w.looks(m)
	if silence := w.server().Silence; silence != nil {
		t.Errorf("after the next start, the silence is %+v", silence)
	}
	w.remove()
}

// A guest that was reset because it hung boots again, in the same run: it is the machine, also if it was to become it from a template.
func TestLongResetOfSilentGuest(t *testing.T) {
	needGuest(t)
	for _, from := range []string{"boot", "template"} {
		t.Run(from, func(t *testing.T) {
			if from == "boot" {
				boots(t)
			}
			w := newFixture(t)
			w.run(booted())
			run := w.eventually("the guest answers", answers).Run
			m := w.driver.machines[uid]
			m.mu.Lock()
			instant := m.def.MemoryShared
			if m.def.Booting != nil || !instant && m.def.BootTime == 0 {
				t.Errorf("after the boot, it is %+v, and the time is %v", m.def.Booting, m.def.BootTime)
			}
			m.mu.Unlock()
			if instant != (w.options.InstantStart == InstantAlways) {
				t.Fatalf("it was started from a template: %t", instant)
			}
			m = w.silences()
			m.mu.Lock()
			m.def.GuestWaits = instant
			m.mu.Unlock()
			before := strings.Count(w.serial(), "The guest agent answers")
			if !w.looks(m) {
				t.Error("it is left alone")
			}
			server := w.eventually("the guest answers", func(s *backend.Server) bool {
				return answers(s) && strings.Count(w.serial(), "The guest agent answers") == before+1
			})
			if server.Run != run || server.Silence != nil {
				t.Errorf("it is %+v, want the run %s", server, run)
			}
			w.shows("root@vm:")
			w.remove()
		})
	}
}

// A template that says nothing is reset, too, until its time is over.
func TestSilentTemplate(t *testing.T) {
	at := hookSteps(t)
	w := newFixture(t)
	machine := w.firmware()
	machine.Image.Agent = nil
	w.run(machine)
	m := w.driver.machines[uid]
	conn, err := m.monitor()
	w.do(err)
	ctx, cancel := context.WithTimeout(t.Context(), harness.WaitTimeout)
	defer cancel()
	resets := 0
	at.set("template reset", func() {
		if resets++; resets == guestboot.MaxResets {
			cancel()
		}
	})
	err = awaitTemplate(ctx, conn, m.dir, func(time.Duration) time.Duration { return time.Hour })
	if at.clear(); !errors.Is(err, context.Canceled) || resets != guestboot.MaxResets {
		t.Errorf("%d resets, %v", resets, err)
	}
	w.remove()
}
