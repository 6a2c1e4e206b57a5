package access

import (
	"io"
	"net"
	"testing"

	"github.com/coder/websocket"

	"github.com/keelson-dev/keelson/internal/access/client"
)

// BenchmarkLatency measures the round trip of a message of 64 bytes that the guest sends back, through the handler with
// TLS.
func BenchmarkLatency(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			f := newFixture(b, DefaultLimits())
			conn := f.open(kind.path)
			guest := kind.guest(f, conn)
			go func() { _, _ = io.Copy(guest, guest) }()
			message := make([]byte, 64)
			for b.Loop() {
				f.do(conn.Write(b.Context(), websocket.MessageBinary, message))
				f.output(conn, len(message))
			}
		})
	}
}

// BenchmarkThroughput measures how fast a client gets what the guest sends.
func BenchmarkThroughput(b *testing.B) {
	const block = 1 << 20
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			f := newFixture(b, DefaultLimits())
			conn := f.open(kind.path)
			guest := kind.guest(f, conn)
			b.SetBytes(block)
			go func() {
				data := make([]byte, block)
				for {
					if _, err := guest.Write(data); err != nil {
						return
					}
				}
			}()
			for b.Loop() {
				f.read(conn, block)
			}
		})
	}
}

// kinds are the WebSockets, with the guest's side of each.
var kinds = []struct {
	name, path string
	guest      func(*fixture, *websocket.Conn) net.Conn
}{
	{client.Console, "console", func(f *fixture, conn *websocket.Conn) net.Conn {
		f.notice(conn)
		return f.m.console(f)
	}},
	{client.PortForward, "portforward?port=22", func(f *fixture, _ *websocket.Conn) net.Conn {
		f.m.mu.Lock()
		defer f.m.mu.Unlock()
		return f.m.port
	}},
}

// read discards output.
func (f *fixture) read(conn *websocket.Conn, n int) {
	f.Helper()
	for n > 0 {
		_, message, err := conn.Reader(f.Context())
		f.do(err)
		got, err := io.Copy(io.Discard, message)
		f.do(err)
		n -= int(got)
	}
}
