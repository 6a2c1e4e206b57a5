package owner

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// fakeAgent is the guest's end of an agent channel.
type fakeAgent struct {
	// answer responds to the query of addresses on conn; n counts the queries from 1.
	answer func(conn io.Writer, id json.RawMessage, n int)
	// greedy floods the channel before any query.
	greedy bool

	connections, questions atomic.Int32
	// taken is the number of bytes written to all connections, most the maximum for one connection.
	taken, most atomic.Int64
}

// counting counts the bytes written to a connection.
type counting struct {
	net.Conn
	agent *fakeAgent
	taken int64
}

func (c *counting) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.taken += int64(n)
	c.agent.taken.Add(int64(n))
	c.agent.most.Store(max(c.agent.most.Load(), c.taken))
	return n, err
}

func (a *fakeAgent) serve(conn *counting) {
	a.connections.Add(1)
	defer func() { _ = conn.Close() }() // it may be closed
	if a.greedy {
		flood(conn, "no message\n")
		return
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		_, line, found := bytes.Cut(lines.Bytes(), []byte{0xff})
		if !found {
			line = lines.Bytes()
		}
		var asked struct {
			Execute   string
			Arguments struct{ ID int64 }
			ID        json.RawMessage
		}
		if json.Unmarshal(line, &asked) != nil {
			return
		}
		if asked.Execute == "guest-sync-delimited" {
			fmt.Fprintf(conn, "\xff"+`{"return": %d, "id": %s}`+"\n", asked.Arguments.ID, asked.ID)
			continue
		}
		a.answer(conn, asked.ID, int(a.questions.Add(1)))
	}
}

// flood writes a line repeatedly, as fast as possible.
func flood(conn io.Writer, line string) {
	block := []byte(strings.Repeat(line, max(1, 64<<10/len(line))))
	for {
		if _, err := conn.Write(block); err != nil {
			return
		}
	}
}

// newGuest returns the owner of a machine whose guest has an agent.
func newGuest(t *testing.T, agent *fakeAgent) *Owner {
	t.Helper()
	m := machine(t)
	path := filepath.Join(m.Dir, qemu.AgentSocket)
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { agent.serve(&counting{Conn: conn, agent: agent}) })
		}
	})
	o := New(m, Record{Phase: Running}, false)
	o.setAgentOpen(true)
	t.Cleanup(func() {
		_ = listener.Close()
		o.cancel()
		o.leaveAgent()
		serving.Wait()
	})
	return o
}

func interfaces(addresses ...string) string {
	type address struct {
		Address string `json:"ip-address"`
	}
	var all []address
	for _, text := range addresses {
		all = append(all, address{text})
	}
	raw, err := json.Marshal([]map[string]any{{"name": "eth\u0000\x1b[2J", "ip-addresses": all}})
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// Guests that flood the manager cost it next to nothing, and delay no other machine.
func TestGuestsThatFlood(t *testing.T) {
	many := make([]string, 100_000)
	for i := range many {
		many[i] = fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)
	}
	hostile := map[string]*fakeAgent{
		"response of 16 MiB in one line": {answer: func(conn io.Writer, _ json.RawMessage, _ int) {
			_, _ = conn.Write(bytes.Repeat([]byte("x"), 16<<20)) // the connection is closed during the write
		}},
		"100 000 addresses": {answer: func(conn io.Writer, id json.RawMessage, _ int) {
			fmt.Fprintf(conn, `{"return": %s, "id": %s}`+"\n", interfaces(many...), id)
		}},
		"unsolicited responses": {answer: func(conn io.Writer, _ json.RawMessage, _ int) { flood(conn, `{"return": {}, "id": 1}`+"\n") }},
		"events": {answer: func(conn io.Writer, _ json.RawMessage, _ int) {
			flood(conn, `{"event": "STOP", "data": "`+strings.Repeat("x", 60_000)+`"}`+"\n")
		}},
		"empty lines":                       {answer: func(conn io.Writer, _ json.RawMessage, _ int) { flood(conn, "\n") }},
		"invalid messages before any query": {greedy: true},
	}
	for _, agent := range hostile {
		newGuest(t, agent)
	}
	// The agent is queried at short intervals until it has addresses.
	const questions = 8
	honest := &fakeAgent{answer: func(conn io.Writer, id json.RawMessage, n int) {
		var addresses []string
		if n >= questions {
			addresses = []string{"10.0.2.15"}
		}
		fmt.Fprintf(conn, `{"return": %s, "id": %s}`+"\n", interfaces(addresses...), id)
	}}
	began := time.Now()
	o := newGuest(t, honest)
	harness.Eventually(t, "the honest guest is queried until it has an address", func() bool {
		return cmp.Equal(o.State().Addresses, []string{"10.0.2.15"})
	})
	t.Logf("%d questions took %v", questions, time.Since(began))
	for name, agent := range hostile {
		// The kernel buffers some hundred KiB of unread data for each connection.
		most, taken, n := agent.most.Load(), agent.taken.Load(), agent.connections.Load()
		t.Logf("%s: %d connections took %d bytes", name, n, taken)
		if n == 0 || most > 2<<20 || taken > 16<<20 {
			t.Errorf("%s: %d connections took %d bytes, one of them %d", name, n, taken, most)
		}
	}
}

func TestUsableAddresses(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, fmt.Sprintf("10.0.0.%d", i%250), fmt.Sprintf("2001:db8::%x", i))
	}
	for name, test := range map[string]struct{ reported, want []string }{
		"some":               {[]string{"2001:DB8:0::1", " 10.0.2.15\n", "10.0.2.15"}, []string{"10.0.2.15", "2001:db8::1"}},
		"local to the guest": {[]string{"127.0.0.1", "::1", "fe80::1", "169.254.1.1", "fec0::1", "0.0.0.0", "ff02::1", "224.0.0.1"}, nil},
		"a zone":             {[]string{"2001:db8::1%\x1b[2J", "fe80::1%eth0", "2001:db8::2%" + strings.Repeat("x", 1000)}, nil},
		"invalid":            {[]string{"", "\x00", "\xff", "10.0.0.1\x00", "999.0.0.1", strings.Repeat("1", 1000), "10.0.0.1/8"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Reachable(test.reported), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	got := Reachable(many)
	if len(got) != MaxAddresses || slices.ContainsFunc(got, func(s string) bool { return len(s) > 64 }) {
		t.Errorf("of 2000 addresses %v are reported", got)
	}
}
