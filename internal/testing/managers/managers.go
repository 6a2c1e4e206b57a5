// Package managers runs bin/keelson manager as processes, for tests that kill, stop and cut them off.
package managers

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// Patience is how long a test waits for what takes a second.
const Patience = time.Minute

// Manager is a process that runs controllers.
type Manager struct {
	// Name is that of the process in its log, and in its lease.
	Name string
	// Ready is closed when it says that it is ready, Done when it has ended.
	Ready, Done chan struct{}

	cmd *exec.Cmd
	log string

	mu      sync.Mutex
	readyAt time.Time
	// killed says that the test has ended it, so that its log is not what explains a failure.
	killed bool
}

// Start starts bin/keelson manager with these arguments, and the health endpoint off. It is killed when the test ends, and
// the test has failed if it has crashed before.
func Start(t testing.TB, name string, args ...string) *Manager {
	t.Helper()
	binary, err := env.Binary("keelson")
	if err != nil {
		t.Fatal(err)
	}
	return StartBinary(t, binary, name, args...)
}

// StartBinary does the same with another program.
func StartBinary(t testing.TB, binary, name string, args ...string) *Manager {
	t.Helper()
	m := &Manager{Name: name, Ready: make(chan struct{}), Done: make(chan struct{}), log: filepath.Join(t.TempDir(), name+".log")}
	m.cmd = exec.Command(binary, append([]string{"manager", "--logging-format=json", "--health-probe-bind-address=0"}, args...)...)
	m.cmd.SysProcAttr = dieWithParent()
	logs, err := m.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(m.log)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(m.Done)
		lines := bufio.NewScanner(logs)
		lines.Buffer(nil, 1<<20)
		for waiting := true; lines.Scan(); {
			if waiting && strings.Contains(lines.Text(), "Manager is ready") {
				waiting = false
				m.mu.Lock()
				m.readyAt = time.Now()
				m.mu.Unlock()
				close(m.Ready)
			}
			_, _ = log.Write(append(lines.Bytes(), '\n')) // only a log
		}
		_ = m.cmd.Wait() // it is killed, or ends because it has lost its lease
		log.Close()
	}()
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill() // it may have ended
		<-m.Done
		if said := crash(m.Log()); said != "" {
			t.Errorf("%s has crashed: %s", m.Name, said)
		}
		if t.Failed() && !m.killed {
			t.Logf("the end of the log of %s:\n%s", m.Name, m.Tail())
		}
	})
	return m
}

// crashed is how a program in Go says that it cannot go on, and how a controller says that it could not and was caught.
var crashed = regexp.MustCompile(`(?m)^(panic|fatal error): .*|^WARNING: DATA RACE|^.*Observed a panic.*`)

// crash returns the line of a log by which it tells of a crash; nothing if there was none. A test that kills managers and
// starts others would not notice.
func crash(log string) string { return crashed.FindString(log) }

// AwaitReady waits until it is ready.
func (m *Manager) AwaitReady(t testing.TB) {
	t.Helper()
	select {
	case <-m.Ready:
	case <-m.Done:
		t.Fatalf("%s has ended by itself:\n%s", m.Name, m.Tail())
	case <-time.After(Patience):
		t.Fatalf("%s is not ready after %v:\n%s", m.Name, Patience, m.Tail())
	}
}

// AwaitDone waits until it has ended.
func (m *Manager) AwaitDone(t testing.TB) {
	t.Helper()
	select {
	case <-m.Done:
	case <-time.After(Patience):
		t.Fatalf("%s goes on after %v:\n%s", m.Name, Patience, m.Tail())
	}
}

// IsReady reports whether it has said that it is ready, and when.
func (m *Manager) IsReady() (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readyAt, !m.readyAt.IsZero()
}

// Signal sends it a signal.
func (m *Manager) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	signals.Send(t, m.cmd.Process.Pid, signal)
}

// Kill ends it as if the machine were switched off. It must not have ended by itself.
func (m *Manager) Kill(t testing.TB) {
	t.Helper()
	select {
	case <-m.Done:
		t.Fatalf("%s has ended by itself:\n%s", m.Name, m.Tail())
	default:
	}
	m.killed = true
	m.Signal(t, syscall.SIGKILL)
	<-m.Done
}

// End kills it, unless it has ended by itself: one that starts gives up if the API is away.
func (m *Manager) End(t testing.TB) {
	t.Helper()
	select {
	case <-m.Done:
	default:
		m.killed = true
	}
	if err := m.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("kill %s: %v", m.Name, err)
	}
	<-m.Done
}

// Resident returns how many bytes of memory it has.
func (m *Manager) Resident(t testing.TB) int64 {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(m.cmd.Process.Pid), "statm"))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(raw))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// Log returns what it has logged.
func (m *Manager) Log() string {
	raw, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

// Tail returns the end of its log.
func (m *Manager) Tail() string {
	raw := []byte(m.Log())
	raw = raw[max(0, len(raw)-6000):]
	if _, whole, found := bytes.Cut(raw, []byte("\n")); found {
		return string(whole)
	}
	return string(raw)
}
