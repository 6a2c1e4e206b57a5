package process

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestShimKilledWhileRunning: the child goes on, is found, and its end is noticed; only its exit status is unknown.
func TestShimKilledWhileRunning(t *testing.T) {
	for _, found := range []bool{false, true} {
		t.Run(fmt.Sprintf("found again %t", found), func(t *testing.T) {
			t.Parallel()
			id := newID()
			d := open(t, newDir(t))
			p := start(t, d, sleeper(id))
			shim := shimOf(t, p)
			if err := shim.signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			shim.wait(waitTimeout)
			if found {
				d = reopen(t, d)
				p = find(t, d, id)
			}
			requireCensus(t, id, census{Children: 1})
			if diff := cmp.Diff(Status{ID: id, State: Running}, p.Status(), ignoreTimes); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
			if err := p.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(Status{ID: id, State: Lost}, waitDone(t, p), ignoreTimes); diff != "" {
				t.Errorf("status (-want +got):\n%s", diff)
			}
		})
	}
}

// TestShimSurvivesSignals: what a terminal or a careless kill sends does not end the shim.
func TestShimSurvivesSignals(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t))
	p := start(t, d, script(newID(), `trap "exit 9" USR1; echo ready; while :; do sleep 0.01; done`))
	eventually(t, "ready", func() bool { return p.Status().LogTail == "ready\n" })
	shim := shimOf(t, p)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGTSTP} {
		if err := shim.signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	if got := waitDone(t, p); got.State != Exited || got.ExitCode != 9 {
		t.Errorf("status %+v", got)
	}
}

// TestShimHangsAtTheEnd: a shim that does not come to write exit.json delays Done for a bounded time only, cannot
// spoil the next process of the ID, and what it wrote in time is still taken.
func TestShimHangsAtTheEnd(t *testing.T) {
	t.Parallel()
	d := open(t, newDir(t), shortTimeout)
	spec := sleeper(newID())
	p := start(t, d, spec)
	shim := shimOf(t, p)
	if err := shim.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if got := waitDone(t, p).State; got != Lost {
		t.Errorf("state %s", got)
	}
	again := start(t, d, spec)
	if !shim.wait(waitTimeout) {
		t.Error("the old shim is still there")
	}
	if got := again.Status().State; got != Running {
		t.Errorf("state of the next process: %s", got)
	}
	requireCensus(t, spec.ID, census{Children: 1, Shims: 1})
}
