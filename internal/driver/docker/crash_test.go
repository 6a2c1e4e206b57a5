package docker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// The tests run managers that get killed. Such a manager is this test binary with these
// variables.
const (
	helperState = "KEELSON_TEST_STATE" // the state directory
	helperHost  = "KEELSON_TEST_HOST"  // the address of the engine
	helperGoal  = "KEELSON_TEST_GOAL"  // what to do: run, stop or delete
	helperStep  = "KEELSON_TEST_STEP"  // at which step to kill yourself; empty names them all
)

// runHelper is a manager that is killed at a step.
func runHelper(goal string) error {
	step = func(name string) {
		if os.Getenv(helperStep) == "" {
			fmt.Println(name)
		}
		if name == os.Getenv(helperStep) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:forbidigo // this process
			select {}
		}
	}
	d, err := Open(Options{StateDir: os.Getenv(helperState), Host: os.Getenv(helperHost), GuestDir: guestDir, Log: logr.Discard()})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(reach(ctx, d, small(uid), goal), d.Close())
}

// reach does what a controller does until the machine is as it should be.
func reach(ctx context.Context, d *Driver, machine backend.Machine, goal string) error {
	for ctx.Err() == nil {
		server, err := d.Observe(ctx, machine.Identity)
		gone := errors.Is(err, backend.ErrNotFound)
		if err != nil && !gone {
			return err
		}
		var call error
		switch {
		case goal == "delete":
			if call = d.Delete(ctx, machine.Identity, backend.DeleteOptions{}); call == nil {
				return nil
			}
		case server.Task != backend.TaskNone:
		case gone || server.State == backend.StateAbsent:
			call = d.Create(ctx, machine)
		case goal == "run" && server.State == backend.StateRunning,
			goal == "stop" && server.State == backend.StateStopped && server.Ended != nil && server.Ended.Cause == backend.CauseRequested:
			return nil
		case goal == "run" && server.State == backend.StateStopped:
			call = d.Start(ctx, machine)
		case goal == "stop":
			call = d.Stop(ctx, machine.Identity, 0)
		}
		if call != nil && !errors.Is(call, backend.ErrInProgress) {
			return call
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // this plays a manager, in a process of its own
	}
	return ctx.Err()
}

// helper runs a manager with a goal until it is killed at a step, and returns what it
// prints.
func (w *world) helper(goal, step string) (string, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), helperState+"="+w.options.StateDir, helperHost+"="+w.options.Host, helperGoal+"="+goal, helperStep+"="+step)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		w.Fatalf("the manager to %s failed: %s", goal, exit.Stderr)
	}
	return string(out), err
}

// removeGuests removes the images of the default guest, so that it is imported again.
func (w *world) removeGuests() {
	w.Helper()
	found, err := w.api.ImageList(w.Context(), client.ImageListOptions{Filters: client.Filters{}.Add("reference", guestRepository)})
	w.do(err)
	for _, image := range found.Items {
		_, err := w.api.ImageRemove(w.Context(), image.ID, client.ImageRemoveOptions{})
		w.do(err)
	}
}

// Whatever line a manager is killed at, the next one ends where an undisturbed one does:
// with one container or none, and nothing left over.
func TestManagerKilledAtEveryStep(t *testing.T) {
	w := newWorld(t)
	w.do(w.driver.Close())
	must := func(goal string) []string {
		t.Helper()
		out, err := w.helper(goal, "")
		if err != nil {
			t.Fatal(err)
		}
		return slices.Compact(strings.Fields(strings.ReplaceAll(out, " ", "_")))
	}
	for _, test := range []struct{ before, goal string }{
		{"", "run"}, {"run", "stop"}, {"run", "delete"}, {"stop", "delete"}, {"stop", "run"},
	} {
		t.Run(strings.TrimSpace(test.before+" "+test.goal), func(t *testing.T) {
			w.T = t
			reset := func() {
				t.Helper()
				must("delete")
				w.removeGuests()
				if test.before != "" {
					must(test.before)
				}
			}
			reset()
			steps := must(test.goal)
			if len(steps) < 2 {
				t.Fatalf("the steps are %v", steps)
			}
			for _, step := range steps {
				reset()
				if _, err := w.helper(test.goal, strings.ReplaceAll(step, "_", " ")); err == nil {
					t.Errorf("at %q nobody was killed", step)
				}
				must(test.goal)
				if left := w.containers(t.Context()); len(left) > 1 || test.goal == "delete" && len(left) > 0 {
					t.Errorf("after a kill at %q there are %v", step, left)
				}
			}
			must("delete")
			if left := w.leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	w.T = t
}
