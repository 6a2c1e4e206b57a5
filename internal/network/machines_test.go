package network

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMachinesReachEachOther(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	b.echoes(80)
	b.echoesUDP(81)
	conn, err := a.dial("10.77.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "b")
	talkUDP(t, a.dialUDP("10.77.1.3:81"), "b", "hello")

	status := w.machine(b)
	if !status.Connected || !status.Leased && status.LeasedAt != nil || status.PacketsIn == 0 || status.BytesOut == 0 {
		t.Errorf("status %+v", status)
	}
	refused(t, a, "10.77.1.1:80")  // nothing listens at the gateway
	refused(t, a, "10.77.2.2:80")  // another network
	refused(t, a, "10.77.1.3:443") // nothing listens at the machine
}

func TestUnchangedMachinesAreNotDisturbed(t *testing.T) {
	a, b, c := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3"), newGuest(t, "c", "10.77.1.4")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	b.echoes(80)
	between, err := a.dial("10.77.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, between, "b")
	dialed, err := w.client.Dial(context.Background(), b.machine.UID, TCP, 80)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, dialed, "b")

	w.apply(func(c0 *Config) { c0.Machines = append(c0.Machines, c.machine) })
	c.wait()
	late, err := c.dial("10.77.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, late, "b")
	talkOn(t, between)
	talkOn(t, dialed)

	w.apply(func(c0 *Config) { c0.Machines = c0.Machines[:2] })
	talkOn(t, between)
	talkOn(t, dialed)

	// A machine that is gone takes its connections with it.
	w.apply(func(c0 *Config) { c0.Machines = c0.Machines[:1] })
	if _, err := io.ReadFull(dialed, make([]byte, 1)); err == nil {
		t.Error("the connection to a machine that is gone is still there")
	}
	if _, err := w.client.Dial(context.Background(), b.machine.UID, TCP, 80); !errors.Is(err, ErrRefused) {
		t.Errorf("Dial of a machine that is gone: %v", err)
	}
}

func TestDial(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	w := newWorld(t, "one", "10.77.1.0/24", a)
	a.echoes(22)
	a.echoesUDP(53)
	conn, err := w.client.Dial(context.Background(), a.machine.UID, TCP, 22)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "a")
	w.eventually("the connection counts", func() bool { return w.machine(a).Connections == 1 })

	// The end of one direction is passed on, and the other one goes on.
	if err := conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(conn); err != nil || len(rest) != 0 {
		t.Errorf("after the end: %q, %v", rest, err)
	}
	w.eventually("the connection is gone", func() bool { return w.machine(a).Connections == 0 })

	packets, err := w.client.Dial(context.Background(), a.machine.UID, UDP, 53)
	if err != nil {
		t.Fatal(err)
	}
	talkUDP(t, packets, "a", "hello")
	if _, err := w.client.Dial(context.Background(), a.machine.UID, TCP, 23); !errors.Is(err, ErrRefused) {
		t.Errorf("a closed port: %v", err)
	}
	if _, err := w.client.Dial(context.Background(), "nobody", TCP, 23); !errors.Is(err, ErrRefused) {
		t.Errorf("an unknown machine: %v", err)
	}
	w.stop()
	if _, err := w.client.Dial(context.Background(), a.machine.UID, TCP, 22); !errors.Is(err, ErrUnavailable) {
		t.Errorf("no switch: %v", err)
	}
}

// A guest that boots drops the first packets. TCP would repeat them only after a second, from the same port.
func TestDialDuringBoot(t *testing.T) {
	a := newGuest(t, "a", "10.77.1.2")
	a.booting.Store(true)
	w := newWorld(t, "one", "10.77.1.0/24", a)
	a.echoes(22)
	type result struct {
		conn net.Conn
		err  error
	}
	dialed := make(chan result, 1)
	go func() {
		conn, err := w.client.Dial(context.Background(), a.machine.UID, TCP, 22)
		dialed <- result{conn, err}
	}()
	ports := map[uint16]bool{}
	for len(ports) < 2 {
		frame := a.next("connection attempt", func(b []byte) bool {
			return len(b) > 36 && binary.BigEndian.Uint16(b[12:]) == etherIPv4 && b[23] == 6
		})
		ports[binary.BigEndian.Uint16(frame[34:])] = true
	}
	a.booting.Store(false)
	got := <-dialed
	if got.err != nil {
		t.Fatal(got.err)
	}
	talk(t, got.conn, "a")
}

func TestIsolatedMachines(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	a.machine.Isolated = true
	host := harness.FreeAddress(t)
	a.machine.Ports = []Forward{{Name: "web", Protocol: TCP, Host: host, GuestPort: 80}}
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	outside := internet(t, w)
	a.echoes(80)
	b.echoes(80)

	refused(t, a, outside)
	refused(t, a, "10.77.1.1:53")
	var both sync.WaitGroup // nobody answers their ARP requests, which takes a while
	both.Go(func() { unreached(t, a, "10.77.1.3:80") })
	both.Go(func() { unreached(t, b, "10.77.1.2:80") })
	both.Wait()
	for _, dial := range []func() (net.Conn, error){
		func() (net.Conn, error) { return net.Dial("tcp", host.String()) },
		func() (net.Conn, error) { return w.client.Dial(context.Background(), a.machine.UID, TCP, 80) },
	} {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		talk(t, conn, "a")
	}
	if state, lease := dhcp(t, a, nil); state != dhcpAck || lease != a.machine.Address {
		t.Errorf("DHCP: %d %s", state, lease)
	}
	if dropped := w.machine(a).DropsBy["isolated"]; dropped == 0 {
		t.Error("nothing was counted")
	}
}

func unreached(t *testing.T, g *guest, address string) {
	if conn, err := g.dial(address); err == nil {
		_ = conn.Close()
		t.Errorf("%s reaches %s", g.machine.Name, address)
	}
}

// peers connects two worlds.
func peers(worlds ...*world) {
	for _, w := range worlds {
		w.apply(func(c *Config) {
			c.Peers = nil
			for _, other := range worlds {
				if other != w {
					c.Peers = append(c.Peers, Peer{Namespace: other.config.Namespace, Prefix: other.config.Prefix, Socket: SocketPath(other.dir)})
				}
			}
		})
	}
}

func TestNamespacesConsent(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.2.2")
	one, two := newWorld(t, "one", "10.77.1.0/24", a), newWorld(t, "two", "10.77.2.0/24", b)
	peers(one, two)
	b.echoes(80)
	b.echoesUDP(81)
	allow := func(w *world, namespaces ...string) {
		w.apply(func(c *Config) { c.Machines[0].AllowFrom = namespaces })
	}

	refused(t, a, "10.77.2.2:80")
	allow(one, "two")
	refused(t, a, "10.77.2.2:80")
	allow(one)
	allow(two, "one")
	refused(t, a, "10.77.2.2:80")
	if _, found := lookup(t, a, "b.two.vm.internal."); found {
		t.Error("one side alone makes a name known")
	}

	allow(one, "two")
	conn, err := a.dial("10.77.2.2:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "b")
	talkUDP(t, a.dialUDP("10.77.2.2:81"), "b", "hello")
	for _, name := range []string{"b.two.vm.internal.", "b.two."} {
		if addr, found := lookup(t, a, name); !found || addr != b.machine.Address {
			t.Errorf("%s is %s", name, addr)
		}
	}

	// Who takes the consent back ends what there is.
	allow(two)
	if _, err := io.ReadFull(conn, make([]byte, 1)); err == nil {
		t.Error("the connection is still there")
	}
	refused(t, a, "10.77.2.2:80")
	if _, found := lookup(t, a, "b.two.vm.internal."); found {
		t.Error("the name is still there")
	}
}
