package launcher

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/testing/fakeqemu"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

const uid = "0b5b4d8e-0000-4000-8000-0000000000bb"

// machine is a launcher that runs on this host, as in a Pod.
type machine struct {
	*testing.T
	definition Definition
	dirs       Dirs
	stop       context.CancelFunc
	ended      chan Ended
	console    string
	messages   io.Writer
	launcher   *launcher
}

// newMachine returns a small machine, which does not run.
func newMachine(t *testing.T) *machine {
	t.Helper()
	for _, name := range []string{program, "qemu-img"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("%s is not installed: apt-get install qemu-system-x86 qemu-utils", name)
		}
	}
	dir := t.TempDir()
	guest, err := filepath.Abs(filepath.Join("..", "..", "bin", "guest"))
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{T: t, ended: make(chan Ended, 1), messages: io.Discard, console: filepath.Join(dir, "console")}
	m.dirs = Dirs{Run: filepath.Join(dir, "run"), Seed: filepath.Join(dir, "seed"), Guest: guest,
		Image: filepath.Join(dir, "image"), Disk: filepath.Join(dir, "disk"), Disks: filepath.Join(dir, "disks"), Snapshot: filepath.Join(dir, "snapshot"), ResolvConf: filepath.Join(dir, "resolv.conf")}
	for _, folder := range []string{m.dirs.Run, m.dirs.Seed, m.dirs.Image, m.dirs.Disk, m.dirs.Snapshot} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m.definition = Definition{UID: uid, Namespace: "default", Name: "vm", CPUs: 1, MemoryBytes: 192 << 20, CodeMiB: 32, ReadyPort: int32(harness.FreeAddress(t).Port())}
	return m
}

func (m *machine) run() {
	m.Helper()
	console, err := os.OpenFile(m.console, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		m.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	done := make(chan struct{})
	m.launcher = newLauncher(m.definition, m.dirs, console, m.messages)
	go func() {
		defer close(done)
		m.ended <- m.launcher.serve(ctx)
		_ = console.Close()
	}()
	m.Cleanup(func() {
		cancel()
		if pid := m.qemu(); pid > 0 {
			signals.Try(m, pid, syscall.SIGKILL) // if the test has failed
		}
		<-done
	})
}

// runsOnDisk runs the machine until its shell is there, and its root file system is on its disk.
func (m *machine) runsOnDisk() {
	m.Helper()
	m.run()
	m.awaitReady()
	m.shows(regexp.MustCompile("root@"))
	m.types("until [ -e /run/disk/upper ]; do sleep 0.1; done")
}

// awaitReady waits until the guest agent answers.
func (m *machine) awaitReady() {
	m.Helper()
	harness.Eventually(m, "the guest is ready", func() bool {
		select {
		case ended := <-m.ended:
			m.Fatalf("it has ended: %+v", ended)
		default:
		}
		response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s?wait=9s", m.definition.ReadyPort, ReadyPath))
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
}

// awaitEnd returns how the machine ended.
func (m *machine) awaitEnd() (ended Ended) {
	m.Helper()
	harness.Eventually(m, "the machine has ended", func() bool {
		select {
		case ended = <-m.ended:
			return true
		default:
			return false
		}
	})
	return ended
}

// qemu returns the process of the machine; 0 if there is none. It has the folder of the machine in its environment.
func (m *machine) qemu() int {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		m.Fatal(err)
	}
	for _, dir := range processes {
		command, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		environment, envErr := os.ReadFile(filepath.Join(dir, "environ"))
		if err == nil && envErr == nil && strings.Contains(string(command), "/"+program+"\x00") && strings.Contains(string(environment), "\x00PWD="+m.dirs.Run+"\x00") {
			pid, err := strconv.Atoi(filepath.Base(dir))
			if err != nil {
				m.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

func TestMachineIsStopped(t *testing.T) {
	fakeqemu.Install(t)
	testMachineIsStopped(t)
}

func TestLongMachineIsStopped(t *testing.T) { testMachineIsStopped(t) }

func testMachineIsStopped(t *testing.T) {
	t.Helper()
	m := newMachine(t)
	m.definition.DiskBytes, m.definition.Disks = 64<<20, []Disk{{Name: "data", Bytes: 32 << 20}}
	if err := os.MkdirAll(filepath.Join(m.dirs.Disks, "data"), 0o700); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	m.run()
	m.awaitReady()
	t.Logf("ready after %v", time.Since(began))
	m.stop()
	if ended := m.awaitEnd(); ended.Cause != CauseHost || m.qemu() != 0 {
		t.Errorf("ended as %+v", ended)
	}
	if size, err := virtualSize(filepath.Join(m.dirs.Disks, "data", "disk.qcow2")); err != nil || size != 32<<20 {
		t.Errorf("the other disk has %d bytes, %v", size, err)
	}
	if raw, err := os.ReadFile(m.console); err != nil || len(raw) == 0 {
		t.Errorf("the console is empty: %v", err)
	}
	if size, err := virtualSize(filepath.Join(m.dirs.Disk, "root.qcow2")); err != nil || size != m.definition.DiskBytes {
		t.Errorf("the disk has %d bytes, %v", size, err)
	}
}

func TestQEMUIsKilled(t *testing.T) {
	fakeqemu.Install(t)
	m := newMachine(t)
	m.run()
	m.awaitReady()
	signals.Send(t, m.qemu(), syscall.SIGKILL)
	if ended := m.awaitEnd(); ended.Cause != CauseHost || !strings.Contains(ended.Message, "signal 9") {
		t.Errorf("ended as %+v", ended)
	}
}

// A machine whose earlier run has not ended waits for that.
func TestLongEarlierRunHasNotEnded(t *testing.T) {
	first := newMachine(t)
	first.definition.DiskBytes = 64 << 20
	first.run()
	first.awaitReady()
	second := newMachine(t)
	second.dirs.Disk, second.definition.DiskBytes = first.dirs.Disk, 128<<20
	second.run()
	if state, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s?wait=1s", second.definition.ReadyPort, ReadyPath)); err == nil {
		_ = state.Body.Close()
		if state.StatusCode == http.StatusOK || second.qemu() != 0 {
			t.Errorf("two run at once: %s", state.Status)
		}
	}
	if size, err := virtualSize(filepath.Join(first.dirs.Disk, "root.qcow2")); err != nil || size != first.definition.DiskBytes {
		t.Errorf("the disk in use was changed: %d bytes, %v", size, err)
	}
	signals.Send(t, first.qemu(), syscall.SIGKILL)
	first.awaitEnd()
	second.awaitReady()
	if size, err := virtualSize(filepath.Join(first.dirs.Disk, "root.qcow2")); err != nil || size != second.definition.DiskBytes {
		t.Errorf("the next run has a disk of %d bytes, %v", size, err)
	}
	second.stop()
	second.awaitEnd()
}

func TestStartFails(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*machine)
		want   string
	}{
		"no guest":                {func(m *machine) { m.dirs.Guest = m.dirs.Seed }, "no default guest"},
		"little memory":           {func(m *machine) { m.definition.MemoryBytes = 32 << 20 }, "needs at least"},
		"no disk in the image":    {func(m *machine) { m.definition.Image = true }, "has no disk"},
		"an unknown model":        {func(m *machine) { m.definition.CPUModel = "abacus" }, "abacus"},
		"the port is not free":    {func(m *machine) { m.definition.ReadyPort = 1 << 17 }, "invalid port"},
		"a damaged disk":          {damageDisk, "is damaged"},
		"several files as images": {severalImages, "several files"},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			test.change(m)
			m.run()
			if ended := m.awaitEnd(); ended.Cause != CauseStartFailed || !strings.Contains(ended.Message, test.want) {
				t.Errorf("ended as %+v", ended)
			}
		})
	}
}

func damageDisk(m *machine) {
	m.definition.DiskBytes = 64 << 20
	if err := os.WriteFile(filepath.Join(m.dirs.Disk, "root.qcow2"), make([]byte, 100), 0o600); err != nil {
		m.Fatal(err)
	}
}

func severalImages(m *machine) {
	m.definition.Image = true
	for _, name := range []string{"a.img", "b.img"} {
		if err := os.WriteFile(filepath.Join(m.dirs.Image, name), nil, 0o600); err != nil {
			m.Fatal(err)
		}
	}
}

// A new disk is complete when it has its name, also after a power cut: an empty file would keep the machine from starting for ever.
func TestNewDiskIsDurable(t *testing.T) {
	m := newMachine(t)
	var got []string
	before := atomicfile.Fault
	t.Cleanup(func() { atomicfile.Fault = before })
	atomicfile.Fault = func(operation, path string) error {
		got = append(got, operation+" "+filepath.Base(path))
		return nil
	}
	l := &launcher{dirs: m.dirs, definition: Definition{DiskBytes: 8 << 20}}
	if err := l.makeDisks(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"sync root.qcow2.part", "rename root.qcow2", "syncdir " + filepath.Base(m.dirs.Disk)}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDiskOfAnImage(t *testing.T) {
	m := newMachine(t)
	folder := filepath.Join(m.dirs.Image, "disk")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "root.img"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	l := &launcher{definition: m.definition, dirs: m.dirs}
	l.definition.Image = true
	for _, size := range []int64{0, 8 << 20, 4 << 20} {
		l.definition.DiskBytes = size
		if _, err := l.findSystem(); err != nil {
			t.Fatal(err)
		}
		if err := l.makeDisks(t.Context()); err != nil {
			t.Fatal(err)
		}
		want := max(l.definition.DiskBytes, 1<<20)
		if size == 4<<20 {
			want = 8 << 20 // it does not shrink
		}
		if got, err := virtualSize(filepath.Join(m.dirs.Disk, "root.qcow2")); err != nil || got != want {
			t.Errorf("with a size of %d, the disk has %d, %v", size, got, err)
		}
	}
	if got := l.config(nil).Root.Base; got == nil || filepath.Base(got.Path) != "root.img" {
		t.Errorf("the backing file is %v", got)
	}
}

func TestCheckKVM(t *testing.T) {
	if err := checkKVM(os.DevNull); err != nil {
		t.Error(err)
	}
	for device, want := range map[string]string{filepath.Join(t.TempDir(), "none"): "virtualMachines.kvmResource", t.TempDir(): "virtualMachines.kvmGroup"} {
		if err := checkKVM(device); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", device, err)
		}
	}
}

func TestNetwork(t *testing.T) {
	l := &launcher{searchDomains: searchDomains("nameserver 1.2.3.4\nsearch a.b c\n"), definition: Definition{UID: uid, Namespace: "default"}}
	config := l.networkConfig([]Port{{Port: 22}, {Port: 53, UDP: true}})
	if err := config.Validate(); err != nil || !slices.Equal(config.Search, []string{"a.b", "c"}) {
		t.Errorf("names are searched in %q; %v", config.Search, err)
	}
	var got []string
	for _, port := range config.Machines[0].Ports {
		got = append(got, fmt.Sprintf("%s %s to %d", port.Protocol, port.Host, port.GuestPort))
	}
	if want := []string{"TCP 0.0.0.0:22 to 22", "UDP 0.0.0.0:53 to 53"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
