package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

func TestParseStat(t *testing.T) {
	flagged := func(name, state string, flags, threads int) string {
		return fmt.Sprintf("42 (%s) %s 1 42 7 0 -1 %d 1 2 3 4 5 6 7 8 20 0 %d 0 98765 1 2 3", name, state, flags, threads)
	}
	line := func(name, state string, threads int) string { return flagged(name, state, 4194560, threads) }
	for _, test := range []struct {
		name string
		line string
		want stat
	}{
		{"running", line("sleep", "R", 1), stat{start: "98765", session: 7}},
		{"stopped", line("sleep", "T", 1), stat{start: "98765", session: 7}},
		{"a name made to deceive", line("a) Z (b", "S", 1), stat{start: "98765", session: 7}},
		{"a zombie is gone", line("sleep", "Z", 1), stat{start: "98765", session: 7, gone: true}},
		{"the first thread has ended, another lives", line("sleep", "Z", 2), stat{start: "98765", session: 7}},
		{"on its way out", flagged("sleep", "R", 4194564, 1), stat{start: "98765", session: 7, exiting: true}},
		{"the first thread has ended, another may live on", flagged("sleep", "Z", 4194564, 2), stat{start: "98765", session: 7}},
		{"dead", line("sleep", "X", 0), stat{start: "98765", session: 7, gone: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := parseStat(test.line)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(stat{})); diff != "" {
				t.Errorf("stat (-want +got):\n%s", diff)
			}
		})
	}
	for _, bad := range []string{"", "42 (sleep) R", "42 sleep R 1 2 3", line("a", "R", 1)[:20]} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q gives %+v", bad, got)
		}
	}
}

// stranger is a process that has nothing to do with us; marker may give it an environment.
func stranger(t *testing.T, env ...string) identity {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the stranger was hit: %v", err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("the stranger ended: %v", err)
		}
	})
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestRecycledPIDIsNeverTouched writes records that name a stranger, as they are left behind when the process is gone
// and its pid was given away again.
func TestRecycledPIDIsNeverTouched(t *testing.T) {
	for _, test := range []struct {
		name   string
		env    string
		change func(rec *record, run *running)
	}{
		{"another start time", "", func(_ *record, run *running) { run.Start += "0" }},
		{"another marker", childMarker + "other:1", func(*record, *running) {}},
		{"another start of the same ID", childMarker + "victim:1", func(*record, *running) {}},
		{"another boot", "", func(rec *record, _ *running) { rec.BootID = "yesterday" }},
		{"no child, and the shim's pid has another start time", "", func(_ *record, run *running) {
			run.Shim, run.identity = run.identity, identity{PID: 1 << 22, Start: "1"}
			run.Shim.Start += "0"
		}},
		{"no child, and the shim's pid has another marker", shimMarker + "other:1", func(_ *record, run *running) {
			run.Shim, run.identity = run.identity, identity{PID: 1 << 22, Start: "1"}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			id := stranger(t, test.env)
			dir := newDir(t)
			folder := filepath.Join(dir, "victim")
			if err := os.MkdirAll(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			rec := record{ID: "victim", Nonce: "n", Path: "/bin/sleep", BootID: bootID()}
			run := &running{identity: id, Nonce: rec.Nonce}
			test.change(&rec, run)
			for name, v := range map[string]any{recordFile: rec, runningFile: run} {
				if err := atomicfile.WriteJSON(filepath.Join(folder, name), v, atomicfile.Durable); err != nil {
					t.Fatal(err)
				}
			}
			peeked, err := Peek(dir)
			if err != nil || len(peeked) != 1 || peeked[0].State != Lost {
				t.Errorf("peek: %+v, %v", peeked, err)
			}
			d := open(t, dir)
			p := find(t, d, "victim")
			waitDone(t, p)
			if got := p.Status().State; got != Lost {
				t.Errorf("state %s", got)
			}
			if err := p.Signal(syscall.SIGKILL); !errors.Is(err, ErrNotFound) {
				t.Errorf("signal: %v", err)
			}
			if err := p.Stop(t.Context(), StopOptions{}); err != nil {
				t.Errorf("stop: %v", err)
			}
			next := start(t, d, sleeper("victim"))
			if err := next.Stop(t.Context(), StopOptions{}); err != nil {
				t.Errorf("stop: %v", err)
			}
			if err := d.Remove("victim"); err != nil {
				t.Errorf("remove: %v", err)
			}
		})
	}
}

// TestLostMarkerIsNoStranger: a child that has cleared its environment is still known by pid and start time.
func TestLostMarkerIsNoStranger(t *testing.T) {
	t.Parallel()
	id := newID()
	d := open(t, newDir(t))
	p := start(t, d, script(id, "exec env -i sleep 600"))
	eventually(t, "exec", func() bool { return len(environ(p.PID())) == 0 })
	d = reopen(t, d)
	p = find(t, d, id)
	if err := p.Stop(t.Context(), StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := p.Status(); got.Signal != "SIGTERM" {
		t.Errorf("status %+v", got)
	}
}

// TestInterruptedStartFindsTheChildNotItsDescendants: they have its marker, too.
func TestInterruptedStartFindsTheChildNotItsDescendants(t *testing.T) {
	t.Parallel()
	dir, id := newDir(t), newID()
	spec := script(id, "sleep 600 & setsid sleep 600 & echo $!; wait")
	d := open(t, dir)
	p := start(t, d, spec)
	eventually(t, "descendants", func() bool { return count(t, id).Children == 2 })
	t.Cleanup(func() {
		// They are ours, but not the package's business.
		for child := range strings.Lines(p.Status().LogTail) {
			var pid int
			if _, err := fmt.Sscan(child, &pid); err != nil {
				t.Error(err)
			} else {
				signals.Send(t, pid, syscall.SIGKILL)
			}
		}
	})
	shim := shimOf(t, p)
	if err := shim.signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	shim.wait(waitTimeout)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(p.folder, runningFile)); err != nil {
		t.Fatal(err)
	}
	peeked, err := Peek(dir)
	if err != nil || len(peeked) != 1 || peeked[0].State != Running || peeked[0].PID != p.PID() {
		t.Errorf("peek: %+v, %v", peeked, err)
	}
	d = open(t, dir)
	found := find(t, d, id)
	if found.PID() != p.PID() {
		t.Errorf("found pid %d, want %d", found.PID(), p.PID())
	}
	if readRunning(found.folder, found.rec) == nil {
		t.Error("the child that was found is not noted")
	}
}

// TestWithoutPidfd is not parallel: it changes what the whole process sees.
func TestWithoutPidfd(t *testing.T) {
	restore := openPidfd
	openPidfd = func(int) (int, error) { return -1, syscall.ENOSYS }
	defer func() { openPidfd = restore }()
	id := newID()
	d := open(t, newDir(t))
	start(t, d, sleeper(id))
	d = reopen(t, d)
	p := find(t, d, id)
	if p.child.file != nil {
		t.Fatal("there is a pidfd")
	}
	if err := p.Stop(t.Context(), StopOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := p.Status(); got.State != Exited || got.Signal != "SIGTERM" {
		t.Errorf("status %+v", got)
	}
	if err := p.Signal(syscall.SIGTERM); !errors.Is(err, ErrNotFound) {
		t.Errorf("signal: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if c := count(t, id); c != (census{}) {
		t.Errorf("left: %+v", c)
	}
}

// TestZombieIsGone: nobody reaps it, as in a container whose first process does not care.
func TestZombieIsGone(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }() // its status is of no interest
	id, err := identify(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the zombie", func() bool { return !isAlive(id, "") })
	if openHandle(id, "") != nil {
		t.Error("a zombie counts as alive")
	}
}
