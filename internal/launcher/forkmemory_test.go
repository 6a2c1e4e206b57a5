package launcher

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/driver/seed"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/machine/qemu"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// forkOf makes the machine, which does not run, a new one of a snapshot with memory of what it was. It has the same folders, as all machines in
// Pods have.
func (m *machine) forkOf(taken *Taken, uid, name string) {
	m.Helper()
	of := m.definition.identity()
	m.definition.UID, m.definition.Name = uid, name
	m.forkAgain(taken, of)
}

// forkAgain makes the machine one that was just made of a snapshot with memory of another one.
func (m *machine) forkAgain(taken *Taken, of Identity) {
	m.Helper()
	err := errors.Join(os.RemoveAll(m.dirs.Disk), os.Mkdir(m.dirs.Disk, 0o700))
	if err != nil {
		m.Fatal(err)
	}
	m.definition.Epoch, m.definition.Asleep, m.definition.ReadyPort = "fork", true, int32(harness.FreeAddress(m.T).Port())
	fill := &Fill{Disks: m.definition.AllDisks(), From: []string{qemu.RootDisk}, Memory: taken.Memory, Epoch: m.definition.Epoch, Of: &of}
	if result := RunJob(m.Context(), Job{Fill: fill}, m.dirs, io.Discard); !result.Filled {
		m.Fatal(result.Error)
	}
}

// said counts the commands of says.
var said atomic.Int32

// says types a command at the console, which shows lines of 80 characters, and returns what it has written.
func (m *machine) says(command string) string {
	m.Helper()
	mark := fmt.Sprintf("s%d", said.Add(1))
	m.types(fmt.Sprintf("echo %s-$(%s)-end", mark, command))
	return m.shows(regexp.MustCompile(mark + `-([^$]*?)-end`))[1]
}

// page returns the page of the web server of the guest.
func page(port int32) (string, error) {
	client := http.Client{Timeout: 2 * time.Second}
	response, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/page", port))
	if err != nil {
		return "", err
	}
	raw, err := io.ReadAll(response.Body)
	return string(raw), errors.Join(err, response.Body.Close())
}

// A new machine goes on with the memory in a snapshot. It has its own name and key, and the network only when it has them. Then it sleeps,
// wakes and powers off as any machine, and its clock is right.
func TestLongForkGoesOnAsItself(t *testing.T) {
	m := testForks(t, "first")
	ended := m.sleeps()
	info, err := os.Stat(filepath.Join(m.dirs.Disk, savedmemory.File))
	if err != nil || info.Size() != ended.SavedBytes || info.Mode().Perm() != 0o600 || m.qemu() != 0 {
		t.Errorf("its memory is %+v, %v; its QEMU is %d", info, err, m.qemu())
	}
	const nap = 3 * time.Second
	time.Sleep(nap) //nolint:forbidigo // the clock of the guest stands still
	m.definition.ReadyPort = int32(harness.FreeAddress(t).Port())
	m.definition.Ports = append(m.definition.Ports, Port{Port: int32(harness.FreeAddress(t).Port())}) // it is no device
	began := time.Now()
	m.run()
	m.awaitReady()
	t.Logf("it answers after %v", time.Since(began))
	if !m.wasWoken() || m.hasMemory() {
		t.Errorf("it goes on: %t; its memory is left over: %t", m.wasWoken(), m.hasMemory())
	}
	asked := time.Now()
	said := strings.Fields(m.says("hostname; echo $kept; date +%s"))
	if len(said) != 3 || said[0] != "first" || said[1] != "it-is-42" {
		t.Fatalf("it has slept, and says %q", said)
	}
	clock, err := strconv.ParseInt(said[2], 10, 64)
	if late := asked.Sub(time.Unix(clock+1, 0)); err != nil || late > time.Second {
		t.Errorf("its clock is %v late, %v", late, err) // it shows whole seconds
	}
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost {
		t.Errorf("it was powered off as %+v", ended)
	}
	for _, disk := range m.definition.AllDisks() {
		if size, err := virtualSize(m.dirs.diskPath(disk.Name)); err != nil || size != disk.Bytes {
			t.Errorf("the disk %s has %d bytes, %v", disk.Name, size, err)
		}
	}
}

// So does one of a snapshot of a fork. Later, it sleeps, wakes and boots.
func TestLongForksGoOnAsThemselves(t *testing.T) {
	m := testForks(t, "first", "second")
	m.sleeps()
	m.run()
	m.awaitReady()
	if got := m.says("hostname; echo $kept"); got != "second it-is-42" || !m.wasWoken() {
		t.Errorf("it has slept, and says %q", got)
	}
	m.types("sync; echo synced-$((40+2))")
	m.shows(regexp.MustCompile("synced-42"))
	m.kill()
	if err := os.Truncate(m.console, 0); err != nil {
		t.Fatal(err)
	}
	m.definition.Asleep = false
	m.run()
	m.awaitReady()
	m.shows(regexp.MustCompile("root@second"))
	if got := m.says("hostname; echo $kept; cat /root/file"); got != "second precious-1" || m.wasWoken() {
		t.Errorf("it has booted, and says %q", got)
	}
	m.kill()
}

// testForks returns a machine with the last of these names, which is a fork of the one with the name before, and runs.
func testForks(t *testing.T, names ...string) *machine {
	t.Helper()
	m := newMachine(t)
	m.token()
	port := int32(harness.FreeAddress(t).Port())
	m.definition.DiskBytes, m.definition.Ports = 64<<20, []Port{{Port: port}}
	userData := "#cloud-config\nssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS test]\n"
	if err := os.WriteFile(filepath.Join(m.dirs.Seed, UserDataFile), []byte(userData), 0o600); err != nil {
		t.Fatal(err)
	}
	m.runsOnDisk()
	m.types("kept=it-is-$((40+2)); echo precious-1 >/root/file; mkdir /www")
	m.types(fmt.Sprintf("echo served >/www/page; busybox httpd -p %d -h /www", port))
	m.types("key=/etc/ssh/ssh_host_ed25519_key; until [ -e $key ]; do :; done")
	keys := map[string]bool{m.says("md5sum $key"): true}
	for i, name := range names {
		taken := m.takesMemory()
		m.kill()
		m.forkOf(taken, fmt.Sprintf("0b5b4d8e-0000-4000-8000-00000000010%d", i), name)
		var early string
		atStep(t, "guest renamed", func() { early, _ = page(port) })
		began := time.Now()
		m.run()
		m.awaitReady()
		t.Logf("%s is ready after %v", name, time.Since(began))
		if early != "" || !m.wasWoken() || m.hasMemory() {
			t.Errorf("it had the network: %q; it goes on: %t; its memory is left over: %t", early, m.wasWoken(), m.hasMemory())
		}
		harness.Eventually(t, "its web server answers", func() bool { got, err := page(port); return err == nil && got == "served\n" })
		if got := m.says("hostname; echo $kept; cat /root/file"); got != name+" it-is-42 precious-1" {
			t.Errorf("%s says %q", name, got)
		}
		if got := m.says("ip -4 addr show eth0 | grep -o 'inet [0-9.]*'"); got != "inet "+guestAddress.String() {
			t.Errorf("it has the address %q", got)
		}
		key := m.says("md5sum $key")
		if keys[key] || !strings.Contains(key, "ed25519") {
			t.Errorf("it has the key %q of another machine", key)
		}
		keys[key] = true
	}
	return m
}

// unnamed makes the machine, which has an empty disk and no agent, one that goes on with the memory in a snapshot and never learns its name.
func (m *machine) unnamed() (taken *Taken, of Identity) {
	m.Helper()
	m.firmware()
	m.definition.DiskBytes = 8 << 20
	m.run()
	m.awaitReady()
	taken = m.takesMemory()
	m.kill()
	of = m.definition.identity()
	m.definition.NoAgent = false
	m.forkOf(taken, "0b5b4d8e-0000-4000-8000-000000000200", "fork")
	return taken, of
}

// A guest that does not answer ends, and boots at the next run.
func TestForkThatDoesNotAnswer(t *testing.T) {
	t.Cleanup(func() { owner.ForkTimeout = savedmemory.ForkTimeout })
	m := newMachine(t)
	m.unnamed()
	owner.ForkTimeout = 100 * time.Millisecond
	m.run()
	if ended := m.awaitEnd(); ended.Cause != CauseMemoryLost || !strings.Contains(ended.Message, "did not answer within 100ms") {
		t.Errorf("it ended as %+v", ended)
	}
	m.bootsNext()
}

// bootsNext runs the machine, which has lost its memory.
func (m *machine) bootsNext() {
	m.Helper()
	owner.ForkTimeout = savedmemory.ForkTimeout
	if m.hasMemory() {
		m.Error("its memory is left over")
	}
	m.definition.Asleep = false
	m.run()
	harness.Eventually(m, "its QEMU runs", func() bool { return m.launcher.monitor() != nil })
	if m.wasWoken() {
		m.Error("it has not booted")
	}
	m.kill()
}

// A guest that refuses, because the seed is not that of the machine, ends, and boots at the next run.
func TestForkThatRefuses(t *testing.T) {
	fakeqemu.Install(t)
	testForkThatRefuses(t)
}

func TestLongForkThatRefuses(t *testing.T) { testForkThatRefuses(t) }

func testForkThatRefuses(t *testing.T) {
	t.Helper()
	m := newMachine(t)
	m.token()
	m.definition.DiskBytes = 64 << 20
	m.run()
	m.awaitReady()
	taken := m.takesMemory()
	m.kill()
	m.forkOf(taken, "0b5b4d8e-0000-4000-8000-000000000300", "fork")
	atStep(t, "fork disconnected", func() {
		path := filepath.Join(m.dirs.Run, seedFile)
		image, err := seed.NoCloud("another", "fork", "", "")
		if err := errors.Join(err, os.WriteFile(path, image, 0o600)); err != nil {
			t.Error(err)
		}
	})
	m.run()
	if ended := m.awaitEnd(); ended.Cause != CauseMemoryLost || !strings.Contains(ended.Message, "the guest did not become another machine") {
		t.Errorf("it ended as %+v", ended)
	}
	m.bootsNext()
}

// A guest that falls asleep before it knows which machine it is wakes without network, and is in no snapshot until then.
func TestForkFallsAsleepWithoutItsName(t *testing.T) {
	m := newMachine(t)
	_, of := m.unnamed()
	fails := func() {
		t.Helper()
		job := m.taking()
		job.Take.Memory, m.dirs.Snapshot = true, t.TempDir()
		if result := RunJob(t.Context(), job, m.dirs, io.Discard); !strings.Contains(result.Error, savedmemory.ErrUnnamed.Error()) {
			t.Errorf("a snapshot with memory: %+v", result)
		}
	}
	disconnected := make(chan struct{}, 2)
	atStep(t, "fork disconnected", func() { disconnected <- struct{}{} })
	for range 2 {
		m.run()
		harness.Eventually(t, "it goes on", func() bool { return m.launcher.monitor() != nil })
		<-disconnected
		if !m.wasWoken() {
			t.Error("it has booted")
		}
		fails()
		m.sleeps()
		fails()
		raw, err := os.ReadFile(filepath.Join(m.dirs.Disk, memoryRecord))
		var saved savedMemory
		if err := errors.Join(err, json.Unmarshal(raw, &saved)); err != nil || saved.GuestOf == nil || *saved.GuestOf != of {
			t.Errorf("it sleeps as %+v, %v", saved.GuestOf, err)
		}
	}
	// Another machine, or other devices: it boots.
	m.definition.MemoryBytes = 128 << 20
	m.run()
	if ended := m.awaitEnd(); ended.Cause != CauseMemoryLost || !strings.Contains(ended.Message, "other devices") {
		t.Errorf("it ended as %+v", ended)
	}
	m.bootsNext()
}

// A launcher that is killed while a fork begins is followed by one with which it goes on or boots, as itself in any case.
func TestLongForkKilledAtEveryStep(t *testing.T) {
	m := newMachine(t)
	m.token()
	m.definition.DiskBytes = 64 << 20
	m.runsOnDisk()
	taken, of := m.takesMemory(), m.definition.identity()
	m.kill()
	m.forkOf(taken, "0b5b4d8e-0000-4000-8000-000000000400", "fork")
	steps := slices.Compact(m.runKilled("", false))
	t.Logf("steps are %q", steps)
	if !slices.Contains(steps, "fork-disconnected") || !slices.Contains(steps, "fork-complete") {
		t.Fatal("it did not become a machine")
	}
	isUsed := false
	for _, at := range steps {
		isUsed = isUsed || at == "memory-used"
		m.forkAgain(taken, of)
		m.runKilled(strings.ReplaceAll(at, "-", " "), false)
		if err := os.Truncate(m.console, 0); err != nil {
			t.Fatal(err)
		}
		m.definition.Asleep = !isUsed
		m.run()
		m.awaitReady()
		if m.wasWoken() == isUsed || m.hasMemory() {
			t.Errorf("killed at %q, it goes on: %t; memory is left over: %t", at, m.wasWoken(), m.hasMemory())
		}
		if isUsed {
			m.shows(regexp.MustCompile("root@"))
		}
		if got := m.says("hostname"); got != "fork" {
			t.Errorf("killed at %q, it calls itself %q", at, got)
		}
		m.kill()
	}
}

// A fill that is killed at any step is completed by the next one: the machine is asleep, with the memory, when it has its disks, and never with
// a part of it.
func TestFillWithMemoryKilledAtEveryStep(t *testing.T) {
	begin := func(t *testing.T) *filled {
		f := newFilled(t, "")
		if err := os.WriteFile(filepath.Join(f.dirs.Snapshot, savedmemory.File), []byte("remembered"), 0o600); err != nil {
			t.Fatal(err)
		}
		f.fill.Memory, f.fill.Epoch, f.fill.Of = &savedmemory.Memory{Size: 10, Shape: "shape"}, "fork", &Identity{UID: uid}
		return f
	}
	check := func(f *filled, complete bool) {
		f.Helper()
		if f.hasMemory() != complete {
			f.Fatalf("it is asleep: %t, want %t", f.hasMemory(), complete)
		}
		if !complete {
			return
		}
		var saved savedMemory
		raw, err := os.ReadFile(filepath.Join(f.dirs.Disk, memoryRecord))
		err = errors.Join(err, json.Unmarshal(raw, &saved))
		content, readErr := os.ReadFile(filepath.Join(f.dirs.Disk, savedmemory.File))
		var paths []string
		for _, disk := range f.fill.From {
			paths = append(paths, f.path(disk))
		}
		if err := errors.Join(err, readErr, saved.CheckFiles(f.dirs.Disk, paths)); err != nil || string(content) != "remembered" || *saved.GuestOf != *f.fill.Of || saved.Epoch != "fork" || saved.Shape != "shape" {
			f.Errorf("it has %q and %+v, %v", content, saved, err)
		}
		f.has(1, 2)
	}
	first := begin(t)
	first.fill.Disks = first.fill.Disks[:2]
	steps := first.runKilled("")
	t.Logf("steps are %q", steps)
	check(first, true)
	for _, at := range steps {
		t.Run(at, func(t *testing.T) {
			f := begin(t)
			f.fill.Disks = f.fill.Disks[:2]
			f.runKilled(at)
			check(f, at == "memory restored" || at == "fork recorded")
			f.do()
			check(f, true)
			// It has used the memory, and a Pod comes too late.
			if err := discardMemory(f.dirs.Disk); err != nil {
				t.Fatal(err)
			}
			f.do()
			check(f, false)
			f.has(1, 2)
		})
	}
}
