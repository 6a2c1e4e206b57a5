package access

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

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
			latency(b, f, conn)
		})
	}
}

// BenchmarkThroughput measures how fast a client gets what the guest sends.
func BenchmarkThroughput(b *testing.B) {
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			f := newFixture(b, DefaultLimits())
			conn := f.open(kind.path)
			guest := kind.guest(f, conn)
			throughput(b, f, conn, guest)
		})
	}
}

// latency measures round trips to a guest that sends everything back.
func latency(b *testing.B, f *fixture, conn *websocket.Conn) {
	message := make([]byte, 64)
	var all []time.Duration
	for b.Loop() {
		began := time.Now()
		f.do(conn.Write(f.Context(), websocket.MessageBinary, message))
		f.output(conn, len(message))
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	b.ReportMetric(float64(all[len(all)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds()), "p99-us")
}

// throughput measures how fast the client reads what a guest sends without a pause.
func throughput(b *testing.B, f *fixture, conn *websocket.Conn, guest io.Writer) {
	const block = 1 << 20
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
	{client.Screen, "screen", func(f *fixture, _ *websocket.Conn) net.Conn {
		f.m.mu.Lock()
		defer f.m.mu.Unlock()
		return f.m.screen
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
