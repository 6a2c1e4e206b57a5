package network

import (
	"context"
	"encoding/binary"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestMain makes the test program a switch when it is started as one.
func TestMain(m *testing.M) {
	Role()
	os.Exit(m.Run())
}

// startProcess starts a switch as a process of its own, and returns what kills it.
func startProcess(t testing.TB, dir string) (kill func()) {
	t.Helper()
	path, argv := Command(dir)
	command := &exec.Cmd{Path: path, Args: argv, Stderr: os.Stderr}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = command.Process.Kill()
		_ = command.Wait() // killed
	}
	t.Cleanup(kill)
	return kill
}

// TestKilled: after kill -9, a new process has the network back, and connections between machines go on.
func TestKilled(t *testing.T) {
	a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
	w := newWorld(t, "one", "10.77.1.0/24", a, b)
	w.stop()
	kill := startProcess(t, w.dir)
	a.wait()
	b.wait()
	b.echoes(80)
	conn, err := a.dial("10.77.1.3:80")
	if err != nil {
		t.Fatal(err)
	}
	talk(t, conn, "b")
	for range 3 {
		kill()
		kill = startProcess(t, w.dir)
		talkOn(t, conn)
	}
	dialed, err := w.client.Dial(context.Background(), b.machine.UID, TCP, 80)
	if err != nil {
		t.Fatal(err)
	}
	talk(t, dialed, "b")
}

// TestProcessEnds: SIGTERM is the clean end.
func TestProcessEnds(t *testing.T) {
	w := newWorld(t, "one", "10.77.1.0/24")
	w.stop()
	path, argv := Command(w.dir)
	command := &exec.Cmd{Path: path, Args: argv}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	w.eventually("it answers", func() bool { _, err := w.client.Status(context.Background()); return err == nil })
	if err := command.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := command.Wait(); err != nil {
		t.Errorf("it has ended with %v", err)
	}
	if output, err := (&exec.Cmd{Path: path, Args: []string{Name}}).CombinedOutput(); err == nil || len(output) == 0 {
		t.Errorf("started by hand: %q, %v", output, err)
	}
}

// leaseSeeker asks as a DHCP client does: it repeats a message until there is an answer.
type leaseSeeker struct {
	*guest
	sent, answers int
	addresses     map[netip.Addr]bool // those that were offered or granted
}

// say sends a message once.
func (c *leaseSeeker) say(kind byte, options ...[]byte) {
	c.sent++
	c.send(dhcpFrame(c.mac(), netip.IPv4Unspecified(), dhcpMessage(c.mac(), kind, options...)))
}

// ask repeats a message until there is an answer of this kind.
func (c *leaseSeeker) ask(kind, want byte, options ...[]byte) {
	c.t.Helper()
	repeat := time.NewTicker(100 * time.Millisecond)
	defer repeat.Stop()
	deadline := time.After(patience)
	for c.say(kind, options...); ; {
		select {
		case frame := <-c.arrived:
			if c.note(frame) == want {
				return
			}
		case <-repeat.C:
			c.say(kind, options...)
		case <-deadline:
			c.t.Fatalf("no answer %d to message %d", want, kind)
		}
	}
}

// note counts an answer of the DHCP server and returns its kind, 0 for another frame.
func (c *leaseSeeker) note(frame []byte) byte {
	c.t.Helper()
	if len(frame) < etherLen+ipv4Len+udpLen+dhcpOptions || frame[etherLen+9] != protocolUDP ||
		binary.BigEndian.Uint16(frame[etherLen+ipv4Len:]) != portDHCPServer {
		return 0
	}
	message := frame[etherLen+ipv4Len+udpLen:]
	kind := dhcpOption(message, optionType)
	if len(kind) != 1 || kind[0] != dhcpOffer && kind[0] != dhcpAck {
		c.t.Errorf("the answer is %v", kind)
		return 0
	}
	c.answers++
	c.addresses[netipAddr(message[dhcpYour:dhcpYour+4])] = true
	return kind[0]
}

// TestKilledInDHCP: a machine whose switch is killed at any step of the exchange gets its address, and no other machine does.
func TestKilledInDHCP(t *testing.T) {
	requested := []byte{optionRequested, 4, 10, 77, 1, 2}
	for _, test := range []struct {
		name string
		// before is what the machine does until the switch is killed; what it does afterwards begins with resume.
		before func(*leaseSeeker)
		resume byte
	}{
		{"after DISCOVER", func(c *leaseSeeker) { c.say(dhcpDiscover) }, dhcpDiscover},
		{"after OFFER", func(c *leaseSeeker) { c.ask(dhcpDiscover, dhcpOffer) }, dhcpRequest},
		{"after REQUEST", func(c *leaseSeeker) { c.ask(dhcpDiscover, dhcpOffer); c.say(dhcpRequest, requested) }, dhcpRequest},
		{"after ACK", func(c *leaseSeeker) { c.ask(dhcpDiscover, dhcpOffer); c.ask(dhcpRequest, dhcpAck, requested) }, dhcpRequest},
	} {
		t.Run(test.name, func(t *testing.T) {
			a, b := newGuest(t, "a", "10.77.1.2"), newGuest(t, "b", "10.77.1.3")
			w := newWorld(t, "one", "10.77.1.0/24", a, b)
			w.stop()
			kill := startProcess(t, w.dir)
			a.wait()
			c := &leaseSeeker{guest: a, addresses: map[netip.Addr]bool{}}
			test.before(c)
			kill()
			startProcess(t, w.dir)
			if test.resume == dhcpDiscover {
				c.ask(dhcpDiscover, dhcpOffer)
			}
			c.ask(dhcpRequest, dhcpAck, requested)
			w.eventually("it answers", func() bool { _, err := w.client.Status(context.Background()); return err == nil })
			if len(c.addresses) != 1 || !c.addresses[a.machine.Address] || c.answers > c.sent {
				t.Errorf("%d messages have %d answers, with %v", c.sent, c.answers, c.addresses)
			}
			if status := w.machine(b); status.Address == a.machine.Address || len(w.status().Machines) != 2 {
				t.Errorf("the neighbour: %+v", status)
			}
			b.wait()
			b.echoes(80)
			conn, err := a.dial("10.77.1.3:80")
			if err != nil {
				t.Fatal(err)
			}
			talk(t, conn, "b")
			if !w.machine(a).Leased {
				t.Errorf("the machine that uses its address: %+v", w.machine(a))
			}
		})
	}
}
