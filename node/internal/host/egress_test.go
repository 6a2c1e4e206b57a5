package host

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/node/internal/handover"
	"github.com/keelson-dev/keelson/node/internal/settings"
)

// egress serves a node without root, whose network is that of this test, and returns its socket. Offer is the node's part.
func egress(t *testing.T, network string, offer func(*net.UnixConn)) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "egress")
	if err := os.WriteFile(socket, nil, 0o600); err != nil { // a leftover
		t.Fatal(err)
	}
	ours, theirs, err := handover.Pair()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	fd, err := unix.Dup(int(theirs.Fd())) // the other process has a descriptor of its own
	if err != nil {
		t.Fatal(err)
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	inside, err := handover.Open(fd)
	if err != nil {
		t.Fatal(err)
	}
	go offer(inside) // until the other end is closed
	s := settings.Settings{
		Network: netip.MustParsePrefix(network), Services: netip.MustParsePrefix("10.96.0.0/16"), Rootless: &settings.Rootless{Egress: socket},
	}
	if err := serveEgress(s, ours); err != nil {
		t.Fatal(err)
	}
	return socket
}

// ask asks at the socket for a connection, as kube-apiserver does, and returns it with the status line of the response.
func ask(t *testing.T, socket, target string) (net.Conn, *bufio.Reader, string) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", target); err != nil {
		t.Fatal(err)
	}
	reader := bufio.NewReader(c)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, reader, response.Status
}

func TestEgress(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	go serveEach(server, func(c net.Conn) {
		_, _ = io.Copy(c, c)
		_ = c.Close()
	})
	for name, network := range map[string]string{"in the node": "127.0.0.0/16", "on the host": "10.100.0.0/16"} {
		t.Run(name, func(t *testing.T) {
			socket := egress(t, network, handover.Offer)
			for range 3 {
				c, reader, status := ask(t, socket, server.Addr().String())
				if status != "200 Connection established" {
					t.Fatal(status)
				}
				if _, err := io.WriteString(c, "hello\n"); err != nil {
					t.Fatal(err)
				}
				if line, err := reader.ReadString('\n'); line != "hello\n" {
					t.Errorf("got %q, %v", line, err)
				}
			}
		})
	}
}

// The host must not connect to an address in the node itself: there it belongs to another machine, if to any.
func TestEgressWithoutTheNode(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	socket := egress(t, "127.0.0.0/16", func(c *net.UnixConn) { _ = c.Close() })
	if _, _, status := ask(t, socket, server.Addr().String()); !strings.HasPrefix(status, "502 ") {
		t.Errorf("got %s", status)
	}
}

func TestEgressToNothing(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, status := ask(t, egress(t, "127.0.0.0/16", handover.Offer), closed.Addr().String())
	if !strings.HasPrefix(status, "502 ") || !strings.HasSuffix(status, "connection refused") {
		t.Errorf("got %s", status)
	}
}
