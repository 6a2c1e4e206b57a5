package launcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
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
func TestLongSnapshotFreezesTheGuest(t *testing.T) {
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

// The launcher freezes the guest, records that it owes the end of that, and thaws it.
func TestSnapshotOfAGuestWithAnAgent(t *testing.T) {
	fakeqemu.Install(t)
	m := newMachine(t)
	m.definition.DiskBytes = 8 << 20
	m.run()
	m.awaitReady()
	owed := false
	atStep(t, "guest frozen", func() { owed = m.launcher.owner.Load().Record().Owed.Thaw })
	if taken := m.takes(); !taken.Quiesced || !owed || m.launcher.owner.Load().Record().Owed.Thaw {
		t.Errorf("it is %+v; recorded while it was frozen: %t", taken, owed)
	}
	m.nothingLeft()
	m.kill()
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
			go func() { m.asks(SleepPath); close(asked) }()
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
