package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// firmware makes the machine one with an empty disk, which is ready when its QEMU runs.
func (m *machine) firmware() {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.dirs.Image, "root.img"), make([]byte, 1<<20), 0o600); err != nil {
		m.Fatal(err)
	}
	m.definition.Image, m.definition.NoAgent, m.definition.MemoryBytes = true, true, 64<<20
	m.token()
}

// token gives the machine the token of the manager.
func (m *machine) token() {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.dirs.Seed, TokenFile), []byte(token), 0o600); err != nil {
		m.Fatal(err)
	}
}

// sleeps puts the machine to sleep.
func (m *machine) sleeps() Ended {
	m.Helper()
	m.asks(SleepPath)
	ended := m.awaitEnd()
	if ended.Cause != CauseAsleep || ended.SavedBytes == 0 {
		m.Fatalf("it fell asleep as %+v", ended)
	}
	return ended
}

// asks returns the response of the launcher to the manager; empty if it has ended or not begun.
func (m *machine) asks(path string) string {
	m.Helper()
	request, err := http.NewRequestWithContext(m.Context(), http.MethodPost, fmt.Sprintf("http://127.0.0.1:%d%s", m.definition.ReadyPort, path), nil)
	if err != nil {
		m.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	client := manager()
	defer client.CloseIdleConnections() // there may be few of them
	response, err := client.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	raw, _ := io.ReadAll(response.Body)
	return string(raw)
}

// wasWoken reports whether the QEMU of the machine has loaded saved memory.
func (m *machine) wasWoken() bool {
	m.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", m.qemu()))
	if err != nil {
		m.Fatal(err)
	}
	return strings.Contains(string(raw), "\x00-incoming\x00")
}

// hasMemory reports whether there is saved memory, complete or not, or its record.
func (m *machine) hasMemory() bool {
	m.Helper()
	found, err := filepath.Glob(filepath.Join(m.dirs.Disk, "memory*"))
	if err != nil {
		m.Fatal(err)
	}
	return len(found) > 0
}

// kill ends a machine that runs.
func (m *machine) kill() {
	m.Helper()
	signals.Send(m, m.qemu(), syscall.SIGKILL)
	m.awaitEnd()
}

// shows waits until the console has shown a text.
func (m *machine) shows(pattern *regexp.Regexp) (found []string) {
	m.Helper()
	harness.Eventually(m, "the console shows "+pattern.String(), func() bool {
		raw, err := os.ReadFile(m.console)
		found = pattern.FindStringSubmatch(string(raw))
		return err == nil && found != nil
	})
	return found
}

// guestMessage is a message that the default guest writes to the console, also in the midst of a line that is typed.
var guestMessage = regexp.MustCompile(`\r\[ *\d+\.\d+\] keelson: [^\n]*\n`)

// types types a line at the console, and waits until the guest has all of it: QEMU discards what it has not read when the connection is closed.
func (m *machine) types(line string) {
	m.Helper()
	conn, err := net.Dial("unix", filepath.Join(m.dirs.Run, qemu.ConsoleSocket))
	if err != nil {
		m.Fatal(err)
	}
	m.Cleanup(func() { _ = conn.Close() })
	go func() { _, _ = io.Copy(io.Discard, conn) }() // the log has it, too
	if _, err := io.WriteString(conn, line+"\r"); err != nil {
		m.Fatal(err)
	}
	harness.Eventually(m, "the line was typed", func() bool {
		raw, err := os.ReadFile(m.console)
		return err == nil && strings.Contains(guestMessage.ReplaceAllString(string(raw), ""), line+"\r\n")
	})
	if err := conn.Close(); err != nil {
		m.Fatal(err)
	}
}

// Memory that cannot be used is discarded with the reason, and the next launcher boots.
func TestUnusableMemory(t *testing.T) {
	edit := func(change func(*savedmemory.Memory)) func(*machine) error {
		return func(m *machine) error {
			path, saved := filepath.Join(m.dirs.Disk, memoryRecord), savedmemory.Memory{}
			raw, err := os.ReadFile(path)
			if err = errors.Join(err, json.Unmarshal(raw, &saved)); err != nil {
				return err
			}
			change(&saved)
			raw, err = json.Marshal(saved)
			return errors.Join(err, os.WriteFile(path, raw, 0o600))
		}
	}
	write := func(name string, change func([]byte) []byte) func(*machine) error {
		return func(m *machine) error {
			path := filepath.Join(m.dirs.Disk, name)
			raw, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, change(raw), 0o600))
		}
	}
	for name, test := range map[string]struct {
		spoil func(*machine) error
		says  string
	}{
		"missing":           {func(m *machine) error { return os.Remove(filepath.Join(m.dirs.Disk, savedmemory.File)) }, "is missing"},
		"without a record":  {func(m *machine) error { return os.Remove(filepath.Join(m.dirs.Disk, memoryRecord)) }, "does not have it"},
		"a damaged record":  {write(memoryRecord, func(raw []byte) []byte { return raw[:len(raw)/2] }), "memory.json is damaged"},
		"a large record":    {write(memoryRecord, func([]byte) []byte { return make([]byte, maxMemoryRecord+1) }), "memory.json is damaged"},
		"truncated":         {write(savedmemory.File, func(raw []byte) []byte { return raw[:len(raw)/2] }), "bytes instead of"},
		"damaged":           {write(savedmemory.File, func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw }), "memory.zst is damaged"},
		"another QEMU":      {edit(func(s *savedmemory.Memory) { s.QEMU = "6.0.0" }), "QEMU 6.0.0 saved it, and this is"},
		"another processor": {func(m *machine) error { m.definition.CPUModel = "qemu64"; return nil }, "it was saved with the processors"},
		"another device": {func(m *machine) error {
			m.definition.Disks = []Disk{{Name: "data", Bytes: 1 << 20}}
			return os.MkdirAll(filepath.Join(m.dirs.Disks, "data"), 0o700)
		}, "other devices"},
		"the disk has changed": {func(m *machine) error {
			return os.Chtimes(filepath.Join(m.dirs.Disk, "root.qcow2"), time.Time{}, time.Now())
		}, "root.qcow2 has changed since"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.firmware()
			m.run()
			m.awaitReady()
			m.sleeps()
			if err := test.spoil(m); err != nil {
				t.Fatal(err)
			}
			m.definition.Asleep = true
			m.run()
			if ended := m.awaitEnd(); ended.Cause != CauseMemoryLost || !strings.Contains(ended.Message, test.says) {
				t.Errorf("it ended as %+v, want %q", ended, test.says)
			}
			if m.hasMemory() {
				t.Error("its memory is still there")
			}
			m.definition.Asleep = false
			m.run()
			m.awaitReady()
			if m.wasWoken() {
				t.Error("it was woken")
			}
			m.kill()
		})
	}
}

func TestMemoryIsDiscarded(t *testing.T) {
	m := newMachine(t)
	m.firmware()
	m.run()
	m.awaitReady()
	m.sleeps()
	m.definition.Epoch = "next"
	m.run()
	m.awaitReady()
	if m.wasWoken() || m.hasMemory() {
		t.Error("it was woken, or its memory is still there")
	}
	m.kill()
}

// A full volume leaves the machine running, and the next attempt succeeds.
func TestSleepOnAFullVolume(t *testing.T) {
	t.Cleanup(func() { atomicfile.Fault = func(string, string) error { return nil } })
	m := newMachine(t)
	m.firmware()
	m.run()
	m.awaitReady()
	before := m.qemu()
	for _, at := range []string{"write " + savedmemory.Part, "sync " + savedmemory.Part, "create " + memoryRecord, "write " + memoryRecord, "sync " + memoryRecord} {
		atomicfile.Fault = func(operation, path string) error {
			if operation+" "+strings.TrimSuffix(filepath.Base(path), atomicfile.Suffix) == at {
				return syscall.ENOSPC
			}
			return nil
		}
		if refused := m.asks(SleepPath); !strings.Contains(refused, "has no room") || !strings.Contains(refused, "spec.resource.rootDisk") {
			t.Errorf("%s: it does not sleep because of %q", at, refused)
		}
		if m.hasMemory() || m.qemu() != before {
			t.Errorf("%s: it does not run on, or a part of its memory is left over", at)
		}
	}
	atomicfile.Fault = func(string, string) error { return nil }
	m.sleeps()
	m.run()
	m.awaitReady()
	if !m.wasWoken() {
		t.Error("it was not woken")
	}
	m.kill()
}

// Without a root disk there is no volume for the memory.
func TestMachineWithoutDiskDoesNotSleep(t *testing.T) {
	fakeqemu.Install(t)
	m := newMachine(t)
	m.token()
	m.run()
	m.awaitReady()
	if refused := m.asks(SleepPath); !strings.Contains(refused, "has no root disk") {
		t.Errorf("it does not sleep because of %q", refused)
	}
	m.kill()
}

// QEMU that dies while it saves its memory leaves a machine that boots.
func TestQEMUDiesDuringSleep(t *testing.T) {
	for at, cause := range map[string]Cause{"halted": CauseHost, "sleep recorded": CauseAsleep} {
		m := newMachine(t)
		m.firmware()
		m.run()
		m.awaitReady()
		atStep(t, at, func() { signals.Send(t, m.qemu(), syscall.SIGKILL) })
		m.asks(SleepPath)
		if ended := m.awaitEnd(); ended.Cause != cause {
			t.Errorf("killed when it was %s, it ended as %+v", at, ended)
		}
		atSteps.Store(nil)
		m.run()
		m.awaitReady()
		if m.wasWoken() != (cause == CauseAsleep) || m.hasMemory() {
			t.Errorf("killed when it was %s, it goes on: %t; memory is left over: %t", at, m.wasWoken(), m.hasMemory())
		}
		m.kill()
	}
}

// A machine that sleeps when it is evicted does so when its Pod is deleted, unless it is to be powered off, or cannot sleep.
func TestEvictedMachineSleeps(t *testing.T) {
	fakeqemu.Install(t)
	testEvictedMachineSleeps(t)
}

func TestLongEvictedMachineSleeps(t *testing.T) { testEvictedMachineSleeps(t) }

func testEvictedMachineSleeps(t *testing.T) {
	t.Helper()
	t.Cleanup(func() { atomicfile.Fault = func(string, string) error { return nil } })
	m := newMachine(t)
	m.token()
	m.definition.DiskBytes, m.definition.SleepWhenEvicted = 64<<20, true
	m.run()
	m.awaitReady()
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseAsleep || ended.SavedBytes == 0 {
		t.Fatalf("it was evicted, and ended as %+v", ended)
	}
	m.run()
	m.awaitReady()
	if !m.wasWoken() {
		t.Error("it was not woken")
	}
	if response := m.call(manager(), PowerOffPath, token, nil); response.StatusCode != http.StatusOK {
		t.Errorf("the announcement: %s", response.Status)
	}
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost || m.hasMemory() {
		t.Errorf("it was powered off, and ended as %+v", ended)
	}
	m.run()
	m.awaitReady()
	atomicfile.Fault = func(operation, path string) error {
		if operation+" "+filepath.Base(path) == "write "+savedmemory.Part {
			return syscall.ENOSPC
		}
		return nil
	}
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost || m.hasMemory() {
		t.Errorf("its volume is full, and it ended as %+v", ended)
	}
}
