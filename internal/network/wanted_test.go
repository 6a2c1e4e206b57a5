package network

import (
	"context"
	"os"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// fallsAsleep ends the connection of the switch to a machine, as QEMU does when it ends, and says that the machine is asleep. wake makes
// QEMU listen again.
func (w *world) fallsAsleep(g *guest) (wake func()) {
	w.t.Helper()
	conn := g.wait()
	away := g.machine.Socket + ".away"
	if err := os.Rename(g.machine.Socket, away); err != nil {
		w.t.Fatal(err)
	}
	_ = conn.Close()
	w.eventually("it is off", func() bool { return !w.machine(g).Connected })
	w.setAsleep(g, true)
	return func() {
		if err := os.Rename(away, g.machine.Socket); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) setAsleep(g *guest, asleep bool) {
	w.t.Helper()
	w.apply(func(c *Config) {
		for i := range c.Machines {
			if c.Machines[i].UID == g.machine.UID {
				c.Machines[i].Asleep = asleep
			}
		}
	})
}

// A connection to a machine that is asleep is reported, waits, and is then answered.
func TestAConnectionWakes(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	a.echoes(80)
	web := harness.FreeAddress(t)
	w.apply(func(c *Config) {
		c.Machines[0].Ports = []Forward{{Name: "web", Protocol: TCP, Host: web, GuestPort: 80}}
	})
	for _, test := range []struct {
		name    string
		connect func() func()
	}{
		{"to a port of the host", func() func() {
			conn := dialHost(t, "tcp", web)
			return func() {
				talk(t, conn, "a")
				_ = conn.Close()
				w.eventually("the connection has ended", func() bool { return w.machine(a).Inbound == 0 })
			}
		}},
		{"from another machine", func() func() {
			done := make(chan struct{})
			go func() {
				defer close(done)
				conn, err := b.dial("10.77.1.2:80")
				if err != nil {
					t.Error(err)
					return
				}
				talk(t, conn, "a")
			}()
			return func() { <-done }
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wake := w.fallsAsleep(a)
			before := w.wanted(0)
			if len(before.UIDs) > 0 {
				t.Fatalf("before anyone has connected, %v are wanted", before.UIDs)
			}
			answered := test.connect()
			if got := w.wanted(before.Number); len(got.UIDs) != 1 || got.UIDs[0] != a.machine.UID {
				t.Fatalf("%v are wanted, want %s", got.UIDs, a.machine.UID)
			}
			// Another manager asks again.
			if got := w.wanted(0); len(got.UIDs) != 1 {
				t.Errorf("%v are wanted the second time", got.UIDs)
			}
			w.setAsleep(a, false)
			wake()
			answered()
			if got := w.wanted(0); len(got.UIDs) > 0 {
				t.Errorf("%v are wanted although they are awake", got.UIDs)
			}
		})
	}
	if got := w.machine(a); got.InboundTotal != 1 {
		t.Errorf("%d connections were made to it, want 1", got.InboundTotal)
	}
}

func (w *world) wanted(after uint64) Wanted {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	got, err := w.client.Wanted(ctx, after)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}
