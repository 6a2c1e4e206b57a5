package qemu

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
)

// ask runs a monitor command on the machine of the test.
func (w *fixture) ask(command string, arguments map[string]any, result any) {
	w.Helper()
	conn, err := w.driver.machines[uid].monitor()
	w.do(err)
	if err := conn.Run(w.Context(), command, arguments, result); err != nil {
		w.Fatalf("%s: %v", command, err)
	}
}

// shell connects to the serial console of the machine of the test and waits for its shell.
func (w *fixture) shell() {
	w.Helper()
	w.eventually("the guest answers", answers)
	w.shows("root@")
	console, err := qmp.DialUnix(w.Context(), filepath.Join(w.driver.machinesDir(), string(uid), qemu.ConsoleSocket))
	w.do(err)
	w.console = console
	w.Cleanup(func() { _ = w.console.Close() })
	go func() { _, _ = io.Copy(io.Discard, w.console) }() // the log has it, too
}

// typed types a line at the console.
func (w *fixture) typed(line string) {
	w.Helper()
	_, err := w.console.Write([]byte(line + "\r"))
	w.do(err)
}

// shows waits for a text on the console.
func (w *fixture) shows(text string) {
	w.Helper()
	w.eventually("the console shows "+text, func(*backend.Server) bool { return strings.Contains(w.serial(), text) })
}

// hasMemoryOf250 waits in the guest until it has the memory that seesChanges plugs.
const hasMemoryOf250 = "until grep -qE 'MemTotal: *2[0-9]{5} kB' /proc/meminfo; do sleep 0.1; done"

// seesChanges changes disks and memory of a running machine, and checks that its guest sees it; then it pauses and resumes the machine.
func (w *fixture) seesChanges(machine *backend.Machine) {
	w.Helper()
	ctx := w.Context()
	run := w.server().Run
	w.typed("echo disk-$(cat /sys/block/vda/size)-")
	w.shows("disk-131072-")
	machine.Hash, machine.DiskBytes, machine.MemoryBytes = "2", 128<<20, 250<<20
	machine.Disks = append(machine.Disks, backend.Disk{Name: "more", SizeBytes: 16 << 20})
	w.do(w.driver.Reconfigure(ctx, *machine))
	w.typed("until grep -q 262144 /sys/block/vda/size; do sleep 0.1; done; echo grown-$((40+2))")
	w.shows("grown-42")
	w.typed("until [ -e /dev/disk/by-id/virtio-more ]; do sleep 0.1; done; echo there >/dev/disk/by-id/virtio-more; sync; echo plugged-$((40+2))")
	w.shows("plugged-42")
	w.typed(hasMemoryOf250 + "; echo memory-$((40+2))")
	w.shows("memory-42")
	small := *machine
	small.Hash, small.MemoryBytes = "3", 64<<20
	if err := w.driver.Reconfigure(ctx, small); !errors.Is(err, backend.ErrInvalid) {
		w.Errorf("less memory than the guest boots with: %v", err)
	}

	w.do(w.driver.Pause(ctx, machine.Identity))
	w.eventually("it is paused", is(backend.StatePaused))
	w.typed("echo heard-$((40+2))")
	w.do(w.driver.Resume(ctx, machine.Identity))
	if server := w.eventually("it runs", is(backend.StateRunning)); server.Run != run || len(server.Pending) > 0 {
		w.Errorf("want it running with all changes applied: %+v", server)
	}
	w.shows("heard-42")
}

// A guest that reboots stays in the same run; a kernel panic ends the run.
func TestLongGuestRebootsAndPanics(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	run := w.run(booted()).Run
	w.shell()
	w.typed("reboot")
	w.eventually("the guest is booting", func(s *backend.Server) bool { return s.Agent == backend.AgentWaiting })
	server := w.eventually("the guest answers", answers)
	if server.Run != run || server.Ended != nil {
		t.Errorf("the reboot of the guest counts as %+v, ended %+v", server, server.Ended)
	}
	w.eventually("there is a second shell", func(*backend.Server) bool {
		_, after, found := strings.Cut(w.serial(), "The guest is restarting")
		return found && strings.Contains(after, "root@")
	})
	w.typed("echo c > /proc/sysrq-trigger")
	server = w.eventually("it is off", is(backend.StateStopped))
	if server.Ended == nil || server.Ended.Cause != backend.CauseGuestPanic || server.Ended.Run != run {
		t.Errorf("ended with %+v", server.Ended)
	}
	w.remove()
}

// The log of the serial console is rotated while the machine writes to it.
func TestLongSerialLogIsRotated(t *testing.T) {
	needGuest(t)
	before := serialLimit
	serialLimit = 64 << 10
	t.Cleanup(func() { serialLimit = before })
	w := newFixture(t)
	w.run(booted())
	w.shell()
	w.typed("for i in $(seq 1500); do echo a line of some sixty characters that fills the log with time; done; echo filled-$((40+2))")
	old := filepath.Join(w.driver.machinesDir(), string(uid), serialLog+".1")
	w.eventually("the log is rotated", func(*backend.Server) bool {
		info, err := os.Stat(old)
		return err == nil && info.Size() >= serialLimit
	})
	w.eventually("it continues in a new one", func(*backend.Server) bool { return int64(len(w.serial())) < serialLimit })
	w.typed("echo still-$((40+2))")
	w.shows("still-42")
	w.remove()
}

// fullFor lets the host's disk be full for a number of writes, according to QEMU: a filter fails them.
func (w *fixture) fullFor(writes int, node, file string) {
	w.Helper()
	var rules, failures []any
	for state := 1; state <= writes; state++ {
		failures = append(failures, map[string]any{"event": "write_aio", "state": state, "once": true, "errno": int(syscall.ENOSPC)})
		rules = append(rules, map[string]any{"event": "write_aio", "state": state, "new_state": state + 1})
	}
	w.ask("blockdev-add", map[string]any{
		"driver": "blkdebug", "node-name": "full", "inject-error": failures, "set-state": rules, "image": file,
	}, nil)
	w.ask("blockdev-reopen", map[string]any{"options": []any{map[string]any{
		"driver": "qcow2", "node-name": node, "discard": "unmap", "file": "full", "backing": nil,
	}}}, nil)
}

// isHalted reports whether the guest is halted because the host's disk is full.
func isHalted(server *backend.Server) bool {
	return server.State == backend.StateRunning && server.Message == fullMessage
}

// The host's disk is full for three writes: the guest is halted, sees no errors, and is resumed when there is free space. The message
// does not flap meanwhile.
func TestLongDiskFullWhileItRuns(t *testing.T) {
	needGuest(t)
	for _, disk := range []struct{ name, node, file, target string }{
		{"the root disk", qemu.DiskNode(qemu.RootDisk), qemu.DiskFileNode(qemu.RootDisk), "/root/data"}, // a file, because the guest has mounted the disk
		{"another disk", qemu.DiskNode("data"), qemu.DiskFileNode("data"), "/dev/disk/by-id/virtio-data"},
	} {
		t.Run(disk.name, func(t *testing.T) { testDiskFull(t, disk.node, disk.file, disk.target) })
	}
}

func testDiskFull(t *testing.T, node, file, target string) {
	t.Helper()
	quickly(t)
	w := newFixture(t)
	w.run(booted(func(m *backend.Machine) {
		m.DiskBytes, m.Disks = 64<<20, []backend.Disk{{Name: "data", SizeBytes: 64 << 20}}
	}))
	w.shell()

	w.fullFor(3, node, file)

	// Polling may miss a short halt, so each change is recorded.
	var mu sync.Mutex
	var halts []bool
	w.driver.Watch(func(id backend.Identity) {
		mu.Lock()
		defer mu.Unlock()
		if server, err := w.driver.Observe(w.Context(), id); err == nil {
			halts = append(halts, isHalted(&server))
		}
	})
	before := w.server().Run
	w.typed("dd if=/dev/urandom of=" + target + " bs=65536 count=1; sync; echo written-$((40+2))")
	w.shows("written-42")
	w.eventually("it is halted and resumed", func(*backend.Server) bool {
		mu.Lock()
		defer mu.Unlock()
		halted := slices.Index(halts, true)
		return halted >= 0 && slices.Contains(halts[halted:], false)
	})
	if strings.Contains(w.serial(), "I/O error") {
		t.Errorf("the guest saw an error:\n%s", w.serial())
	}
	if again := w.server(); again.Run != before {
		t.Errorf("not the same run: %+v", again)
	}
	w.stops()
	w.checkDisks()
	w.remove()
}

// A machine that a full disk of the host has halted has its grace period, as in a Pod: if there is room by then, it powers off.
func TestLongStoppedWhileDiskIsFull(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	machine := booted(func(m *backend.Machine) { m.DiskBytes = 64 << 20 })
	w.run(machine)
	w.shell()
	w.fullFor(1000, qemu.DiskNode(qemu.RootDisk), qemu.DiskFileNode(qemu.RootDisk))
	w.typed("dd if=/dev/urandom of=/root/data bs=65536 count=1; sync")
	w.eventually("it is halted", isHalted)
	w.do(w.driver.Stop(t.Context(), machine.Identity, 2*time.Second))
	w.eventually("it is off", is(backend.StateStopped))
	w.remove()
}

// serial returns the serial log of the machine of the test.
func (w *fixture) serial() string {
	w.Helper()
	log, err := os.ReadFile(filepath.Join(w.driver.machinesDir(), string(uid), serialLog))
	w.do(err)
	return string(log)
}
