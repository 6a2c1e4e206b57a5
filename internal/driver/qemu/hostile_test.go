package qemu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskimage"
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

// newGuest adds a running machine with a fake agent.
func (w *fixture) newGuest(agent *fakeAgent) *machine {
	w.Helper()
	m := newMachine(w.driver, definition{Machine: backend.Machine{Identity: backend.Identity{UID: uuid.NewUUID()}}})
	m.run, m.power, m.agent = "run", backend.StateRunning, backend.AgentWaiting
	w.do(os.MkdirAll(m.dir, 0o700))
	path, release, err := shortPath(m.path(qemu.AgentSocket))
	w.do(err)
	listener, err := net.Listen("unix", path)
	w.do(err)
	release()
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
	w.Cleanup(func() {
		_ = listener.Close() // its file is already removed
		w.do(w.driver.Close())
		serving.Wait()
	})
	w.driver.mu.Lock()
	w.driver.machines[m.id.UID] = m
	w.driver.mu.Unlock()
	m.setAgentOpen(true)
	return m
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

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// Guests that flood the manager cost it next to nothing, and delay no other machine.
func TestGuestsThatFlood(t *testing.T) {
	w := newFixture(t)
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
		w.newGuest(agent)
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
	m := w.newGuest(honest)
	harness.Eventually(t, "the honest guest is queried until it has an address", func() bool {
		return cmp.Equal(m.snapshot().Addresses, []string{"10.0.2.15"})
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
			if diff := cmp.Diff(test.want, reachable(test.reported), cmp.Transformer("empty", func(s []string) []string { return append([]string{}, s...) })); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	got := reachable(many)
	if len(got) != maxAddresses || slices.ContainsFunc(got, func(s string) bool { return len(s) > 64 }) {
		t.Errorf("of 2000 addresses %v are reported", got)
	}
}

// QEMU's last output may be text that the guest wrote to its serial console.
func TestLastOutput(t *testing.T) {
	for name, test := range map[string]struct{ log, want string }{
		"of QEMU":            {"x\n2026-01-01T00:00:00.000000Z qemu-system-" + arch() + ": no room\n", "no room"},
		"nothing":            {"\n \n", "no output"},
		"control characters": {"\x1b[2J\x07hello\u202e\x00\xff there\r", "[2Jhello\ufffd there"},
		"too many":           {strings.Repeat("é", 1000), strings.Repeat("é", maxOutput/2) + " ..."},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, lastOutput(test.log)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestImplausibleMemory(t *testing.T) {
	for name, test := range map[string]struct {
		total, available uint64
		want             [2]int64
	}{
		"usual":                 {100, 30, [2]int64{70, 100}},
		"nothing reported":      {0, 0, [2]int64{}},
		"unknown values are -1": {1<<64 - 1, 1<<64 - 1, [2]int64{}},
		"more than its memory":  {201, 1, [2]int64{}},
		"more free than total":  {100, 101, [2]int64{}},
		"negative free":         {100, 1<<64 - 1, [2]int64{}},
	} {
		t.Run(name, func(t *testing.T) {
			used, of := clampMemory(test.total, test.available, 200)
			if diff := cmp.Diff(test.want, [2]int64{used, of}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A guest can change its reported state endlessly. Writes to the API are rate limited.
func TestGuestThatChangesAllTheTime(t *testing.T) {
	w := newFixture(t)
	var reported atomic.Int32
	w.driver.Watch(func(backend.Identity) { reported.Add(1) })
	m := w.newGuest(&fakeAgent{answer: func(conn io.Writer, id json.RawMessage, _ int) {
		fmt.Fprintf(conn, `{"return": [], "id": %s}`+"\n", id)
	}})
	harness.Eventually(t, "the agent is connected", func() bool { return m.snapshot().Agent == backend.AgentConnected })
	for i := range 1000 {
		m.agentAnswered(t.Context(), []string{fmt.Sprintf("10.0.%d.%d", i>>8, i&255)})
	}
	if n := reported.Load(); n > 2*notifyBurst {
		t.Errorf("%d changes were reported", n)
	}
	before := reported.Load()
	harness.Eventually(t, "the last change is reported", func() bool { return reported.Load() > before })
}

// bootSector returns an image that runs 16-bit machine code.
func bootSector(t *testing.T, code ...byte) string {
	t.Helper()
	sector := make([]byte, 1<<20)
	copy(sector, code)
	sector[510], sector[511] = 0x55, 0xaa
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, sector, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Any guest can write to the ports of its devices, and QEMU sends an event for each of some writes.
func TestGuestThatFloodsEvents(t *testing.T) {
	for name, code := range map[string][]byte{
		"crashloaded events": {
			0xba, 0x05, 0x05, // mov dx, 0x505: pvpanic
			0xb0, 0x02, // mov al, 2
			0xee,       // out dx, al
			0xeb, 0xfd, // jmp -3
		},
		"resets": {
			0xba, 0xf9, 0x0c, // mov dx, 0xcf9: reset control
			0xb0, 0x06, // mov al, 6
			0xee,       // out dx, al
			0xeb, 0xfd, // jmp -3
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			machine := firmware(uid)
			machine.Image = &v1alpha1.Image{Path: bootSector(t, code...), Format: diskimage.Raw}
			w.run(machine)
			other := w.newGuest(&fakeAgent{answer: func(conn io.Writer, id json.RawMessage, n int) {
				fmt.Fprintf(conn, `{"return": %s, "id": %s}`+"\n", interfaces([]string{"10.0.0.1"}[:n/8]...), id)
			}})
			began, before := time.Now(), processorTime(t)
			harness.Eventually(t, "another guest is queried", func() bool { return len(other.snapshot().Addresses) > 0 })
			took, used := time.Since(began), processorTime(t)-before
			t.Logf("in %v this process used %v of processor time; %s", took, used, w.server().State)
			if used > took/4 {
				t.Errorf("%v of processor time in %v", used, took)
			}
			w.do(os.RemoveAll(other.dir))
			w.remove()
		})
	}
}
