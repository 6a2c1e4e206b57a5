package launcher

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A snapshot with memory has the memory and the disks of one moment: a machine that gets both goes on.
func TestLongSnapshotWithMemory(t *testing.T) {
	m := newMachine(t)
	m.token()
	m.definition.DiskBytes = 64 << 20
	m.runsOnDisk()
	m.types("kept=it-is-$((40+2)); echo precious-1 >/root/file")
	run := m.qemu()
	taken := m.takesMemory()
	if taken.Memory == nil || taken.Memory.Size == 0 || taken.Quiesced {
		t.Fatalf("it is %+v", taken)
	}
	m.nothingLeft()
	m.types("echo $kept; echo later >/root/file; echo on-$((40+2))")
	m.shows(regexp.MustCompile("on-42"))
	if m.qemu() != run {
		t.Error("it does not run on")
	}
	m.kill()
	m.goesOnWith(taken)
	m.types("echo after-$kept-$(cat /root/file)")
	m.shows(regexp.MustCompile("after-it-is-42-precious-1"))
	m.sleeps()
	asleep := m.takesMemory()
	if asleep.Memory == nil || asleep.Memory.SHA256 == taken.Memory.SHA256 {
		t.Errorf("asleep, it is %+v", asleep)
	}
	m.goesOnWith(asleep)
	m.types("echo again-$kept")
	m.shows(regexp.MustCompile("again-it-is-42"))
	m.kill()
	// It is off.
	job := m.taking()
	job.Take.Memory, m.dirs.Snapshot = true, t.TempDir()
	if result := RunJob(t.Context(), job, m.dirs, io.Discard); !strings.Contains(result.Error, "is not asleep") {
		t.Errorf("off, it is %+v", result)
	}
}

// The same without a guest that says so: what is loaded is what was taken.
func TestSnapshotWithMemory(t *testing.T) {
	fakeqemu.Install(t)
	m := newMachine(t)
	m.token()
	m.definition.DiskBytes = 8 << 20
	m.run()
	m.awaitReady()
	run := m.qemu()
	taken := m.takesMemory()
	if taken.Memory == nil || taken.Memory.Size == 0 || taken.Quiesced || m.qemu() != run {
		t.Fatalf("it is %+v, and the machine runs as %d, was %d", taken, m.qemu(), run)
	}
	m.nothingLeft()
	m.kill()
	m.goesOnWith(taken)
	m.sleeps()
	m.goesOnWith(m.takesMemory())
	m.kill()
	job := m.taking()
	job.Take.Memory, m.dirs.Snapshot = true, t.TempDir()
	if result := RunJob(t.Context(), job, m.dirs, io.Discard); !strings.Contains(result.Error, "is not asleep") {
		t.Errorf("off, it is %+v", result)
	}
}

// takesMemory takes a snapshot with memory.
func (m *machine) takesMemory() *Taken {
	m.Helper()
	m.dirs.Snapshot = m.TempDir()
	job := m.taking()
	job.Take.Memory = true
	result := RunJob(m.Context(), job, m.dirs, io.Discard)
	if result.Error != "" {
		m.Fatal(result.Error)
	}
	return result.Taken
}

// goesOnWith runs the machine with the disk and the memory of a snapshot.
func (m *machine) goesOnWith(taken *Taken) {
	m.Helper()
	for from, to := range map[string]string{SnapshotFile("root"): m.dirs.diskPath("root"), savedmemory.File: filepath.Join(m.dirs.Disk, savedmemory.File)} {
		if err := diskbackup.CopySparse(m.Context(), filepath.Join(m.dirs.Snapshot, from), emptyFile(m.T, to), func(int64) {}); err != nil {
			m.Fatal(err)
		}
	}
	saved := savedMemory{Memory: *taken.Memory, Epoch: m.definition.Epoch}
	var err error
	if saved.Files, err = savedmemory.Stamp(m.dirs.Disk, []string{m.dirs.diskPath("root")}); err != nil {
		m.Fatal(err)
	}
	raw, err := json.Marshal(saved)
	if err = errors.Join(err, os.WriteFile(filepath.Join(m.dirs.Disk, memoryRecord), raw, 0o600)); err != nil {
		m.Fatal(err)
	}
	m.definition.ReadyPort = int32(harness.FreeAddress(m.T).Port())
	m.run()
	m.awaitReady()
	if !m.wasWoken() {
		m.Error("it has booted")
	}
}

// A machine that is halted for a snapshot is powered off when its Pod is deleted, and one that is paused stays so.
func TestStopDuringASnapshotWithMemory(t *testing.T) {
	fakeqemu.Install(t)
	testStopDuringASnapshotWithMemory(t)
}

func TestLongStopDuringASnapshotWithMemory(t *testing.T) { testStopDuringASnapshotWithMemory(t) }

func testStopDuringASnapshotWithMemory(t *testing.T) {
	t.Helper()
	m := newMachine(t)
	m.token()
	m.definition.DiskBytes = 64 << 20
	m.run()
	m.awaitReady()
	if response := m.call(manager(), PausePath, token, nil); response.StatusCode != http.StatusOK {
		t.Fatalf("the pause: %s", response.Status)
	}
	m.takesMemory()
	var status struct{ Status string }
	if err := m.launcher.monitor().Run(t.Context(), "query-status", nil, &status); err != nil || status.Status != "paused" {
		t.Errorf("after a snapshot, the paused machine is %q, %v", status.Status, err)
	}
	if response := m.call(manager(), ResumePath, token, nil); response.StatusCode != http.StatusOK {
		t.Fatalf("it goes on: %s", response.Status)
	}
	var poweredOff atomic.Bool
	interrupted := make(chan struct{})
	once := sync.OnceFunc(func() { close(interrupted) })
	hook := func(name string) {
		switch name {
		case "halted for a snapshot":
			m.stop()
			<-interrupted
		case "copy interrupted":
			once()
		case "guest ended":
			poweredOff.Store(true)
		}
	}
	t.Cleanup(func() { atSteps.Store(nil) })
	atSteps.Store(&hook)
	job := m.taking()
	job.Take.Memory, m.dirs.Snapshot = true, t.TempDir()
	if result := RunJob(t.Context(), job, m.dirs, io.Discard); !strings.Contains(result.Error, "being powered off") {
		t.Errorf("the snapshot is %+v", result)
	}
	if ended := m.awaitEnd(); ended.Cause != CauseHost || ended.Message != "its Pod was stopped" {
		t.Errorf("it ended as %+v", ended)
	}
	if !poweredOff.Load() {
		t.Error("the guest was not powered off")
	}
}
