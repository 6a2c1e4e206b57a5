package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// sleeps puts the machine of the test to sleep.
func (w *fixture) sleeps() *backend.Server {
	w.Helper()
	w.do(w.driver.Sleep(w.Context(), backend.Identity{UID: uid}, backend.SleepOptions{}))
	return w.eventually("it is asleep", is(backend.StateAsleep))
}

// stepHook is what happens at a step of the driver's work, while the driver works.
type stepHook struct{ at atomic.Pointer[func(string)] }

// hookSteps returns the hook of a test. It comes before the driver of the test, and is removed after it.
func hookSteps(t *testing.T) *stepHook {
	t.Helper()
	var hook stepHook
	hook.clear()
	before := step
	step = func(name string) { (*hook.at.Load())(name) }
	savedmemory.Step, diskbackup.Step, owner.Step = step, step, step
	t.Cleanup(func() { step, savedmemory.Step, diskbackup.Step, owner.Step = before, before, before, before })
	return &hook
}

func (h *stepHook) set(at string, do func()) {
	h.at.Store(new(func(name string) {
		if name == at {
			do()
		}
	}))
}

func (h *stepHook) clear() { h.at.Store(new(func(string) {})) }

// wasWoken reports whether the QEMU of the machine has loaded saved memory.
func (w *fixture) wasWoken() bool {
	w.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", w.pid(w.T, uid)))
	w.do(err)
	return strings.Contains(string(raw), "\x00-incoming\x00")
}

// memoryPath is the saved memory of the machine of the test.
func (w *fixture) memoryPath() string {
	return filepath.Join(w.driver.machinesDir(), string(uid), savedmemory.File)
}

// hasMemory reports whether there is a file of saved memory, complete or not.
func (w *fixture) hasMemory() bool {
	w.Helper()
	found, err := filepath.Glob(w.memoryPath() + "*")
	w.do(err)
	return len(found) > 0
}

// A guest sees changes of its running machine, and goes on after it was paused or asleep: its programs, its memory, its open files and
// what was plugged; its clock is right, and its address the same.
func TestLongGuestSeesChangesAndGoesOnAfterSleep(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	machine := booted(func(m *backend.Machine) {
		m.DiskBytes, m.SleepsAtShutdown = 64<<20, true
		m.Disks = []backend.Disk{{Name: "data", SizeBytes: 16 << 20}}
		m.Ports = []v1alpha1.Port{{Name: "ssh", Port: 22, Protocol: v1alpha1.ProtocolTCP}}
	})
	w.run(machine)
	w.shell()
	before := w.server()
	w.typed("exec 9>/root/open; n=0; while sleep 0.1; do n=$((n+1)); echo $n >/tmp/next; mv /tmp/next /tmp/count; done & echo $$ >/tmp/shell; echo ready-$((40+2))")
	w.shows("ready-42")
	w.seesChanges(&machine)

	began := time.Now()
	asleep := w.sleeps()
	t.Logf("asleep after %v, %d bytes", time.Since(began), asleep.SavedBytes)
	info, err := os.Stat(w.memoryPath())
	w.do(err)
	if info.Size() != asleep.SavedBytes || info.Mode().Perm() != 0o600 {
		t.Errorf("its memory has %d bytes and the mode %v, want %d and 0600", info.Size(), info.Mode(), asleep.SavedBytes)
	}
	w.noProcess()
	w.open()
	w.eventually("a new manager observes that it is asleep", is(backend.StateAsleep))
	const nap = 3 * time.Second
	time.Sleep(nap) //nolint:forbidigo // the clock of the guest stands still

	began = time.Now()
	awake := w.starts(machine)
	w.eventually("the guest answers", answers)
	t.Logf("it answers after %v", time.Since(began))
	if w.hasMemory() {
		t.Error("its memory was used and is still there")
	}
	if !slices.Equal(awake.Addresses[:1], before.Addresses[:1]) || !slices.Equal(awake.Endpoints, before.Endpoints) {
		t.Errorf("it is at %v and %v, was at %v and %v", awake.Addresses, awake.Endpoints, before.Addresses, before.Endpoints)
	}
	w.goesOn(1)
	asked := time.Now()
	w.typed("echo clock-$(date +%s)-")
	clock := regexp.MustCompile(`clock-(\d+)-`)
	w.eventually("the console shows its clock", func(*backend.Server) bool { return clock.MatchString(w.serial()) })
	guest, err := strconv.ParseInt(clock.FindStringSubmatch(w.serial())[1], 10, 64)
	w.do(err)
	if late := asked.Sub(time.Unix(guest+1, 0)); late > time.Second || time.Until(time.Unix(guest, 0)) > time.Second {
		t.Errorf("its clock is %v late", late) // it shows whole seconds
	}
	w.typed("head -c 5 /dev/disk/by-id/virtio-more | sed s/^/disk-/; " + hasMemoryOf250 + "; echo end-$((40+2))")
	w.shows("disk-there")
	w.shows("end-42")
	// It sleeps again while its host is off, and shuts down cleanly after that.
	if server := w.shutDown(StopOptions{SleepTimeout: time.Minute}); server.State != backend.StateAsleep {
		t.Errorf("after the shutdown of its host it is %+v, ended %+v", server, server.Ended)
	}
	w.starts(machine)
	w.eventually("the guest answers", answers)
	w.goesOn(2)
	w.do(w.driver.Stop(t.Context(), machine.Identity, time.Minute))
	w.eventually("it is off", is(backend.StateStopped))
	w.checkDisks()
	w.remove()
}

// goesOn checks that the shell of the guest, its background job and its open file are those from before the machine slept for the nth
// time.
func (w *fixture) goesOn(n int) {
	w.Helper()
	w.reconnect()
	w.typed("a=$(cat /tmp/count); sleep 1; [ $(cat /tmp/count) -gt $a ] && [ $$ = $(cat /tmp/shell) ] && echo hello >&9 && grep -c hello /root/open | sed s/^/goes-on-/")
	w.shows(fmt.Sprintf("goes-on-%d", n))
}

// reconnect connects to the console of the machine again.
func (w *fixture) reconnect() {
	w.Helper()
	console, err := w.driver.Console(w.Context(), backend.Identity{UID: uid})
	w.do(err)
	w.Cleanup(func() { _ = console.Close() })
	go func() { _, _ = io.Copy(io.Discard, console) }() // the log has it, too
	w.console = console
}

// A machine whose hardware is not that of its next start is not put to sleep, because it could not wake. It runs on.
func TestMachineThatCouldNotWakeDoesNotSleep(t *testing.T) {
	w := newFixture(t)
	machine := w.firmware()
	run := w.run(machine).Run
	w.driver.machines[uid].def.Shape = "another"
	w.do(w.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
	w.eventually("the attempt has failed", is(backend.StateRunning))
	err := w.driver.Sleep(w.Context(), machine.Identity, backend.SleepOptions{})
	if err == nil || errors.Is(err, backend.ErrInProgress) {
		t.Fatalf("Sleep after an attempt that failed: %v", err)
	}
	if !strings.Contains(err.Error(), "spec.restartRequestedAt") {
		t.Errorf("Sleep: %v", err)
	}
	if server := w.eventually("it runs", is(backend.StateRunning)); server.Run != run {
		t.Errorf("it is %+v", server)
	}
	w.stops()
	w.starts(machine)
	w.sleeps()
	w.remove()
}

// Memory that cannot be used is discarded with the reason, and the machine boots from its disk.
func TestLongUnusableMemory(t *testing.T) {
	edit := func(change func(*savedMemory)) func(*fixture) {
		return func(w *fixture) {
			m := w.driver.machines[uid]
			change(m.def.Asleep)
			w.do(m.def.write(m.dir))
		}
	}
	write := func(change func([]byte) []byte) func(*fixture) {
		return func(w *fixture) {
			raw, err := os.ReadFile(w.memoryPath())
			w.do(err)
			w.do(os.WriteFile(w.memoryPath(), change(raw), 0o600))
		}
	}
	for name, test := range map[string]struct {
		spoil func(*fixture)
		says  string
	}{
		"missing":         {func(w *fixture) { w.do(os.Remove(w.memoryPath())) }, "its file memory.zst is missing"},
		"truncated":       {write(func(raw []byte) []byte { return raw[:len(raw)/2] }), "bytes instead of"},
		"empty":           {write(func([]byte) []byte { return nil }), "has 0 bytes instead of"},
		"damaged":         {write(func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw }), "is damaged"},
		"foreign":         {write(func(raw []byte) []byte { return []byte(strings.Repeat("foreign", len(raw)/7+1))[:len(raw)] }), "is damaged"},
		"another QEMU":    {edit(func(s *savedMemory) { s.QEMU = "6.0.0" }), "QEMU 6.0.0 saved it, and this is"},
		"another CPU":     {edit(func(s *savedMemory) { s.CPU = "host of another" }), "it was saved with the processors"},
		"another Keelson": {edit(func(s *savedMemory) { s.Shape = "another" }), "other devices"},
		"another address": {edit(func(s *savedMemory) { s.Disks[0].Address = "1f.0" }), "QEMU does not accept it"},
		"a disk is gone":  {edit(func(s *savedMemory) { s.Disks[0].Name = "gone" }), "has no disk gone any more"},
		"the disk has changed": {func(w *fixture) {
			w.do(os.Chtimes(filepath.Join(filepath.Dir(w.memoryPath()), diskFile), time.Time{}, time.Now()))
		}, "disk.qcow2 has changed since"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			machine := w.firmware()
			machine.Disks = []backend.Disk{{Name: "data", SizeBytes: 1 << 20}}
			w.run(machine)
			w.sleeps()
			test.spoil(w)
			w.open()
			w.do(w.driver.Start(t.Context(), machine))
			server := w.eventually("it is off, and nothing is left to do", func(s *backend.Server) bool {
				return s.State == backend.StateStopped && s.Task == backend.TaskNone
			})
			if server.Ended == nil || server.Ended.Cause != backend.CauseMemoryLost || !strings.Contains(server.Ended.Message, test.says) {
				t.Errorf("it ended as %+v, want %q", server.Ended, test.says)
			}
			if w.hasMemory() {
				t.Error("its memory is still there")
			}
			if w.starts(machine); w.wasWoken() {
				t.Error("it was woken")
			}
			w.remove()
		})
	}
}

// The disk of the host is full at each write in turn: the machine runs on, nothing is left over, and the next attempt
// succeeds.
func TestLongSleepOnAFullDisk(t *testing.T) {
	before := sleepRetryInterval
	sleepRetryInterval = 0
	t.Cleanup(func() { sleepRetryInterval = before; atomicfile.Fault = func(string, string) error { return nil } })
	for _, at := range []string{"write " + savedmemory.Part, "sync " + savedmemory.Part, "create " + definitionFile, "write " + definitionFile, "sync " + definitionFile} {
		t.Run(at, func(t *testing.T) {
			w := newFixture(t)
			machine := w.firmware()
			run := w.run(machine).Run
			failed := make(chan struct{}, 100)
			atomicfile.Fault = func(operation, path string) error {
				name := strings.TrimSuffix(filepath.Base(path), atomicfile.Suffix)
				if operation+" "+name == at {
					failed <- struct{}{}
					return syscall.ENOSPC
				}
				return nil
			}
			w.do(w.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
			<-failed
			w.eventually("it runs", is(backend.StateRunning))
			if _, err := w.driver.machines[uid].task.Failure(backend.TaskSleep); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("the attempt failed with %v", err)
			}
			if w.hasMemory() {
				t.Error("a part of its memory is left over")
			}
			atomicfile.Fault = func(string, string) error { return nil }
			if server := w.server(); server.Run != run {
				t.Errorf("not the same run: %+v", server)
			}
			w.sleeps()
			if w.starts(machine); !w.wasWoken() {
				t.Error("it was not woken")
			}
			w.remove()
		})
	}
}

// QEMU dies while it saves or loads its memory.
func TestQEMUDiesDuringSleepAndWake(t *testing.T) {
	t.Run("before its memory is saved", func(t *testing.T) {
		at := hookSteps(t)
		w := newFixture(t)
		machine := w.firmware()
		run := w.run(machine).Run
		at.set("halted", func() { w.kill(t, uid) })
		w.do(w.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
		server := w.eventually("it is off", is(backend.StateStopped))
		if server.Ended == nil || server.Ended.Run != run || server.Ended.Cause != backend.CauseHost || w.hasMemory() {
			t.Errorf("it ended as %+v", server.Ended)
		}
		w.remove()
	})
	t.Run("after its memory is saved, and before it is used", func(t *testing.T) {
		at := hookSteps(t)
		w := newFixture(t)
		machine := w.firmware()
		w.run(machine)
		at.set("memory kept", func() { w.kill(t, uid) })
		w.sleeps()
		at.clear()
		if w.starts(machine); !w.wasWoken() {
			t.Error("it was not woken")
		}
		// Nor does it matter if it hangs.
		at.set("memory kept", func() { signals.Send(t, w.pid(t, uid), syscall.SIGSTOP) })
		w.do(w.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
		w.eventuallyWithin(time.Minute, "it is asleep", is(backend.StateAsleep))
		var killed atomic.Bool
		at.set("memory loaded", func() { w.kill(t, uid); killed.Store(true) })
		w.do(w.driver.Start(t.Context(), machine))
		w.eventually("it has died", func(s *backend.Server) bool {
			return killed.Load() && s.Task == backend.TaskNone && (s.State == backend.StateStopped || s.State == backend.StateAsleep)
		})
		at.clear()
		// The memory counts as used as soon as that is recorded, whether or not QEMU lives: then the machine boots.
		w.reach(machine, drivertest.ToRun)
		if w.hasMemory() {
			t.Error("its memory was used and is still there")
		}
		w.remove()
	})
}

// A manager is killed at each step of sleeping and waking. The next one reaches the goal; memory is not used twice, and a
// machine that was asleep with whole memory does not boot.
func TestLongManagerKilledDuringSleep(t *testing.T) {
	needQEMU(t)
	image := emptyImage(t)
	for _, way := range drivertest.SleepWays {
		t.Run(string(way.Before+" "+way.Goal), func(t *testing.T) {
			for _, at := range stepsOf(t, way.Before, way.Goal, image) {
				t.Run(at, func(t *testing.T) { testKilledDuringSleep(t, way.Before, way.Goal, at, image) })
			}
		})
	}
}

func testKilledDuringSleep(t *testing.T, before, goal drivertest.Goal, at, image string) {
	w := newFixture(t)
	machine := firmware(uid)
	machine.Image.Path = image
	w.reach(machine, before)
	w.do(w.driver.Close())
	if _, err := w.helper(goal, at, image); err == nil {
		t.Fatalf("the manager was not killed at %q", at)
	}
	w.open()
	if pids, err := findOrphans(uid); err != nil || len(pids) > 1 {
		t.Fatalf("processes are %v, %v", pids, err)
	}
	w.reach(machine, goal)
	switch goal {
	case drivertest.ToSleep:
		// Whatever it was, it wakes once, and the memory is gone.
		w.reach(machine, drivertest.ToRun)
		fallthrough
	case drivertest.ToRun:
		if !w.wasWoken() || w.hasMemory() {
			t.Errorf("it was woken: %v; there is memory: %v", w.wasWoken(), w.hasMemory())
		}
	case drivertest.ToStop:
		if server := w.server(); server.Ended == nil || server.Ended.Cause != backend.CauseRequested || w.hasMemory() {
			t.Errorf("the requested stop counts as %+v; there is memory: %v", server.Ended, w.hasMemory())
		}
	}
	w.remove()
}

func TestMigrationFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w := newFixture(t)
	machine := w.firmware()
	w.run(machine)
	conn, err := w.driver.machines[uid].monitor()
	w.do(err)
	var rejected *qmp.Error
	if err := savedmemory.AwaitSaved(ctx, conn); err == nil || errors.As(err, &rejected) {
		t.Errorf("a migration that was not begun: %v", err)
	}
	w.remove()
}
