// Package managers runs bin/keelson manager as processes, for tests that kill, suspend and
// disconnect them.
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

// WaitTimeout is the timeout for events that take a second.
const WaitTimeout = 3 * time.Minute

// Manager is a process that runs controllers.
type Manager struct {
	// Name is the name of the process in its log and its lease.
	Name string
	// Ready is closed once it logs that it is ready, Done once it has ended.
	Ready, Done chan struct{}

	cmd *exec.Cmd
	log string

	mu      sync.Mutex
	readyAt time.Time
	// killed means that the test ended it, so its log does not explain a failure.
	killed bool
}

// Start starts bin/keelson manager with these arguments and without its health endpoint. It is
// killed at the end of the test. A crash before that fails the test.
func Start(t testing.TB, name string, args ...string) *Manager {
	t.Helper()
	binary, err := env.Binary("keelson")
	if err != nil {
		t.Fatal(err)
	}
	return StartBinary(t, binary, name, args...)
}

// StartBinary is like Start with another program.
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
		_ = m.cmd.Wait() // it is killed, or ends because it lost its lease
		log.Close()
	}()
	t.Cleanup(func() {
		_ = m.cmd.Process.Kill() // it may have ended
		<-m.Done
		if line := crash(m.Log()); line != "" {
			t.Errorf("%s has crashed: %s", m.Name, line)
		}
		if t.Failed() && !m.killed {
			t.Logf("the end of the log of %s:\n%s", m.Name, m.Tail())
		}
	})
	return m
}

// crashed matches a crash of a Go program, a data race, and a panic that controller-runtime
// recovered.
var crashed = regexp.MustCompile(`(?m)^(panic|fatal error): .*|^WARNING: DATA RACE|^.*Observed a panic.*`)

// crash returns the line of a log that shows a crash; "" if there is none. Without this, a test
// that kills and restarts managers would not notice one.
func crash(log string) string { return crashed.FindString(log) }

// AwaitReady waits until it is ready.
func (m *Manager) AwaitReady(t testing.TB) {
	t.Helper()
	select {
	case <-m.Ready:
	case <-m.Done:
		t.Fatalf("%s has ended by itself:\n%s", m.Name, m.Tail())
	case <-time.After(WaitTimeout):
		t.Fatalf("%s is not ready after %v:\n%s", m.Name, WaitTimeout, m.Tail())
	}
}

// AwaitDone waits until it has ended.
func (m *Manager) AwaitDone(t testing.TB) {
	t.Helper()
	select {
	case <-m.Done:
	case <-time.After(WaitTimeout):
		t.Fatalf("%s is still running after %v:\n%s", m.Name, WaitTimeout, m.Tail())
	}
}

// IsReady reports whether it has logged that it is ready, and when.
func (m *Manager) IsReady() (time.Time, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readyAt, !m.readyAt.IsZero()
}

// Signal sends a signal to it.
func (m *Manager) Signal(t testing.TB, signal syscall.Signal) {
	t.Helper()
	signals.Send(t, m.cmd.Process.Pid, signal)
}

// Kill ends it like a power failure. It must still be running.
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

// End kills it if it is still running: a manager gives up at its start if the API is unavailable.
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

// Resident returns its resident memory in bytes.
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

// Log returns its log.
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

// dieWithParent kills the process at the end of the test process, whatever ends that.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
