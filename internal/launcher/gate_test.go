package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// conns is a listener whose connections come from addresses that the test chooses.
type conns struct {
	accept chan net.Conn
	closed chan struct{}
}

func (c *conns) Accept() (net.Conn, error) {
	select {
	case conn := <-c.accept:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

func (c *conns) Close() error   { close(c.closed); return nil }
func (c *conns) Addr() net.Addr { return &net.TCPAddr{} }

// connFrom is a connection from an address.
type connFrom struct {
	net.Conn
	from netip.Addr
}

func (c connFrom) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.from, 1000))
}

// dial connects as a client with an address.
func (c *conns) dial(from string) net.Conn {
	client, server := net.Pipe()
	c.accept <- connFrom{server, netip.MustParseAddr(from)}
	return client
}

// isOpen reports whether the other side has not closed a connection.
func isOpen(t *testing.T, conn net.Conn) bool {
	t.Helper()
	err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if errors.Is(err, io.ErrClosedPipe) {
		return false // it was closed before
	}
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Read(make([]byte, 1))
	return !errors.Is(err, io.EOF)
}

// Other Pods reach only the probe, and however many connections they keep, kubelet and the manager get theirs.
func TestGate(t *testing.T) {
	port := &conns{accept: make(chan net.Conn), closed: make(chan struct{})}
	g := newGate(port)
	answer := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	}
	ended := make(chan struct{})
	go func() {
		g.serve(answer("manager"), answer("probe"))
		close(ended)
	}()
	ask := func(from string) string {
		client := http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return port.dial(from), nil }, DisableKeepAlives: true,
		}}
		response, err := client.Get("http://pod/")
		if err != nil {
			return err.Error()
		}
		defer response.Body.Close() //nolint:errcheck // it was only read
		raw, _ := io.ReadAll(response.Body)
		return string(raw)
	}
	var held []net.Conn
	hold := func(from string) bool {
		conn := port.dial(from)
		if isOpen(t, conn) {
			held = append(held, conn)
			return true
		}
		return false
	}
	for from, want := range map[string]string{"127.0.0.1": "manager", "::1": "manager", "::ffff:127.0.0.1": "manager", "10.0.0.5": "probe", "fd00::5": "probe"} {
		if got := ask(from); got != want {
			t.Errorf("%s gets %q, want %q", from, got, want)
		}
	}
	for i := range maxProbesOfOne {
		if !hold("10.0.0.5") {
			t.Errorf("connection %d of a Pod is closed", i+1)
		}
	}
	if hold("10.0.0.5") || hold("::ffff:10.0.0.5") {
		t.Error("a Pod gets more connections than its limit")
	}
	if got := ask("10.0.0.1"); got != "probe" {
		t.Errorf("beside a Pod with many connections, kubelet gets %q", got)
	}
	for i := len(held); i < maxProbes; i++ {
		if !hold(fmt.Sprintf("10.0.1.%d", i)) {
			t.Errorf("connection %d is closed", i+1)
		}
	}
	if hold("10.0.2.1") {
		t.Error("there are more connections from outside than the limit")
	}
	if got := ask("127.0.0.1"); got != "manager" {
		t.Errorf("beside Pods with many connections, the manager gets %q", got)
	}
	_ = held[0].Close()
	harness.Eventually(t, "a closed connection makes room", func() bool { return ask("10.0.0.1") == "probe" })
	// From outside, HTTP/2 is no protocol: the preface is answered as a request of HTTP/1.
	_ = held[1].Close()
	harness.Eventually(t, "HTTP/1 answers", func() bool {
		conn := port.dial("10.0.0.9")
		defer conn.Close() //nolint:errcheck // it was only read
		go func() { _, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") }()
		raw, _ := io.ReadAll(conn)
		return strings.HasPrefix(string(raw), "HTTP/1.")
	})
	g.close()
	<-ended
}
