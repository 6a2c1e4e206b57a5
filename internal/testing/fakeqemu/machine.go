package fakeqemu

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// machine is a machine. Its mutex is held while a command runs.
type machine struct {
	mu sync.Mutex
	// resumed is broadcast when the processors run.
	resumed *sync.Cond

	uuid            string
	memory, balloon int64
	cpus            int
	halts, incoming bool
	shares          bool // its memory is in a file
	status          string
	guest           guest
	polls           bool // the guest reports its memory

	chardevs []*chardev
	monitors map[string]string // the modes of monitors, by chardev
	devices  []*device
	objects  []string
	links    map[string]bool
	sets     []fdset
	nodes    []*node
	jobs     []*job

	files     map[string]*os.File // those of getfd
	migration migration
	listeners []func(event) // connections to the monitor
}

// guest is what the guest has in its memory.
type guest struct {
	// Agent means that it has an agent, whose channel is open.
	Agent  bool
	Frozen bool
	// Instance is the machine that it was told to be.
	Instance string
}

func newMachine() *machine {
	m := &machine{status: "prelaunch", monitors: map[string]string{}, links: map[string]bool{}, files: map[string]*os.File{}}
	m.resumed = sync.NewCond(&m.mu)
	return m
}

// run runs the machine until its process ends.
func (m *machine) run() error {
	for _, c := range m.chardevs {
		listener, err := c.listen()
		if err != nil {
			return err
		}
		go m.serve(c, listener)
	}
	if !m.halts && !m.incoming {
		m.mu.Lock()
		m.resume()
		m.mu.Unlock()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	<-signals
	m.mu.Lock()
	m.emit("SHUTDOWN", map[string]any{"guest": false, "reason": "host-signal"})
	syscall.Exit(0)
	return nil
}

// quit ends the process. Like all that ends it, not with os.Exit: under the race detector, that takes a second.
func (m *machine) quit() {
	m.mu.Lock() // a command that runs ends first
	for _, c := range m.chardevs {
		if c.path != "" {
			_ = os.Remove(c.path)
		}
	}
	syscall.Exit(0)
}

// exit ends the process with an error, as QEMU does.
func (m *machine) exit(err error) {
	_, _ = fmt.Fprintf(os.Stderr, "%s: %v\n", Program, err)
	syscall.Exit(1)
}

// listen makes the socket, or takes that which was inherited.
func (c *chardev) listen() (net.Listener, error) {
	if c.fd >= 0 {
		file := os.NewFile(uintptr(c.fd), c.id) //nolint:gosec // a descriptor
		defer file.Close()
		return net.FileListener(file)
	}
	_ = os.Remove(c.path) // of an earlier run
	// QEMU, too, makes a name that is too long short.
	dir, err := os.Open(filepath.Dir(c.path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(c.path))})
	if err == nil {
		listener.SetUnlinkOnClose(false)
	}
	return listener, err
}

// serve serves one connection after another.
func (m *machine) serve(c *chardev, listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		switch {
		case m.monitors[c.id] == "control":
			m.serveMonitor(c, conn.(*net.UnixConn))
		case m.monitors[c.id] == "readline":
			m.serveHuman(conn)
		case m.isAgent(c):
			m.serveAgent(conn)
		default:
			discard(conn)
		}
		_ = conn.Close()
	}
}

// isRunning reports whether the processors run.
func (m *machine) isRunning() bool { return m.status == "running" }

// resume lets the processors run.
func (m *machine) resume() {
	if m.isRunning() {
		return
	}
	m.status = "running"
	m.emit("RESUME", nil)
	for _, c := range m.chardevs {
		if m.isAgent(c) && m.guest.Agent && !c.open {
			c.open = true
			m.emit("VSERPORT_CHANGE", map[string]any{"id": "agent-port", "open": true})
			m.say("The guest has booted\r\n")
		}
	}
	m.resumed.Broadcast()
}

// halt halts the processors in a state.
func (m *machine) halt(status string) {
	wasRunning := m.isRunning()
	m.status = status
	if wasRunning {
		m.emit("STOP", nil)
	}
}

// powerDown presses the power button. Firmware ignores it.
func (m *machine) powerDown() {
	m.emit("POWERDOWN", nil)
	if m.guest.Agent && m.isRunning() {
		m.emit("SHUTDOWN", map[string]any{"guest": true, "reason": "guest-shutdown"})
		m.halt("shutdown")
	}
}

// say writes to the log of the serial console, if it has one.
func (m *machine) say(text string) {
	for _, c := range m.chardevs {
		isSerial := func(d *device) bool { return d.driver == "isa-serial" && d.options["chardev"] == c.id }
		if c.log != nil && slices.ContainsFunc(m.devices, isSerial) {
			_, _ = c.log.WriteString(text)
		}
	}
}

// event is an event.
type event struct {
	Timestamp map[string]int64 `json:"timestamp"`
	Event     string           `json:"event"`
	Data      any              `json:"data,omitempty"`
}

func (m *machine) emit(name string, data any) {
	now := time.Now()
	e := event{map[string]int64{"seconds": now.Unix(), "microseconds": int64(now.Nanosecond() / 1000)}, name, data}
	for _, tell := range m.listeners {
		tell(e)
	}
}

// marshal writes a message.
func marshal(message any) []byte {
	raw, err := json.Marshal(message)
	if err != nil {
		panic(err) // all messages are ours
	}
	return append(raw, '\r', '\n')
}
