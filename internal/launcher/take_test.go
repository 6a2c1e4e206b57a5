package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// withData makes the machine one with an empty disk and another one, which is ready when its QEMU runs.
func (m *machine) withData() {
	m.Helper()
	m.firmware()
	m.definition.DiskBytes, m.definition.Disks = 8<<20, []Disk{{Name: "data", Bytes: 4 << 20}}
	if err := os.MkdirAll(filepath.Join(m.dirs.Disks, "data"), 0o700); err != nil {
		m.Fatal(err)
	}
}

// taking is the job that takes a snapshot of the machine.
func (m *machine) taking() Job {
	var names []string
	for _, disk := range m.definition.AllDisks() {
		names = append(names, disk.Name)
	}
	return Job{Take: &Take{Disks: names}}
}

// takes takes a snapshot, on another volume than the last one.
func (m *machine) takes() *Taken {
	m.Helper()
	m.dirs.Snapshot = m.TempDir()
	return m.takesAgain()
}

// takesAgain takes a snapshot on the same volume.
func (m *machine) takesAgain() *Taken {
	m.Helper()
	result := RunJob(m.Context(), m.taking(), m.dirs, io.Discard)
	if result.Error != "" {
		m.Fatal(result.Error)
	}
	return result.Taken
}

// fill writes bytes at the beginning of a disk of the running machine, as its guest would do.
func (m *machine) fill(disk string, with byte) {
	m.Helper()
	monitor := m.launcher.monitor()
	var devices []struct{ Name, Type string }
	if err := monitor.Run(m.Context(), "qom-list", map[string]any{"path": "/machine/peripheral"}, &devices); err != nil {
		m.Fatal(err)
	}
	for _, device := range devices {
		path, serial := "/machine/peripheral/"+device.Name, ""
		if device.Type != "child<virtio-blk-pci>" {
			continue
		}
		if err := monitor.Run(m.Context(), "qom-get", map[string]any{"path": path, "property": "serial"}, &serial); err != nil || serial != disk {
			continue
		}
		for _, command := range []string{fmt.Sprintf("write -P %d 0 256k", with), "flush"} {
			var output string
			line := fmt.Sprintf("qemu-io -d %s/virtio-backend %q", path, command)
			err := monitor.Run(m.Context(), "human-monitor-command", map[string]any{"command-line": line}, &output)
			if output = strings.TrimSpace(output); err != nil || output != "" {
				m.Fatalf("%s to the disk %s: %s, %v", command, disk, output, err)
			}
		}
		return
	}
	m.Fatalf("there is no disk %s", disk)
}

// checkTaken checks the beginning of a disk in the snapshot, which has a size.
func (m *machine) checkTaken(disk string, with byte, size int64) {
	m.Helper()
	path := filepath.Join(m.dirs.Snapshot, SnapshotFile(disk))
	raw := filepath.Join(m.TempDir(), "raw")
	for _, words := range [][]string{{"check", "-q", path}, {"convert", "-O", "raw", path, raw}} {
		if out, err := exec.Command("qemu-img", words...).CombinedOutput(); err != nil {
			m.Fatalf("qemu-img %s: %v: %s", strings.Join(words, " "), err, out)
		}
	}
	content, err := os.ReadFile(raw)
	if err != nil || int64(len(content)) != size || !bytes.Equal(content[:256<<10], bytes.Repeat([]byte{with}, 256<<10)) {
		m.Errorf("the copy of %s has %d bytes and begins with %x, want %d bytes of %x, %v", disk, len(content), content[0], size, with, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		m.Errorf("the copy is %+v, %v", info, err)
	}
}

// nothingLeft checks that the QEMU of the machine has nothing of a copy.
func (m *machine) nothingLeft() {
	m.Helper()
	harness.Eventually(m, "QEMU has nothing of a copy", func() bool {
		left, err := diskbackup.Left(m.Context(), m.launcher.monitor())
		return err == nil && len(left) == 0
	})
}

// A snapshot of a machine that runs has its disks as they were at one moment; one of a machine that is asleep or off has its files.
func TestSnapshotOfAMachine(t *testing.T) {
	m := newMachine(t)
	m.withData()
	m.run()
	m.awaitReady()
	m.fill("root", 1)
	m.fill("data", 2)
	atStep(t, "backup begun", func() { m.fill("root", 3); m.fill("data", 4) })
	taken := m.takes()
	if want := []Disk{{Name: "root", Bytes: 8 << 20}, {Name: "data", Bytes: 4 << 20}}; !slices.Equal(taken.Disks, want) || taken.At.IsZero() || taken.AllocatedBytes == 0 || taken.Quiesced {
		t.Errorf("it has %+v", taken)
	}
	atSteps.Store(nil)
	m.checkTaken("root", 1, 8<<20)
	m.checkTaken("data", 2, 4<<20)
	m.nothingLeft()
	if again := m.takesAgain(); !again.At.Equal(taken.At) {
		t.Errorf("taken again, it is of %v instead of %v", again.At, taken.At)
	}
	m.takes()
	m.checkTaken("root", 3, 8<<20)
	m.sleeps()
	m.takes()
	m.checkTaken("data", 4, 4<<20)
	m.run()
	m.awaitReady()
	if !m.wasWoken() {
		t.Error("after the snapshot, it did not go on")
	}
	m.kill()
	m.takes()
	m.checkTaken("root", 3, 8<<20)
}

// The file systems of a guest are frozen while the copy begins, so that what was written is in the snapshot, and the guest writes on.
func TestSnapshotFreezesTheGuest(t *testing.T) {
	m := newMachine(t)
	m.definition.DiskBytes = 64 << 20
	m.runsOnDisk()
	m.types("echo precious-1 >/root/file; echo written-$((40+2))")
	m.shows(regexp.MustCompile("written-42"))
	wasFrozen := false
	atStep(t, "guest frozen", func() {
		wasFrozen = true
		m.types("echo later >/root/file; echo changed-$((40+2))")
	})
	taken := m.takes()
	if !taken.Quiesced || !wasFrozen || m.launcher.owner.Load().Record().Owed.Thaw {
		t.Errorf("it is %+v; frozen: %t", taken, wasFrozen)
	}
	m.shows(regexp.MustCompile("changed-42"))
	m.nothingLeft()
	m.kill()

	other := newMachine(t)
	other.definition.DiskBytes, other.definition.UID = 64<<20, "0b5b4d8e-0000-4000-8000-0000000000bc"
	if err := diskbackup.CopySparse(t.Context(), filepath.Join(m.dirs.Snapshot, SnapshotFile("root")), emptyFile(t, other.dirs.diskPath("root")), func(int64) {}); err != nil {
		t.Fatal(err)
	}
	other.runsOnDisk()
	other.types("echo on-$(cat /root/file)")
	other.shows(regexp.MustCompile("on-precious-1"))
	other.kill()
}

func emptyFile(t *testing.T, path string) string {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A snapshot that cannot be taken says why, and leaves the machine as it is.
func TestSnapshotFails(t *testing.T) {
	m := newMachine(t)
	m.withData()
	fails := func(says string) {
		t.Helper()
		m.dirs.Snapshot = t.TempDir()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if result := RunJob(ctx, m.taking(), m.dirs, io.Discard); !strings.Contains(result.Error, says) || result.Taken != nil {
			t.Errorf("it is %+v, want %q", result, says)
		}
		if _, err := os.Stat(filepath.Join(m.dirs.Snapshot, takenFile)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it counts as taken: %v", err)
		}
	}
	fails("was not made yet: start the machine")
	m.run()
	m.awaitReady()
	before := m.qemu()
	asked, interrupted := make(chan struct{}), make(chan struct{})
	hook := func(name string) {
		switch name {
		case "backup begun":
			go func() { m.requestSleep(); close(asked) }()
			<-interrupted
		case "copy interrupted":
			close(interrupted)
		}
	}
	t.Cleanup(func() { atSteps.Store(nil) })
	atSteps.Store(&hook)
	fails("falling asleep")
	atSteps.Store(nil)
	<-asked
	if ended := m.awaitEnd(); ended.Cause != CauseAsleep {
		t.Fatalf("it ended as %+v", ended)
	}
	m.run()
	m.awaitReady()
	if !m.wasWoken() || before == m.qemu() {
		t.Error("it did not sleep")
	}
	// Others than a Take get nothing.
	conn, err := net.Dial("unix", filepath.Join(m.dirs.Disk, takeSocket))
	if err != nil {
		t.Fatal(err)
	}
	if err := sendFiles(conn.(*net.UnixConn), nil); err != nil {
		t.Fatal(err)
	}
	if raw, err := io.ReadAll(conn); err != nil || !strings.Contains(string(raw), "0 files were received for 2 disks") {
		t.Errorf("it answers %s, %v", raw, err)
	}
	m.takes()
	m.nothingLeft()
	m.kill()
	if _, err := os.Stat(filepath.Join(m.dirs.Disk, takeSocket)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its socket is left over: %v", err)
	}
}

// A snapshot with memory has the memory and the disks of one moment: a machine that gets both goes on.
func TestSnapshotWithMemory(t *testing.T) {
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
	interrupted := make(chan struct{})
	once := sync.OnceFunc(func() { close(interrupted) })
	hook := func(name string) {
		switch name {
		case "halted for a snapshot":
			m.stop()
			<-interrupted
		case "copy interrupted":
			once()
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
	if raw, err := os.ReadFile(m.console); err != nil || !strings.Contains(string(raw), "Power down") {
		t.Errorf("the guest was not powered off: %v", err)
	}
}
