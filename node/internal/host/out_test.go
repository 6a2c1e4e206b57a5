package host

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// What this machine would connect a Pod with is told apart by address alone; the test of a whole node connects.
func TestDialOutRefuses(t *testing.T) {
	s := settings.Settings{Network: netip.MustParsePrefix("10.100.0.0/16"), Services: netip.MustParsePrefix("10.96.0.0/16")}
	for _, test := range []struct {
		name, target, want string
	}{
		{"the listener itself", "10.100.255.2:3129", "10.100.255.2:3129 is in the node"},
		{"a Pod", "10.100.0.7:80", "10.100.0.7:80 is in the node"},
		{"a Service without Pods", "10.96.3.4:80", "10.96.3.4:80 is in the node"},
		{"the machine's loopback", "127.0.0.1:80", "dial tcp 127.0.0.1:80: 127.0.0.1:80: the machine's loopback is closed to its node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := dialOut(nil, func(net.Conn) (netip.AddrPort, error) { return netip.ParseAddrPort(test.target) }, s)
			if err == nil {
				_ = c.Close()
				t.Fatal("it is connected")
			}
			if err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
	}
}

func TestLeadOutResets(t *testing.T) {
	for name, slots := range map[string]*shares{
		"a target that is unknown": newShares(1),
		"too many connections":     newShares(0),
	} {
		t.Run(name, func(t *testing.T) { testLeadOutResets(t, slots) })
	}
}

func testLeadOutResets(t *testing.T, slots *shares) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done, connected := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		serveEach(l, slots.guard(netip.MustParsePrefix("127.0.0.0/8"), func(c net.Conn) {
			leadOut(c, func(net.Conn) (netip.AddrPort, error) {
				<-connected
				return netip.AddrPort{}, errors.New("unknown")
			}, settings.Settings{})
		}))
	}()
	client, err := net.Dial("tcp", l.Addr().String())
	close(connected)
	if err == nil {
		defer func() { _ = client.Close() }()
		_, err = client.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client sees %v, want a reset", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

// No rule has led this connection anywhere, and the kernel says so or names the address itself.
func TestOriginalTarget(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = client.Close() }()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	if to, err := originalTarget(server); err == nil && to.String() != l.Addr().String() {
		t.Errorf("it was made to %s, and not to %s", to, l.Addr())
	}
	one, other := net.Pipe()
	defer func() { _, _ = one.Close(), other.Close() }()
	if _, err := originalTarget(one); err == nil {
		t.Error("a pipe was led here")
	}
}
