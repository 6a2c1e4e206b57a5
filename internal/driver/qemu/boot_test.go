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
			instant, record := m.def.MemoryShared, m.owner.Record()
			m.mu.Unlock()
			if record.Boot != nil || !instant && record.BootTime == 0 {
				t.Errorf("after the boot, it is %+v, and the time is %v", record.Boot, record.BootTime)
			}
			if instant != (w.options.InstantStart == InstantAlways) {
				t.Fatalf("it was started from a template: %t", instant)
			}
			before := strings.Count(w.serial(), "The guest agent answers")
			conn, err := m.monitor()
			w.do(err)
			w.do(conn.Run(t.Context(), "system_reset", nil, nil))
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
