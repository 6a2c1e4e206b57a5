package launcher

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// checkOften shortens the interval of checks for a test.
func checkOften(t *testing.T) {
	t.Helper()
	before := owner.CheckInterval
	owner.CheckInterval = 50 * time.Millisecond
	t.Cleanup(func() { owner.CheckInterval = before })
}

// mountSmall makes a folder a file system of a size.
func mountSmall(t *testing.T, dir, size string) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mounting a small volume needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// guest returns what the launcher says about the guest.
func (m *machine) guest() Guest {
	m.Helper()
	client := manager()
	defer client.CloseIdleConnections() // there may be few of them
	response := m.call(client, GuestPath, token, nil)
	defer response.Body.Close() //nolint:errcheck // it was only read
	var guest Guest
	if err := json.NewDecoder(response.Body).Decode(&guest); err != nil || response.StatusCode != http.StatusOK {
		m.Fatalf("%s: %s, %v", GuestPath, response.Status, err)
	}
	return guest
}

// isReady reports what a probe finds.
func (m *machine) isReady() bool {
	ready, _, _ := m.launcher.ready.get()
	return ready
}

// recorder keeps what is written.
type recorder struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.Write(p)
}

func (r *recorder) count(text string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Count(r.text.String(), text)
}

// fillUp writes to a file until its file system is full.
func fillUp(t *testing.T, path string) {
	t.Helper()
	file, err := os.Create(path)
	for block := make([]byte, 64<<10); err == nil; {
		_, err = file.Write(block)
	}
	if file.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
}

// A volume that is full halts the guest, which goes on when there is room and has seen no error. One whose Pod is stopped meanwhile waits for
// room, too, to power off.
func TestLongFullVolume(t *testing.T) {
	checkOften(t)
	m := newMachine(t)
	m.token()
	data := filepath.Join(m.dirs.Disks, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	mountSmall(t, data, "64M")
	var log recorder
	m.messages = &log
	m.definition.DiskBytes, m.definition.Disks = 64<<20, []Disk{{Name: "data", Bytes: 256 << 20}}
	m.run()
	m.awaitReady()
	filler := filepath.Join(data, "filler")
	fillUp(t, filler)
	isHalted := func() bool { return strings.Contains(m.guest().Halted, "the volume of the data disk is full") }
	m.types("dd if=/dev/zero of=/dev/vdc bs=1M count=20 conv=fsync; echo first-$((40+2))")
	harness.Eventually(t, "the guest is halted", isHalted)
	if m.isReady() {
		t.Error("a guest that is halted is ready")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	m.shows(regexp.MustCompile("first-42"))
	harness.Eventually(t, "it is not halted any more", func() bool { return m.guest().Halted == "" })
	m.awaitReady()

	fillUp(t, filler)
	m.types("dd if=/dev/zero of=/dev/vdc bs=1M seek=20 count=20; echo x")
	harness.Eventually(t, "the guest is halted", isHalted)
	m.stop()
	if err := os.Truncate(filler, 1<<20); err != nil {
		t.Fatal(err)
	}
	if ended := m.awaitEnd(); ended.Cause != CauseHost || ended.Message != "its Pod was stopped" {
		t.Errorf("it ended as %+v", ended)
	}
	raw, err := os.ReadFile(m.console)
	if err != nil || strings.Contains(string(raw), "I/O error") || !strings.Contains(string(raw), "Power down") {
		t.Errorf("the guest saw an error, or was not powered off, %v: %s", err, raw)
	}
	for text, want := range map[string]int{"data disk is full": 2, "it goes on": 1} {
		if got := log.count(text); got < want || got > 2 {
			t.Errorf("the log says %d times that %s: %s", got, text, log.text.String())
		}
	}
}

// A QEMU that does not answer makes the guest not ready, and is killed when its Pod is stopped.
func TestLongQEMUDoesNotAnswer(t *testing.T) {
	checkOften(t)
	m := newMachine(t)
	m.firmware()
	m.run()
	m.awaitReady()
	pid := m.qemu()
	signals.Send(t, pid, syscall.SIGSTOP)
	harness.Eventually(t, "it is not ready", func() bool { return !m.isReady() })
	if got := m.guest().Halted; got != notAnswering {
		t.Errorf("it is halted because of %q", got)
	}
	signals.Send(t, pid, syscall.SIGCONT)
	harness.Eventually(t, "it is ready again", m.isReady)
	signals.Send(t, pid, syscall.SIGSTOP)
	began := time.Now()
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost || !strings.Contains(ended.Message, "did not answer") || m.qemu() != 0 {
		t.Errorf("it ended as %+v", ended)
	}
	t.Logf("it ended after %v", time.Since(began))
}

// One that has never answered is killed, too.
func TestQEMUDoesNotStart(t *testing.T) {
	m := newMachine(t)
	programs := t.TempDir()
	if err := os.WriteFile(filepath.Join(programs, program), []byte("#!/bin/sh\nexec sleep 1000\n"), 0o700); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+string(os.PathListSeparator)+os.Getenv("PATH"))
	m.run()
	harness.Eventually(t, "it has started", func() bool {
		_, err := os.Stat(filepath.Join(m.dirs.Run, qemu.MonitorSocket))
		return err == nil
	})
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost || !strings.Contains(ended.Message, "did not answer") {
		t.Errorf("it ended as %+v", ended)
	}
}

func TestFullMessage(t *testing.T) {
	for name, test := range map[string]struct {
		disks     []string
		ephemeral bool
		says      []string
	}{
		"the root disk":   {[]string{qemu.RootDisk}, false, []string{"the volume of the root disk is full", "16 MiB", "spec.resource.rootDisk"}},
		"two other disks": {[]string{"a", "b"}, false, []string{"the a disk and the b disk", "increase its size in spec.disks,"}},
		"ephemeral":       {[]string{qemu.RootDisk}, true, []string{"free space on its node"}},
	} {
		l := &launcher{definition: Definition{DiskBytes: 1, Disks: []Disk{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Ephemeral: test.ephemeral}}
		var nodes []string
		for _, disk := range test.disks {
			nodes = append(nodes, qemu.DiskNode(disk))
		}
		got := l.fullMessage(nodes)
		for _, want := range test.says {
			if !strings.Contains(got, want) {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		if test.ephemeral && strings.Contains(got, "spec.") {
			t.Errorf("%s: %q", name, got)
		}
	}
}
