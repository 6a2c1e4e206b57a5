package network

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func dialHost(t *testing.T, network string, address netip.AddrPort) net.Conn {
	t.Helper()
	conn, err := net.Dial(network, address.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestForwards(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	a.echoes(80)
	a.echoesUDP(81)
	b.echoes(80)
	web, other, packets := harness.FreeAddress(t), harness.FreeAddress(t), harness.FreeAddress(t)
	forward := Forward{Name: "web", Protocol: TCP, Host: web, GuestPort: 80}
	w.apply(func(c *Config) {
		c.Machines[0].Ports = []Forward{forward, {Name: "udp", Protocol: UDP, Host: packets, GuestPort: 81}}
	})
	conn := dialHost(t, "tcp", web)
	talk(t, conn, "a")
	talkUDP(t, dialHost(t, "udp", packets), "a", "hello")
	talkUDP(t, dialHost(t, "udp", packets), "a", strings.Repeat("x", 20000))
	states := w.machine(a).Forwards
	if len(states) != 2 || !states[0].Listening || states[0].Connections != 1 || !states[1].Listening || states[1].Connections != 2 {
		t.Errorf("forwards %+v", states)
	}

	// Another one comes and goes while the connection is used.
	w.apply(func(c *Config) {
		c.Machines[0].Ports = []Forward{forward, {Name: "other", Protocol: TCP, Host: other, GuestPort: 80}}
	})
	talkOn(t, conn)
	talk(t, dialHost(t, "tcp", other), "a")
	w.apply(func(c *Config) { c.Machines[0].Ports = []Forward{forward} })
	talkOn(t, conn)
	if second, err := net.Dial("tcp", other.String()); err == nil {
		_ = second.Close()
		t.Error("a forward that is gone still listens")
	}

	// It moves to the other machine, and its connections end.
	w.apply(func(c *Config) { c.Machines[0].Ports, c.Machines[1].Ports = nil, []Forward{forward} })
	if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
		t.Error("the connection of a forward that is gone is still there")
	}
	talk(t, dialHost(t, "tcp", web), "b")

	// No machine reaches it.
	a.send(syn(a, 3000, web))
	a.next("refusal", func(b []byte) bool { return isRefusal(b, web) })
}

// A port of the host that moves between machines is never without a listener after that: the old one has released it.
func TestAForwardMoves(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	forwards := []Forward{{Name: "web", Protocol: TCP, Host: harness.FreeAddress(t), GuestPort: 80}}
	for i := range 100 {
		w.apply(func(c *Config) {
			c.Machines[i%2].Ports, c.Machines[1-i%2].Ports = forwards, nil
		})
		if state := w.machine([]*guest{a, b}[i%2]).Forwards[0]; !state.Listening {
			t.Fatalf("after %d moves: %+v", i, state)
		}
	}
}

func TestAForwardThatIsTaken(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	a.echoes(80)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().(*net.TCPAddr).AddrPort()
	w.apply(func(c *Config) {
		c.Machines[0].Ports = []Forward{{Name: "web", Protocol: TCP, Host: address, GuestPort: 80}}
	})
	if state := w.machine(a).Forwards[0]; state.Listening || !strings.Contains(state.Error, "address already in use") {
		t.Errorf("forward %+v", state)
	}
	_ = taken.Close()
	w.eventually("the forward listens", func() bool { return w.machine(a).Forwards[0].Listening })
	talk(t, dialHost(t, "tcp", address), "a")
	if state := w.machine(a).Forwards[0]; state.Error != "" {
		t.Errorf("forward %+v", state)
	}
	w.stop()
	if _, err := w.client.Status(context.Background()); err == nil {
		t.Error("the switch still answers")
	}
}
