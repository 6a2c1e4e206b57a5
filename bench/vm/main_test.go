package main

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

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
	for contestant, want := range map[string]int{bare: 2, keelson: 1, woken: 1, instant: 1, forked: 1, forkWoken: 1} {
		of := r.Samples.Of(contestant, 1)
		if len(of.Pool("ready")) != want || of.Median("each", harness.Last) <= 0 {
			t.Errorf("%s: ready %v, memory %v", contestant, of.Pool("ready"), of.Pool("each"))
		}
		if list := of.Writes(); (list != "") != slices.Contains([]string{keelson, instant, forked}, contestant) {
			t.Errorf("%s: writes %q", contestant, list)
		}
		for _, pid := range of.Pool("pids") {
			if arguments, err := harness.CommandLine(int(pid)); err == nil {
				t.Errorf("%s: left behind: %q", contestant, arguments)
			}
		}
	}
	if got := len(r.Targets); got != 4 {
		t.Errorf("%d targets, want 4", got)
	}
}

// Bare machines must have the same arguments, but for descriptors and what each has of its own.
func TestArguments(t *testing.T) {
	template := &template{arguments: unconfined([]string{
		"qemu", "-name", "guest=a/b", "-uuid", "x", "-device", "net,mac=00:01", "-add-fd", "fd=101,set=101",
		"-chardev", "socket,id=console,fd=104,server=on,wait=off,logfile=/dev/fdset/100", "-append", "it's quoted",
		"-blockdev", `{"filename":"/dev/fdset/101","read-only":true}`, "-kernel", "/proc/self/fd/102",
	}, map[string]string{"102": "/guest/kernel"})}
	want := []string{
		"qemu", "-name", "guest=bare-10,debug-threads=on", "-uuid", "00000000-0000-4000-8000-00000000000a", "-device", "net,mac=52:54:00:00:00:0a",
		"-chardev", "socket,id=console,path=console.sock,server=on,wait=off,logfile=serial.log", "-append", "it's quoted",
		"-blockdev", `{"filename":"seed.img","read-only":true}`, "-kernel", "/guest/kernel",
	}
	if diff := cmp.Diff(want, template.argumentsOf(10)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
