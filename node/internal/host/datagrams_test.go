package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

var testSettings = settings.Settings{Network: netip.MustParsePrefix("10.100.0.0/16"), Services: netip.MustParsePrefix("10.96.0.0/16")}

// otherFlow is that of another port of the same Pod.
func otherFlow(port uint16) flow {
	return flow{netip.AddrPortFrom(testFlow.from.Addr(), port), testFlow.to}
}

// testServer answers each datagram with what the function makes of it and of who has sent it. The result connects to it.
func testServer(t *testing.T, answer func(from net.Addr, said string) string) func(netip.AddrPort) (net.Conn, error) {
	t.Helper()
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		buffer := make([]byte, 100)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = server.WriteTo([]byte(answer(from, string(buffer[:n]))), from)
		}
	}()
	return func(netip.AddrPort) (net.Conn, error) { return net.Dial("udp4", server.LocalAddr().String()) }
}

// pods is the other end of the tunnel.
type pods struct{ net.Conn }

// newTestDatagrams returns what serves Pods until the test ends.
func newTestDatagrams(t *testing.T, dial func(netip.AddrPort) (net.Conn, error)) (pods, *datagrams) {
	t.Helper()
	inside, tunnel := net.Pipe()
	d := newDatagrams(tunnel, testSettings, 1<<20)
	d.dial = dial
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.serve()
	}()
	t.Cleanup(func() {
		_ = inside.Close()
		<-done
		until(t, "all flows are over", func() bool { return d.count() == 0 })
	})
	return pods{inside}, d
}

func (d *datagrams) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.flows)
}

func (p pods) send(t *testing.T, f flow, text string) {
	t.Helper()
	if _, err := p.Write(newPacket(f, text)); err != nil {
		t.Fatal(err)
	}
}

// ask sends a datagram and returns the answer, which must be one to it.
func (p pods) ask(t *testing.T, f flow, text string) string {
	t.Helper()
	p.send(t, f, text)
	packet := make([]byte, maxPacket)
	n, err := p.Read(packet)
	if err != nil {
		t.Fatal(err)
	}
	back, payload, ok := parseDatagram(packet[:n])
	if !ok || back != (flow{from: f.to, to: f.from}) {
		t.Fatalf("the answer to %+v is %+v, %t", f, back, ok)
	}
	return string(payload)
}

func TestDatagramsHaveASocketForEachFlow(t *testing.T) {
	pods, d := newTestDatagrams(t, testServer(t, func(from net.Addr, said string) string { return fmt.Sprint(from, " ", said) }))
	first, second := pods.ask(t, testFlow, "one"), pods.ask(t, otherFlow(4001), "one")
	if first == second {
		t.Errorf("two ports have one socket: %q", first)
	}
	if again := pods.ask(t, testFlow, "one"); again != first {
		t.Errorf("the same port has sockets %q and %q", first, again)
	}
	// Who has no address of a Pod gets no answer, and takes no socket.
	pods.send(t, flow{netip.MustParseAddrPort("10.100.255.2:4000"), testFlow.to}, "one")
	pods.ask(t, testFlow, "one")
	if got := d.count(); got != 2 {
		t.Errorf("there are %d sockets, want 2", got)
	}
}

func TestDatagramsAreBounded(t *testing.T) {
	if d := newDatagrams(nil, testSettings, 1<<20); d.slots.free != maxFlows {
		t.Errorf("there may be %d flows, want %d", d.slots.free, maxFlows)
	}
	d := newDatagrams(nil, testSettings, 32) // 4 flows
	d.dial = testServer(t, func(net.Addr, string) string { return "" })
	for i, want := range []bool{true, true, false} {
		if got := d.socket(otherFlow(uint16(4000+i))) != nil; got != want {
			t.Errorf("flow %d has a socket: %t", i, got)
		}
	}
	if d.socket(otherFlow(4000)) == nil {
		t.Error("a flow that there was is forgotten")
	}
	other := flow{netip.MustParseAddrPort("10.100.0.8:4000"), testFlow.to}
	if d.socket(other) == nil {
		t.Error("another Pod has none")
	}
	d.forget()
	until(t, "all that was taken is given back", func() bool { return d.slots.left() == 4 })
	d.dial = func(netip.AddrPort) (net.Conn, error) { return nil, errors.New("unreachable") }
	if d.socket(other) != nil || d.slots.left() != 4 {
		t.Error("what cannot be reached takes a slot")
	}
}

func (s *shares) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.free
}

func TestLongAnswersAreLost(t *testing.T) {
	pods, _ := newTestDatagrams(t, testServer(t, func(_ net.Addr, said string) string {
		if said == "long" {
			return strings.Repeat(".", maxAnswer+1)
		}
		return strings.Repeat(".", maxAnswer)
	}))
	pods.send(t, testFlow, "long")
	if got := len(pods.ask(t, testFlow, "short")); got != maxAnswer {
		t.Errorf("the answer has %d bytes, want %d", got, maxAnswer)
	}
}

func TestSilentFlowsAreForgotten(t *testing.T) {
	d := newDatagrams(nil, testSettings, 8)
	d.dial, d.timeout = testServer(t, func(net.Addr, string) string { return "" }), 50*time.Millisecond
	if d.socket(testFlow) == nil {
		t.Fatal("there is no socket")
	}
	until(t, "it is forgotten", func() bool { return d.count() == 0 })
	if d.socket(otherFlow(4001)) == nil {
		t.Error("there is no room for another one")
	}
	d.forget()
	until(t, "that is over, too", func() bool { return d.count() == 0 })
}

// Nobody is asked: what may be reached is told apart by address.
func TestDatagramsRefuse(t *testing.T) {
	d := newDatagrams(nil, testSettings, 1<<20)
	defer d.forget()
	for _, test := range []struct{ name, target, want string }{
		{"the node", "10.100.255.2:53", "10.100.255.2:53 is in the node"},
		{"the machine's end of the link", "10.100.255.1:53", "10.100.255.1:53 is in the node"},
		{"a Service without Pods", "10.96.3.4:53", "10.96.3.4:53 is in the node"},
		{"the machine's loopback", "127.0.0.1:53", "dial udp4 127.0.0.1:53: 127.0.0.1:53: the machine's loopback is closed to its node"},
		{"its resolver", "127.0.0.53:53", "dial udp4 127.0.0.53:53: 127.0.0.53:53: the machine's loopback is closed to its node"},
		{"no address", "0.0.0.0:53", "dial udp4 0.0.0.0:53: 0.0.0.0:53: the machine's loopback is closed to its node"},
		{"a group", "224.0.0.251:5353", "dial udp4 224.0.0.251:5353: 224.0.0.251:5353 is a group"},
	} {
		t.Run(test.name, func(t *testing.T) {
			to := netip.MustParseAddrPort(test.target)
			c, err := d.dial(to)
			if err == nil {
				_ = c.Close()
				t.Fatal("it is reached")
			}
			if err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
			if d.socket(flow{testFlow.from, to}) != nil || d.count() != 0 {
				t.Error("there is a flow all the same")
			}
		})
	}
	// Everybody in a network: the kernel knows which address that is, if there is a network.
	_, err := d.dial(netip.MustParseAddrPort("255.255.255.255:9"))
	if !errors.Is(err, syscall.EACCES) && !errors.Is(err, syscall.ENETUNREACH) {
		t.Errorf("everybody: %v", err)
	}
}
