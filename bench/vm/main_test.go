package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/bench/internal/commandtest"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestLongQuick runs everything with few machines. What it measures of times and memory means nothing here; what it counts
// must be right.
func TestLongQuick(t *testing.T) {
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %v", err)
		}
	}
	if _, err := env.Binary(filepath.Join("guest", "guest.json")); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	_, r := commandtest.Quick(t, benchmark)
	ready := map[string]int{}
	for _, one := range r.Bursts {
		ready[one.Contestant] += one.Ready.Count
		if one.Overhead.QEMU <= 0 || one.Overhead.Guest <= 0 || one.Overhead.Guest > memory<<20 || (one.Overhead.Shim > 0) != (one.Contestant == keelson) {
			t.Errorf("%s: the memory of a machine is %+v", one.Contestant, one.Overhead)
		}
	}
	if diff := cmp.Diff(map[string]int{bare: 1, keelson: 1}, ready); diff != "" {
		t.Errorf("machines in bursts (-want +got):\n%s", diff)
	}
	if len(r.Steady.Restarts) != 1 || !r.Steady.Restarts[0].Same {
		t.Errorf("restarts of the manager: %+v", r.Steady.Restarts)
	}
	if got := len(r.Targets); got != 5 {
		t.Errorf("%d targets, want 5", got)
	}
	machines, err := findMachines([]string{uuidOf(0)})
	if err == nil {
		t.Errorf("left behind: %+v", machines)
	}
}

func TestParse(t *testing.T) {
	few, none := quick(), defaults()
	few.Sizes, few.Strict = []int{3, 7}, true
	none.Sizes = nil
	commandtest.Parse(t, parse, map[string]options{
		"": defaults(), "--quick": quick(), "--sizes=7,3,7 --quick --strict": few, "--sizes=0": none,
	}, "--sizes=many", "--sizes=-1", "--sizes=251", "--rounds=0", "--restarts=0", "--steady=251", "extra")
}

func burstOf(contestant string, n int, last, userSpace time.Duration) *burst {
	b := &burst{Contestant: contestant, Machines: n, Ready: measure.Distribution{Count: n, Max: last * time.Millisecond}}
	if userSpace > 0 {
		b.UserSpace = &measure.Distribution{Count: n, Max: userSpace * time.Millisecond}
	}
	return b
}

func TestTargets(t *testing.T) {
	const mb = 1 << 20
	r := &results{
		Options: options{Sizes: []int{1, 50}, Steady: 50},
		Bursts: []*burst{
			burstOf(bare, 1, 1000, 900), burstOf(keelson, 1, 1150, 0), burstOf(bare, 1, 1100, 950), burstOf(keelson, 1, 1230, 0),
			burstOf(bare, 50, 50000, 40000), burstOf(keelson, 50, 56000, 0),
		},
		Steady: &steady{
			Filling:  writes{"PATCH virtualmachines": 50, "PUT virtualmachines/status": 250},
			Empty:    footprint{Live: 10 * mb, Stacks: mb},
			Full:     footprint{Live: 14 * mb, Stacks: 2 * mb},
			Restarts: []restart{{InCharge: 700 * time.Millisecond}, {InCharge: 1300 * time.Millisecond}, {InCharge: 900 * time.Millisecond}},
		},
	}
	type verdict struct {
		Value float64
		Met   bool
	}
	got := map[string]verdict{}
	for _, target := range slices.Concat(r.burstTargets(), r.steadyTargets()) {
		got[target.Name] = verdict{target.Value, target.Met()}
	}
	want := map[string]verdict{
		"1 machine: ready, above bare QEMU":                  {140, true},
		"1 machine: user space of the guest":                 {925, true},
		"50 machines: last one ready, in times of bare QEMU": {1.12, false},
		"50 machines: a new manager in charge":               {900, true},
		"writes a machine until steady, events included":     {6, true},
		"memory of the manager a machine":                    {5 * mb / 50e3, false},
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSplitMemory(t *testing.T) {
	const smaps = `7f0000000000-7f0008000000 rw-p 00000000 00:00 0
Size:             131072 kB
Rss:              100000 kB
Pss:               99000 kB
Pss_Dirty:         98000 kB
VmFlags: rd wr mr mw me ac dd hg
7f0010000000-7f0018000000 rw-p 00000000 fe:00 77                         /some/file
Pss:                 300 kB
7ffc00000000-7ffc00100000 rwxp 00000000 00:00 0
Pss:                  20 kB
`
	guest, rest, err := splitMemory([]byte(smaps), 128<<20)
	if err != nil || guest != 99000<<10 || rest != 320<<10 {
		t.Errorf("got %d and %d, %v", guest, rest, err)
	}
	if _, _, err := splitMemory([]byte(smaps), 64<<20); err == nil {
		t.Error("a process without the memory of a guest has it")
	}
	if guest, rest, err := splitMemory([]byte(smaps), 0); err != nil || guest != 0 || rest != 99320<<10 {
		t.Errorf("without a guest: %d and %d, %v", guest, rest, err)
	}
}

func TestUnconfined(t *testing.T) {
	got := unconfined([]string{
		"qemu", "-chardev", "socket,id=console,fd=104,server=on,wait=off,logfile=/dev/fdset/100", "-add-fd", "fd=101,set=101",
		"-blockdev", `{"filename":"/dev/fdset/101","read-only":true}`, "-kernel", "/proc/self/fd/102",
	}, map[string]string{"102": "/guest/kernel"})
	want := []string{
		"qemu", "-chardev", "socket,id=console,path=console.sock,server=on,wait=off,logfile=serial.log",
		"-blockdev", `{"filename":"seed.img","read-only":true}`, "-kernel", "/guest/kernel",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The script must give each machine its own, and the same arguments otherwise.
func TestScript(t *testing.T) {
	template := &template{arguments: []string{"qemu", "-name", "guest=a/b", "-uuid", "x", "-device", "net,mac=00:01", "-append", "it's quoted"}}
	want := []string{"qemu", "-name", "guest=bare-10,debug-threads=on", "-uuid", "00000000-0000-4000-8000-00000000000a",
		"-device", "net,mac=52:54:00:00:00:0a", "-append", "it's quoted"}
	if diff := cmp.Diff(want, template.argumentsOf(10)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	script := template.script(2)
	if strings.Count(script, `'it'\''s quoted'`) != 2 || !strings.Contains(script, "mkdir 1 && cp seed.img 1") {
		t.Errorf("the script is:\n%s", script)
	}
}
