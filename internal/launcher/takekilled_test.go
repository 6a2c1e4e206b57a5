package launcher

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
)

// A Take that is killed at any step leaves nothing in the machine, which runs on, and is followed by one that takes the snapshot. One that
// was complete is not taken again.
func TestLongTakeKilledAtEveryStep(t *testing.T) { testTakeKilledAtEveryStep(t) }

func TestTakeKilledAtEveryStep(t *testing.T) {
	fakeqemu.Install(t)
	testTakeKilledAtEveryStep(t)
}

func testTakeKilledAtEveryStep(t *testing.T) {
	for _, way := range []struct{ runs, memory bool }{{true, false}, {false, false}, {true, true}} {
		runs := way.runs
		m := newMachine(t)
		m.withData()
		m.run()
		m.awaitReady()
		m.fill("root", 1)
		pid := m.qemu()
		if !runs {
			m.kill()
		}
		job := m.taking()
		job.Take.Memory = way.memory
		take := func(at string) []string {
			m.dirs.Snapshot = t.TempDir()
			return m.begin(helper{Dirs: m.dirs, Step: strings.ReplaceAll(at, "-", " "), Job: &job}).steps()
		}
		steps := take("")
		t.Logf("steps are %q", steps)
		if len(steps) < 4 {
			t.Fatal("too few")
		}
		for _, at := range slices.Compact(steps) {
			take(at)
			began := time.Now()
			taken := m.takesAgain()
			m.checkTaken("root", 1, 8<<20)
			if isOld, want := taken.At.Before(began), at == "snapshot-taken"; isOld != want {
				t.Errorf("killed at %q, it was taken before: %t, want %t", at, isOld, want)
			}
			if runs {
				m.nothingLeft()
			}
			if runs && m.qemu() != pid {
				t.Errorf("killed at %q, the machine does not run on", at)
			}
		}
		if runs {
			m.kill()
		}
	}
}

// A launcher that is killed with its QEMU at any step while a snapshot is taken leaves disks of which the next attempt takes it.
func TestLongLauncherKilledDuringASnapshot(t *testing.T) { testLauncherKilledDuringASnapshot(t) }

func TestLauncherKilledDuringASnapshot(t *testing.T) {
	fakeqemu.Install(t)
	testLauncherKilledDuringASnapshot(t)
}

func testLauncherKilledDuringASnapshot(t *testing.T) {
	m := newMachine(t)
	m.withData()
	m.run()
	m.awaitReady()
	m.fill("root", 1)
	m.kill()
	for _, memory := range []bool{false, true} {
		job := m.taking()
		job.Take.Memory = memory
		run := func(at string) []string {
			m.dirs.Snapshot = t.TempDir()
			p := m.begin(helper{Definition: m.definition, Dirs: m.dirs, Step: strings.ReplaceAll(at, "-", " ")})
			p.awaitReady()
			if result := RunJob(t.Context(), job, m.dirs, io.Discard); (result.Error == "") != (at == "") {
				t.Errorf("with a launcher that is killed at %q, it is %+v", at, result)
			}
			if at == "" {
				p.kill()
			}
			return p.steps()
		}
		steps := run("")
		steps = steps[max(0, slices.Index(steps, "files-received")):] // before it, the machine starts
		t.Logf("steps are %q", steps)
		if len(steps) < 4 {
			t.Fatal("too few")
		}
		for _, at := range slices.Compact(steps) {
			run(at)
			m.takesAgain()
			m.checkTaken("root", 1, 8<<20)
		}
	}
	m.run()
	m.awaitReady()
	m.kill()
}
