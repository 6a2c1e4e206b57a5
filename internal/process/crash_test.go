package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The steps at which the crash tests kill. A step that is added to the code must be added here, and is then tested.
var (
	startSteps = []string{
		"start: begun", "start: folder made", "start: intent written", "start: leftovers removed",
		"start: shim started", "start: request sent", "start: reply read", "start: confirmed",
	}
	shimSteps = []string{
		"shim: begun", "shim: request read", "shim: space reserved", "shim: child started", "shim: running written",
		"shim: replied",
	}
	shimEndSteps = []string{"shim: child ended", "shim: exit written"}
	stopSteps    = []string{
		"stop: begun", "stop: asked", "stop: before SIGTERM", "stop: after SIGTERM", "stop: before SIGKILL",
		"stop: after SIGKILL",
	}
	removeSteps = []string{"remove: record gone"}
)

const stubborn = `trap "" TERM; echo ready; while :; do sleep 0.05; done`

// census counts the living processes of one ID on the whole machine: children (of any start) and shims.
type census struct{ Children, Shims int }

func count(t *testing.T, id string) census {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var c census
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		markers := environ(pid)
		s, err := readStat(pid)
		if err != nil || s.gone {
			continue
		}
		if strings.HasPrefix(markers["KEELSON_PROCESS"], id+":") && s.session == pid {
			c.Children++
		}
		if strings.HasPrefix(markers["KEELSON_SHIM"], id+":") {
			c.Shims++
		}
	}
	return c
}

// requireCensus waits for shims that are on their way out, but not for children: there may never be one too many.
func requireCensus(t *testing.T, id string, want census) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d shims of %s", want.Shims, id), func() bool { return count(t, id).Shims == want.Shims })
	if diff := cmp.Diff(want, count(t, id)); diff != "" {
		t.Fatalf("processes of %s (-want +got):\n%s", id, diff)
	}
}

func killAt(name string) string { return fmt.Sprintf("%s=%d %s", testStep, syscall.SIGKILL, name) }

func stopAt(name string) string { return fmt.Sprintf("%s=%d %s", testStep, syscall.SIGSTOP, name) }

func inShim(variable string) string {
	return testShim + strings.TrimPrefix(variable, "KEELSON_TEST_")
}

// traced returns what the traced processes passed of one kind, without repetitions.
func traced(t *testing.T, path, kind string) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), kind+" ")
		if ok && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}

// TestCrashStepsAreComplete proves that the lists above name every step there is, in order.
func TestCrashStepsAreComplete(t *testing.T) {
	t.Parallel()
	dir, id := newDir(t), newID()
	traces := t.TempDir()
	run := func(name string, spec Spec) []string {
		path := filepath.Join(traces, name)
		h := startHelper(t, name, helperArgs{Dir: dir, Spec: spec},
			[]string{testTrace + "=" + path, inShim(testTrace + "=" + path + "-shim")})
		h.mustResult(t)
		h.kill()
		return traced(t, path, "step")
	}
	got := map[string][]string{"start": run("start", script(id, stubborn))}
	d := open(t, dir)
	eventually(t, "ready", func() bool { return find(t, d, id).Status().LogTail == "ready\n" })
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	got["stop"] = run("stop", Spec{ID: id})
	eventually(t, "the end of the shim", func() bool { return count(t, id).Shims == 0 })
	got["remove"] = run("remove", Spec{ID: id})
	got["shim"] = traced(t, filepath.Join(traces, "start-shim"), "step")
	want := map[string][]string{
		"start": startSteps, "stop": stopSteps, "remove": removeSteps, "shim": append(shimSteps, shimEndSteps...),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
}

// settled is what every crash during a start must lead to: after Open there is exactly one process, which is found,
// or none and none to come; and another Start leads to exactly one.
func settled(t *testing.T, dir string, spec Spec, otherTimeout ...time.Duration) {
	t.Helper()
	d := open(t, dir, otherTimeout...)
	p, err := d.Find(spec.ID)
	if err != nil && !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
	alive := err == nil && p.Status().State == Running
	again, startErr := d.Start(spec)
	if alive {
		if !errors.Is(startErr, ErrExists) {
			t.Fatalf("second start of a process that runs: %v", startErr)
		}
		again = p
	} else if startErr != nil {
		t.Fatalf("start after the crash: %v", startErr)
	}
	c := count(t, spec.ID)
	if c.Children != 1 {
		t.Fatalf("%d processes (found alive: %t)", c.Children, alive)
	}
	if id, err := identify(again.PID()); err != nil || !isAlive(id, again.rec.marker()) {
		t.Fatalf("pid %d is not the process: %v", again.PID(), err)
	}
	if err := again.Stop(t.Context(), StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(spec.ID); err != nil {
		t.Fatal(err)
	}
	requireCensus(t, spec.ID, census{})
}

// previousRecord leaves the record of a process that has ended, so that the next start replaces it.
func previousRecord(t *testing.T, dir, id string) {
	t.Helper()
	d := open(t, dir)
	waitDone(t, start(t, d, script(id, "exit 1")))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestManagerKilledDuringStart(t *testing.T) {
	for _, replace := range []bool{false, true} {
		for _, name := range startSteps {
			t.Run(fmt.Sprintf("%s, replace %t", name, replace), func(t *testing.T) {
				t.Parallel()
				dir, spec := newDir(t), sleeper(newID())
				if replace {
					previousRecord(t, dir, spec.ID)
				}
				h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec}, []string{killAt(name)})
				if _, alive := h.result(t); alive {
					t.Fatal("the manager did not come to this step")
				}
				settled(t, dir, spec)
			})
		}
	}
}

func TestShimKilledDuringStart(t *testing.T) {
	for _, name := range shimSteps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, spec := newDir(t), sleeper(newID())
			h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec}, []string{inShim(killAt(name))})
			result, alive := h.result(t)
			if !alive {
				t.Fatal("the manager was killed")
			}
			// A start that reports an error has left nothing; one that reports success has left one process.
			want := census{}
			if result.Error == "" {
				want.Children = 1
			}
			requireCensus(t, spec.ID, want)
			h.kill()
			settled(t, dir, spec)
		})
	}
}

func TestManagerAndShimKilledDuringStart(t *testing.T) {
	for _, name := range shimSteps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, spec := newDir(t), sleeper(newID())
			h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec},
				[]string{killAt("start: request sent"), inShim(killAt(name))})
			if _, alive := h.result(t); alive {
				t.Fatal("the manager did not come to this step")
			}
			settled(t, dir, spec)
		})
	}
}

// TestShimHangsDuringStart: the manager is dead and the shim makes no progress. The next manager ends the shim before
// it decides, so that no child can come into being later.
func TestShimHangsDuringStart(t *testing.T) {
	for _, name := range shimSteps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, spec := newDir(t), sleeper(newID())
			h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec},
				[]string{killAt("start: request sent"), inShim(stopAt(name))})
			if _, alive := h.result(t); alive {
				t.Fatal("the manager did not come to this step")
			}
			settled(t, dir, spec, shortTimeout)
		})
	}
}

func TestManagerKilledDuringStop(t *testing.T) {
	for _, name := range stopSteps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, spec := newDir(t), script(newID(), stubborn)
			d := open(t, dir)
			p := start(t, d, spec)
			eventually(t, "ready", func() bool { return p.Status().LogTail == "ready\n" })
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			h := startHelper(t, "stop", helperArgs{Dir: dir, Spec: spec}, []string{killAt(name)})
			if _, alive := h.result(t); alive {
				t.Fatal("the manager did not come to this step")
			}
			d = open(t, dir)
			p = find(t, d, spec.ID)
			if name == "stop: after SIGKILL" {
				waitDone(t, p)
			} else if got := p.Status().State; got != Running {
				t.Errorf("state %s before SIGKILL", got)
			}
			if err := p.Stop(t.Context(), StopOptions{TermTimeout: 1}); err != nil {
				t.Fatal(err)
			}
			want := Status{ID: spec.ID, State: Exited, ExitCode: -1, Signal: "SIGKILL", LogTail: "ready\n"}
			if diff := cmp.Diff(want, p.Status(), ignoreTimes); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			requireCensus(t, spec.ID, census{})
		})
	}
}

func TestManagerKilledDuringRemove(t *testing.T) {
	for _, name := range removeSteps {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, spec := newDir(t), sleeper(newID())
			previousRecord(t, dir, spec.ID)
			h := startHelper(t, "remove", helperArgs{Dir: dir, Spec: spec}, []string{killAt(name)})
			if _, alive := h.result(t); alive {
				t.Fatal("the manager did not come to this step")
			}
			d := open(t, dir)
			if _, err := d.Find(spec.ID); !errors.Is(err, ErrNotFound) {
				t.Errorf("find: %v", err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			settled(t, dir, spec)
		})
	}
}

// TestShimKilledAtTheEnd: what the shim had not written is Lost, what it had written is kept.
func TestShimKilledAtTheEnd(t *testing.T) {
	for name, want := range map[string]Status{
		"shim: child ended":  {State: Lost},
		"shim: exit written": {State: Exited, ExitCode: 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, spec := newDir(t), script(newID(), "exit 3")
			h := startHelper(t, "start", helperArgs{Dir: dir, Spec: spec}, []string{inShim(killAt(name))})
			h.mustResult(t)
			h.kill()
			want.ID = spec.ID
			d := open(t, dir)
			if diff := cmp.Diff(want, waitDone(t, find(t, d, spec.ID)), ignoreTimes); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			settled(t, dir, sleeper(spec.ID))
		})
	}
}
