package qemu

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// takesMemory takes a snapshot of the machine of the test with its memory.
func (w *fixture) takesMemory(id backend.SnapshotIdentity, of backend.Machine) backend.SnapshotState {
	w.Helper()
	state := w.take(id, backend.Source{Server: of.Identity, Memory: true})
	info, err := os.Stat(w.driver.findSnapshot(id.UID).memoryPath())
	w.do(err)
	if state.MemoryBytes != info.Size() || state.MemoryBytes == 0 || info.Mode().Perm() != 0o600 {
		w.Errorf("the state has %d bytes of memory, the file %d and the mode %v", state.MemoryBytes, info.Size(), info.Mode())
	}
	return state
}

// goesBack restores the machine of the test from a snapshot with memory, and wakes it.
func (w *fixture) goesBack(token string, to backend.SnapshotIdentity, machine backend.Machine) {
	w.Helper()
	w.do(w.driver.Stop(w.Context(), machine.Identity, 0))
	w.eventually("it is off", func(s *backend.Server) bool { return !s.IsOn() && s.Task == backend.TaskNone })
	err := w.driver.RestoreServer(w.Context(), machine.Identity, backend.Restore{Token: token, Snapshot: to, Memory: true})
	if !errors.Is(err, backend.ErrInProgress) {
		w.do(err)
	}
	w.eventually("it is restored and asleep", func(s *backend.Server) bool {
		return s.Task == backend.TaskNone && s.Restored == token && s.State == backend.StateAsleep
	})
	w.starts(machine)
	if !w.wasWoken() {
		w.Error("it has booted")
	}
	w.eventually("the guest answers", answers)
}

// A machine goes back to the moment of a snapshot with memory, as often as that is wanted: its programs go on where they were, with the
// disk as they knew it, although the guest wrote all the time while the snapshot was taken. A snapshot of a machine that is asleep
// has the memory of then.
func TestLongRestoreWithMemory(t *testing.T) {
	needGuest(t)
	before := owner.FewBytes
	owner.FewBytes = 1 // it writes all the time
	t.Cleanup(func() { owner.FewBytes = before })
	w := newFixture(t)
	machine := booted(func(m *backend.Machine) { m.Disks = []backend.Disk{{Name: "data", SizeBytes: 32 << 20}} })
	run := w.run(machine).Run
	w.shell()
	// The number on the disk is that in memory, or the next one. It is written past the cache.
	w.typed("d=/dev/disk/by-id/virtio-data; i=100; while :; do printf %4096d $((i+1)) | dd of=$d bs=4096 oflag=direct 2>/dev/null; i=$((i+1)); echo $i >/tmp/next; mv /tmp/next /tmp/i; done & echo ready-$((40+2))")
	w.shows("ready-42")
	w.typed("while [ $(cat /tmp/i) -lt 110 ]; do sleep 0.1; done; yes keelson | head -c 2400000 >/tmp/much; dd if=/tmp/much of=$d bs=4096 seek=1 2>/dev/null; sync; md5sum </tmp/much >/tmp/sum; echo begun-$((40+2))")
	w.shows("begun-42")
	first := snapshotOf(1, "first")
	w.takesMemory(first, machine)
	w.noBackups()
	if server := w.server(); server.Run != run || server.State != backend.StateRunning {
		t.Fatalf("after the snapshot, the machine is %+v", server)
	}
	w.typed("k=$(cat /tmp/i); until [ $(cat /tmp/i) -gt $((k+3)) ]; do sleep 0.1; done; kill %1; touch /tmp/later; dd if=/dev/zero of=$d bs=1M count=3 2>/dev/null; sync; echo changed-$((40+2))")
	w.shows("changed-42")
	sleeping := snapshotOf(2, "sleeping")
	w.sleeps()
	w.takesMemory(sleeping, machine)
	w.starts(machine)

	for i := range 2 {
		w.goesBack(fmt.Sprint("back-", i), first, machine)
		w.reconnect()
		w.typed(fmt.Sprintf("k=$(cat /tmp/i); until [ $(cat /tmp/i) -gt $((k+3)) ]; do sleep 0.1; done; kill %%1; wait; "+
			"n=$(head -c 4096 $d | tr -d ' '); m=$(cat /tmp/i); [ $n = $m -o $n = $((m+1)) ] && [ ! -e /tmp/later ] && "+
			"[ \"$(head -c 2404096 $d | tail -c +4097 | md5sum)\" = \"$(cat /tmp/sum)\" ] && echo same-%d-$((40+2))", i))
		w.shows(fmt.Sprintf("same-%d-42", i))
	}
	w.goesBack("asleep", sleeping, machine)
	w.reconnect()
	w.typed("[ -e /tmp/later ] && [ $(head -c 2404096 $d | tr -d '\\0' | wc -c) = 0 ] && echo later-$((40+2))")
	w.shows("later-42")
	w.remove()
	w.do(w.driver.DeleteSnapshot(t.Context(), sleeping))
	w.deleteSnapshot(first)
}

// What memory cannot be in a snapshot, and what it does not fit, is said. A machine boots then.
func TestLongMemoryThatDoesNotFit(t *testing.T) {
	needGuest(t)
	w := newFixture(t)
	machine := w.withData()
	w.run(machine)
	id := snapshotOf(1, "first")
	w.options.MaxSavedBytes = 1000
	w.open()
	w.eventually("it runs", is(backend.StateRunning))
	w.do(w.driver.TakeSnapshot(t.Context(), id, backend.Source{Server: machine.Identity, Memory: true}))
	harness.Eventually(t, "the limit is kept", func() bool {
		failure := w.snapshotState(id).Failure
		return failure != nil && strings.Contains(failure.Error(), "virtualMachines.stateMax")
	})
	if left, _ := filepath.Glob(filepath.Join(w.driver.snapshotsDir(), "*", savedmemory.File+"*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
	w.eventually("it runs on", is(backend.StateRunning))
	w.options.MaxSavedBytes = 0
	w.open()
	w.eventually("it runs", is(backend.StateRunning))
	w.fillBoth(1, 2)
	w.takesMemory(id, machine)
	w.noBackups()
	w.fill("root", 3)

	w.stops()
	if err := w.driver.TakeSnapshot(t.Context(), snapshotOf(2, "off"), backend.Source{Server: machine.Identity, Memory: true}); !errors.Is(err, backend.ErrNotRunning) {
		t.Errorf("memory of a machine that is off: %v", err)
	}
	// Without memory, the disks are restored. So they are if one of them has been grown since.
	w.restores("disks", id)
	w.hasContent(8<<20, 1, 2)
	machine.DiskBytes = 16 << 20
	w.run(machine)
	w.stops()
	w.do(w.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: "grown", Snapshot: id, Memory: true}))
	server := w.eventually("it is restored", func(s *backend.Server) bool { return s.Task == backend.TaskNone && s.Restored == "grown" })
	if server.State != backend.StateStopped || server.Ended == nil || server.Ended.Cause != backend.CauseMemoryLost ||
		server.Ended.Message != "a disk of the machine is larger than it was" {
		t.Errorf("the server is %+v, its end %+v", server, server.Ended)
	}
	w.hasContent(16<<20, 1, 2)
	w.remove()
	w.deleteSnapshot(id)

	// A machine without disks has memory.
	bare := booted()
	w.run(bare)
	w.eventually("the guest answers", answers)
	w.takesMemory(id, bare)
	w.stops()
	w.do(w.driver.RestoreServer(t.Context(), bare.Identity, backend.Restore{Token: "bare", Snapshot: id, Memory: true}))
	w.eventually("it is restored", func(s *backend.Server) bool { return s.Restored == "bare" && s.State == backend.StateAsleep })
	w.remove()
	w.deleteSnapshot(id)

	machine = w.withData()
	machine.Firmware = v1alpha1.FirmwareUEFI
	m := newMachine(w.driver, definition{Machine: machine})
	m.run = "run"
	if err := m.checkSnapshotMemory(); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("memory with UEFI firmware: %v", err)
	}
	m.def.Firmware = ""
	m.def.DiskRecords = map[string]diskRecord{"data": {VirtualDiskUID: uid, Created: true}}
	if err := m.checkSnapshotMemory(); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("memory with a VirtualDisk: %v", err)
	}
}

// forkOf returns a machine that is made of a snapshot of another one.
func forkOf(source backend.Machine, name string, of backend.SnapshotIdentity) backend.Machine {
	fork := named(source.Namespace, name)
	fork.Snapshot, fork.Image, fork.Disks, fork.MemoryBytes = of.UID, &v1alpha1.Image{Snapshot: of.Name}, source.Disks, source.MemoryBytes
	fork.Seed.UserData += "ssh_authorized_keys: [" + testKey + "]\n"
	return fork
}

// counter returns the number that a guest has counted to; -1 if it says something else.
func counter(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

// testForksWithMemory returns the guest of the machine that a snapshot with memory was taken of, and those of two forks of it, which run.
func testForksWithMemory(w *fixture) (guests []*testGuest, id backend.SnapshotIdentity) {
	const number = 2
	t := w.T
	t.Helper()
	needGuest(t)
	source := named("default", "web", func(m *backend.Machine) {
		m.DiskBytes, m.Disks = 64<<20, []backend.Disk{{Name: "data", SizeBytes: 16 << 20}}
	})
	source.Seed.UserData += "ssh_authorized_keys: [" + testKey + "]\n"
	guests = w.boot(source)
	web := guests[0]
	web.exec("echo of-web >/root/file; echo of-data >/dev/disk/by-id/virtio-data; i=100; while sleep 0.1; do i=$((i+1)); echo $i >/tmp/next; mv /tmp/next /tmp/i; done >/dev/null 2>&1 &")
	harness.Eventually(t, "it counts", func() bool {
		out, err := web.try("cat /tmp/i 2>/dev/null") // at first, there is no file
		return err == nil && counter(out) > 110
	})
	id = snapshotOf(1, "first")
	w.takesMemory(id, source)
	counted := web.exec("cat /tmp/i")

	var forks []backend.Machine
	began := time.Now()
	for i := range number {
		fork := forkOf(source, fmt.Sprintf("web-%d", i), id)
		w.do(w.driver.Create(t.Context(), fork))
		forks = append(forks, fork)
	}
	for _, fork := range forks {
		g := &testGuest{w, fork}
		w.until(g.machine, "it is created asleep", is(backend.StateAsleep))
		w.do(w.driver.Start(t.Context(), fork))
		guests = append(guests, g)
	}
	shared := 0
	for _, fork := range forks {
		w.until(fork, "it is on", is(backend.StateRunning))
		if w.driver.machines[fork.UID].def.MemoryShared {
			shared++
		}
	}
	if shared != number-1 {
		t.Errorf("%d forks share their memory, want all but the first", shared)
	}
	seen := map[string]string{}
	for i, g := range guests {
		harness.Eventually(t, "it executes commands", func() bool {
			out, err := g.try("echo $((40+2))")
			return err == nil && out == "42"
		})
		if i > 0 {
			t.Logf("the command of %s answered after %v", g.machine.Name, time.Since(began))
		}
		address, _, _ := strings.Cut(g.exec("ip -4 addr show eth0 | grep -o 'inet [0-9.]*' | cut -c 6-"), "/")
		said := g.exec("hostname; cat /sys/class/net/eth0/address; head -c 16 /dev/urandom | md5sum; md5sum </etc/ssh/ssh_host_ed25519_key") + "\n" + address
		for _, value := range strings.Split(said, "\n") {
			if other, found := seen[value]; found {
				t.Errorf("%s and %s both have %s", other, g.machine.Name, value)
			}
			seen[value] = g.machine.Name
		}
		if name, _, _ := strings.Cut(said, "\n"); name != g.machine.Name || address != g.address() {
			t.Errorf("%s calls itself %s and has the address %s, want %s", g.machine.Name, name, address, g.address())
		}
		if out := g.exec("cat /root/file; head -c 7 /dev/disk/by-id/virtio-data; echo; wget -q -O - http://web/"); out != "of-web\nof-data\nweb" {
			t.Errorf("%s has %q", g.machine.Name, out)
		}
		if i == 0 {
			continue
		}
		if !w.wasInstant(g.machine) {
			t.Errorf("%s has booted", g.machine.Name)
		}
		if now := g.exec("cat /tmp/i"); counter(now) < 110 {
			t.Errorf("%s counts at %s, the snapshot was taken before %s", g.machine.Name, now, counted)
		}
		web.gets("web", g.machine.Name) // the page is in the memory
	}
	return guests, id
}

// Machines that are made of a snapshot with memory go on from its moment at once, beside the machine that it was taken of, and each as
// itself: none has the name, the addresses, the keys or the random numbers of another one. They have their disks. Later, they boot as any
// machine.
func TestLongForksWithMemory(t *testing.T) {
	w := newFixture(t)
	guests, id := testForksWithMemory(w)
	source, fork := guests[0].machine, guests[1]
	fork.exec("echo of-fork >/root/file; sync")
	w.do(w.driver.Stop(t.Context(), fork.machine.Identity, time.Minute))
	w.until(fork.machine, "it is off", is(backend.StateStopped))
	w.do(w.driver.Start(t.Context(), fork.machine))
	harness.Eventually(t, "it executes commands", func() bool {
		out, err := fork.try("hostname; cat /root/file; [ -e /tmp/i ] || echo booted")
		return err == nil && out == "web-0\nof-fork\nbooted"
	})

	// A fork that cannot use the shared memory loads its own.
	last := forkOf(source, "web-last", id)
	digest := w.driver.findSnapshot(id.UID).definition().Memory.SHA256
	w.driver.loaded.use(digest)
	damaged, err := os.Open(os.DevNull)
	w.do(err)
	w.driver.loaded.all[digest].shared.devices, damaged = damaged, w.driver.loaded.all[digest].shared.devices
	w.do(damaged.Close())
	w.reach(last, drivertest.ToRun)
	if !w.wasInstant(last) || w.driver.machines[last.UID].def.MemoryShared {
		t.Error("it has booted, or shares memory that it cannot use")
	}
	for _, g := range append(guests, &testGuest{w, last}) {
		g.remove()
	}
	w.deleteSnapshot(id)
}
