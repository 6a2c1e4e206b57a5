package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestIsQuiet(t *testing.T) {
	began := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	used := func(received, transmitted uint64, inbound int, total uint64) *networkUse {
		return &networkUse{backend.NetworkTraffic{ReceivedBytes: received, TransmittedBytes: transmitted}, inbound, total}
	}
	before := look{began, 100, used(1000, 1000, 0, 7)}
	after := func(seconds float64, network *networkUse) look {
		return look{began.Add(sampleInterval), seconds, network}
	}
	for _, test := range []struct {
		name        string
		before, now look
		want        bool
	}{
		{"nothing at all", before, after(100, before.network), true},
		{"its timers tick", before, after(100+quietCPU*sampleInterval.Seconds(), before.network), true},
		{"it computes", before, after(101, before.network), false},
		{"it renews its address, and is probed", before, after(100, used(4000, 4000, 0, 7)), true},
		{"it receives a file", before, after(100, used(100_000, 1000, 0, 7)), false},
		{"it sends a file", before, after(100, used(1000, 100_000, 0, 7)), false},
		{"a connection to it is open", before, after(100, used(1000, 1000, 1, 7)), false},
		{"there was a connection to it", before, after(100, used(1000, 1000, 0, 8)), false},
		{"its network was restarted", before, after(100, used(0, 0, 0, 0)), false},
		{"its network does not answer", before, after(100, nil), false},
		{"the first look", look{}, after(100, before.network), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := isQuiet(test.before, test.now); got != test.want {
				t.Errorf("isQuiet is %v", got)
			}
		})
	}
}

// echo is the answer of a command at an address, and the time from the connection to its first byte.
func echo(address string) (answer string, took time.Duration, err error) {
	began := time.Now()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "echo $((40+2)); exit\n"); err != nil {
		return "", 0, err
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(conn, first); err != nil {
		return "", 0, err
	}
	took = time.Since(began)
	rest, err := io.ReadAll(conn)
	return strings.TrimSpace(string(first) + string(rest)), took, err
}

// fallsAsleep puts a machine to sleep because it is idle, as soon as nobody is connected to it.
func (g *testGuest) fallsAsleep() {
	g.Helper()
	options := backend.SleepOptions{Idle: true, WakeOnConnection: true}
	m := g.driver.machines[g.machine.UID]
	harness.Eventually(g, "nobody is connected to "+g.machine.Name, func() bool {
		network := g.driver.measureNetworks([]*machine{m})[m.id.UID]
		m.mu.Lock()
		m.noteUse(look{time.Now(), 0, network})
		m.mu.Unlock()
		err := g.driver.Sleep(g.Context(), g.machine.Identity, options)
		if !errors.Is(err, backend.ErrActive) {
			g.do(err)
		}
		return !errors.Is(err, backend.ErrActive)
	})
	harness.Eventually(g, g.machine.Name+" is asleep", func() bool {
		s := g.server()
		return is(backend.StateAsleep)(&s) && s.Asleep.SleepOptions == options
	})
}

// wakeWhenWanted starts a machine that is wanted, as the controller does, until stop is called.
func (g *testGuest) wakeWhenWanted() (stop func()) {
	ctx, cancel := context.WithCancel(g.Context())
	done := make(chan struct{})
	driver := g.driver
	go func() {
		defer close(done)
		ticker := time.NewTicker(2 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			s, _ := driver.Observe(ctx, g.machine.Identity) // the zero value is no state
			if s.Task == backend.TaskNone && s.Asleep != nil && s.Asleep.Wanted {
				_ = driver.Start(ctx, g.machine) // it is tried again
			}
		}
	}()
	return func() { cancel(); <-done }
}

// A machine that is asleep because it was idle wakes when someone connects to it, and answers. It makes no difference that its manager
// was restarted meanwhile.
func TestLongConnectionsWakeAnIdleMachine(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	guests := w.boot(named("default", "one", func(m *backend.Machine) {
		m.Ports = []v1alpha1.Port{{Name: "shell", Port: shellPort, Protocol: v1alpha1.ProtocolTCP}}
	}), named("default", "two"))
	one, two := guests[0], guests[1]
	before := one.server()
	at := before.Endpoints[0].Address
	toPort := func() error {
		answer, took, err := echo(at)
		t.Logf("the first byte came after %v", took)
		if err == nil && answer != "42" {
			err = fmt.Errorf("it answers %q", answer)
		}
		return err
	}
	for _, test := range []struct {
		name    string
		connect func() error
	}{
		{"a port of the host", toPort},
		{"a port of the host, again", toPort},
		{"another machine, by name", func() error {
			began := time.Now()
			out, err := two.execWithin(harness.WaitTimeout, "wget -q -O - http://one/")
			t.Logf("the answer came after %v", time.Since(began))
			if err == nil && out != "one" {
				err = fmt.Errorf("it answers %q", out)
			}
			return err
		}},
		{"a session", func() error {
			release, err := w.driver.Attend(t.Context(), one.machine.Identity)
			if err != nil {
				return err
			}
			defer release()
			if s := one.server(); !s.IsOn() {
				return fmt.Errorf("it is %s", s.State)
			}
			return nil
		}},
	} {
		one.fallsAsleep()
		w.open()
		if asleep := one.server(); asleep.Asleep.Wanted || asleep.Endpoints[0].Address != at {
			t.Fatalf("before %s: wanted is %v, its ports are at %v", test.name, asleep.Asleep.Wanted, asleep.Endpoints)
		}
		stop := one.wakeWhenWanted()
		if err := test.connect(); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		stop()
		if awake := one.server(); awake.Run == before.Run || awake.Endpoints[0].Address != at {
			t.Errorf("after %s it is %+v", test.name, awake)
		}
	}
	for _, g := range guests {
		g.remove()
	}
	w.expectClean()
}
