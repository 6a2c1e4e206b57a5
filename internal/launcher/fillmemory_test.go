package launcher

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
)

// remembered copies the disk and the memory of the machine, which is asleep, to a snapshot, and returns a restore from it.
func (m *machine) remembered() *Fill {
	m.Helper()
	raw, err := os.ReadFile(filepath.Join(m.dirs.Disk, memoryRecord))
	var saved savedmemory.Memory
	err = errors.Join(err, json.Unmarshal(raw, &saved), os.MkdirAll(m.dirs.Snapshot, 0o700))
	for from, to := range map[string]string{m.dirs.diskPath(qemu.RootDisk): SnapshotFile(qemu.RootDisk), filepath.Join(m.dirs.Disk, savedmemory.File): savedmemory.File} {
		err = errors.Join(err, diskbackup.CopySparse(m.Context(), from, filepath.Join(m.dirs.Snapshot, to), func(int64) {}))
	}
	if err != nil {
		m.Fatal(err)
	}
	saved.Files = nil
	return &Fill{Disks: []Disk{{Name: qemu.RootDisk}}, From: []string{qemu.RootDisk}, Memory: &saved}
}

// A machine that is restored with memory goes on with it once. If the restore is killed at any step, it boots, or goes on with the memory and
// the disk of the snapshot.
func TestLongRestoreWithMemoryKilledAtEveryStep(t *testing.T) {
	testRestoreWithMemoryKilledAtEveryStep(t)
}

func TestRestoreWithMemoryKilledAtEveryStep(t *testing.T) {
	fakeqemu.Install(t)
	testRestoreWithMemoryKilledAtEveryStep(t)
}

func testRestoreWithMemoryKilledAtEveryStep(t *testing.T) {
	m := newMachine(t)
	m.firmware()
	m.run()
	m.awaitReady()
	m.sleeps()
	fill := m.remembered()
	wakes := func(want bool) {
		t.Helper()
		m.run()
		m.awaitReady()
		if m.wasWoken() != want {
			t.Errorf("it goes on with its memory: %t, want %t", m.wasWoken(), want)
		}
		if m.hasMemory() {
			t.Error("its memory is left over")
		}
		m.kill()
	}
	wakes(true)
	restore := func(token, at string) []string {
		t.Helper()
		fill.Token, fill.Epoch = token, m.definition.Epoch
		return m.begin(helper{Dirs: m.dirs, Job: &Job{Fill: fill}, Step: at}).steps()
	}
	steps := restore("first", "")
	t.Logf("steps are %q", steps)
	wakes(true)
	isDecided := false
	for _, at := range slices.Compact(steps) {
		t.Log(at)
		isDecided = isDecided || at == "restore-decided"
		m.definition.Epoch += "next"
		restore(at, strings.ReplaceAll(at, "-", " "))
		wakes(isDecided)
		restore(at, "")
		wakes(!isDecided) // or it was done
	}
	if !isDecided {
		t.Error("no restore was decided")
	}
}
