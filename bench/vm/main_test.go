package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestSmokeQuick runs everything with few machines. Its times and memory mean nothing; its counts must be right.
func TestSmokeQuick(t *testing.T) {
	for _, program := range []string{"qemu-system-x86_64", "qemu-img"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("SKIP: %v", err)
		}
	}
	if _, err := env.Binary(filepath.Join("guest", "guest.json")); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	r := harness.Quick(t, measure)
	for _, contestant := range []string{bare, keelson} {
		of := r.Samples.Of(contestant, 1)
		figure := func(name string) float64 { return of.Median(name, harness.Last) }
		if len(of.Pool("ready")) != 1 || figure("QEMU") <= 0 || figure("guest") <= 0 || figure("guest") > memory<<20 ||
			(figure("shim") > 0) != (contestant == keelson) {
			t.Errorf("%s: %v", contestant, of.Pool("ready"))
		}
	}
	full, restarts := r.Samples.Of(steadyFull, 2), r.Samples.Of(restarted, 2)
	if diff := cmp.Diff(full.Pool("pids"), restarts.Pool("pids")); len(restarts) != 1 || diff != "" {
		t.Errorf("%d restarts of the manager; processes before and after (-before +after):\n%s", len(restarts), diff)
	}
	for _, contestant := range []string{users, ours, sockets} {
		of := r.Samples.Of(contestant, 2)
		for _, figure := range traffics {
			if has, want := of.Median(figure, harness.Last) > 0, carries(contestant, figure); has != want {
				t.Errorf("%s has a figure of %s: %t, want %t", contestant, figure, has, want)
			}
		}
	}
	for _, contestant := range []string{instant, forked, woken} {
		if of := r.Samples.Of(contestant, 1); len(of) != 1 || of.Median("each", harness.Last) <= 0 {
			t.Errorf("%s: %d samples without memory", contestant, len(of))
		}
	}
	for _, contestant := range []string{reachedBare, reachedBoot, reachedInstant} {
		of := r.Samples.Of(contestant, 1)
		if address, prompt := of.Median("address", harness.Last), of.Median("prompt", harness.Last); address <= 0 || prompt <= address {
			t.Errorf("%s: an address after %f s, and a prompt after %f s", contestant, address, prompt)
		}
	}
	if got := len(r.Targets); got != 18 {
		t.Errorf("%d targets, want 18", got)
	}
	for _, pid := range r.Samples.Of(bare, 1).Pool("pids") {
		if arguments, err := commandLine(int(pid)); err == nil {
			t.Errorf("left behind: %q", arguments)
		}
	}
}

// TestLongQuickPods runs everything about machines in Pods but the loss of a node, which takes a minute.
func TestLongQuickPods(t *testing.T) {
	env.RealNode(t)
	if os.Geteuid() != 0 {
		t.Skip("SKIP: several nodes need root")
	}
	if _, err := env.Binary(filepath.Join("launcher", "keelson-launcher")); err != nil {
		if out, err := exec.Command("../../hack/launcher-image.sh", "../../bin/launcher").CombinedOutput(); err != nil {
			t.Fatalf("make launcher: %v\n%s", err, out)
		}
	}
	r := harness.Quick(t, measure, "--sizes=0", "--traffic=0", "--steady=0", "--pods=2", "--simulated=5", "--burst=10")
	for contestant, figures := range map[string][]string{
		besidePods: {"ready"}, inPod: {"ready", podCreated, podBound, launcherRuns, qemuRuns, "gone", "besides QEMU"}, inPodDisk: {"ready", "gone"},
	} {
		of := r.Samples.Of(contestant, aloneSize)
		for _, figure := range figures {
			if len(of) != 1 || of.Median(figure, harness.Last) <= 0 {
				t.Errorf("%s: %d samples, %s %v", contestant, len(of), figure, of.Pool(figure))
			}
		}
	}
	moved := r.Samples.Of(drained, 2)
	if empty, ready := moved.Median("empty", harness.Last), moved.Median("ready", harness.Last); empty <= 0 || ready <= empty {
		t.Errorf("a node was drained after %v s, and its machines were ready elsewhere after %v s", empty, ready)
	}
	for _, contestant := range []string{plainPod, simulatedMachine} {
		of := r.Samples.Of(contestant, 10)
		if ready, took := of.Pool("ready"), of.Median(processor, harness.Last); len(ready) != 10 || took <= 0 {
			t.Errorf("%d of 10, with a processor time of %v s each: %s", len(ready), took, contestant)
		}
	}
	steady := r.Samples.Of(crowd, 5)
	if len(steady.Pool("ready")) != 5 || steady.Median("RSS", harness.Last) <= 0 || len(steady.Pool(requests)) != 1 {
		t.Errorf("%v", steady.Pool("ready"))
	}
	if got := len(r.Targets); got != 7 {
		t.Errorf("%d targets, want 7", got)
	}
}

// carries reports whether a figure of a contestant is measured.
func carries(contestant, figure string) bool {
	switch contestant {
	case sockets:
		return figure == toGuest
	case users:
		return figure != dialToGuest && figure != dialFromGuest
	}
	return true
}

func TestReport(t *testing.T) {
	b := &bench{Run: harness.NewRun("test", io.Discard), sizes: &[]int{1, 50}, traffic: &[]int{2}, steady: 50, idle: time.Minute,
		pods: 5, losses: 2, simulated: &[]int{10000}, burstSize: 1000}
	add := func(contestant string, size int, figure string, value float64) *harness.Sample {
		s := b.NewSample(contestant, 0, size)
		s.Set(figure, value)
		return s
	}
	add(bare, 1, "ready", 1.0).Set("user space", 0.9)
	add(bare, 1, "ready", 1.1).Set("user space", 0.95)
	add(keelson, 1, "ready", 1.15)
	add(keelson, 1, "ready", 1.23)
	add(bare, 50, "ready", 50).Set("user space", 40)
	add(keelson, 50, "ready", 56)
	add(steadyEmpty, 50, "live heap", 10e6).Set("stacks", 1e6)
	add(forked, 50, "each", 71e6)
	add(woken, 50, "each", 70e6)
	add(reachedInstant, 1, "address", 0.6).Set("prompt", 0.91)
	add(idler, 1, "first byte", 0.4)
	add(idler, 1, "first byte", 0.6)
	add(sleeper, 128, asleep, 0.425).Set(awake, 0.36)
	full := add(steadyFull, 50, "live heap", 14e6)
	full.Set("stacks", 2.05e6)
	full.Set("network", 20e6)
	full.Set("network own", 4e6)
	full.Set("network busy", 0.002)
	full.Requests = harness.Requests{"PATCH virtualmachines": 50, "PUT virtualmachines/status": 250}
	add(restarted, 50, "in charge", 0.7)
	add(restarted, 50, "in charge", 1.3)
	add(restarted, 50, "in charge", 0.9)
	add(besidePods, 1, "ready", 2)
	inAPod := add(inPod, 1, "ready", 2.6)
	inAPod.Set("gone", 1.6)
	leaving := add(drained, 5, "empty", 14)
	leaving.Set("besides QEMU", 21e6)
	add(lost, 1, "ready", 5)
	add(lost, 1, "ready", 20)
	add(crowd, 10000, "RSS", 300e6).Set(requests, 5)
	addRound := func(contestant string, round, size int, figure string, value float64) {
		add(contestant, size, figure, value).Round = round
	}
	for round, took := range []float64{10, 8, 9} {
		addRound(plainPod, round, 1000, "ready", took)
		addRound(simulatedMachine, round, 1000, "ready", 10)
	}
	for round, least := range []float64{2, 5, 3} { // what else runs is on both alike
		addRound(users, round, 1, "online", least)
		addRound(ours, round, 1, "online", least+0.01*float64(round+1))
		addRound(users, round, 2, guestToGuest, least*1e6)
		addRound(ours, round, 2, guestToGuest, least*2e6)
		addRound(users, round, 2, toGuest, least*1e6)
		addRound(ours, round, 2, toGuest, least*0.75e6)
	}
	b.report()
	harness.CheckTargets(t, b.Run, map[string]string{
		"1 machine: ready, above bare QEMU":                           "140 ms PASS",
		"1 machine: user space of the guest":                          "925 ms PASS",
		"50 machines: last one ready, in times of bare QEMU":          "1.12× MISS",
		"50 machines, fork with memory: memory of each":               "71 MB MISS",
		"50 machines, fork, woken: memory of each":                    "70 MB PASS",
		"1 machine from a template: address":                          "600 ms PASS",
		"1 machine from a template: SSH prompt":                       "910 ms MISS",
		"1 idle machine: first byte of a connection that wakes it":    "500 ms PASS",
		"128 MiB: asleep":                                             "425 ms PASS",
		"128 MiB: awake":                                              "360 ms MISS",
		"50 machines: a new manager in charge":                        "900 ms PASS",
		"writes a machine until steady, events included":              "6 PASS",
		"memory of the manager a machine":                             "101 kB MISS",
		"1 machine on a network: online, above the user network":      "20 ms PASS",
		"2 machines: guest to guest, in times of the user network":    "2× PASS",
		"2 machines: host to guest, in times of the user network":     "0.75× MISS",
		"memory of the switch of their network":                       "20 MB PASS",
		"processor that it takes while they are idle":                 "0.2 % MISS",
		"1 machine in a Pod: ready, above bare QEMU":                  "600 ms PASS",
		"1 machine in a Pod: deleted":                                 "1600 ms MISS",
		"5 machines in Pods: memory of each Pod besides QEMU":         "21 MB MISS",
		"node with 5 machines drained":                                "14 s PASS",
		"node lost: machine ready elsewhere, above a boot in a Pod":   "9.9 s MISS",
		"1000 machines created at once: rate, in times of plain Pods": "0.9× PASS",
		"10000 machines in Pods: memory of the manager":               "300 MB PASS",
		"10000 machines in Pods: requests of the manager in a minute": "5 MISS",
	})
}

func TestSplitMemory(t *testing.T) {
	const smaps = `7f0000000000-7f0008000000 rw-p 00000000 00:00 0
Size:             131072 kB
Rss:              100000 kB
Pss:               99000 kB
Pss_Dirty:         98000 kB
VmFlags: rd wr mr mw me ac dd hg
7f0010000000-7f0018000000 rw-p 00000000 fe:00 77                         /some/file
Size:             131072 kB
Pss:                 300 kB
7ffc00000000-7ffc00100000 rwxp 00000000 00:00 0
Size:               1024 kB
Pss:                  20 kB
`
	guest, rest, err := splitMemory(smaps, 128<<20)
	if err != nil || guest != 99000<<10 || rest != 320<<10 {
		t.Errorf("got %v and %v, %v", guest, rest, err)
	}
	fromTemplate := strings.Replace(smaps, "00:00 0\nSize:             131072", "00:01 9  /memfd:keelson-template (deleted)\nSize: 131072", 1)
	if guest, rest, err = splitMemory(fromTemplate, 128<<20); err != nil || guest != 99000<<10 || rest != 320<<10 {
		t.Errorf("with the memory of a template: %v and %v, %v", guest, rest, err)
	}
	if _, _, err := splitMemory(smaps, 64<<20); err == nil {
		t.Error("splitMemory finds the memory of a guest in a process without one")
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
