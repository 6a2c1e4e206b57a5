package qemu

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

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/process"
)

// The tests run managers that get killed. Such a manager is this test binary with these
// variables.
const (
	helperState = "KEELSON_TEST_STATE" // the state directory
	helperUID   = "KEELSON_TEST_UID"   // the UID of the machine
	helperImage = "KEELSON_TEST_IMAGE" // the image of the machine
	helperGoal  = "KEELSON_TEST_GOAL"  // what to do: run, stop or delete
	helperStep  = "KEELSON_TEST_STEP"  // at which step to kill yourself; empty names them all
)

func TestMain(m *testing.M) {
	process.Shim() // the test binary is also the shim of the processes that it starts
	if state := os.Getenv(helperState); state != "" {
		if err := runHelper(state); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runHelper is a manager that is killed at a step.
func runHelper(state string) error {
	step = func(name string) {
		if os.Getenv(helperStep) == "" {
			fmt.Println(name)
		}
		if name == os.Getenv(helperStep) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:forbidigo // this process
			select {}
		}
	}
	d, err := Open(Options{StateDir: state, Accelerator: AccelTCG, Log: logr.Discard()})
	if err != nil {
		return err
	}
	machine := firmware(uid)
	machine.Image.Path = os.Getenv(helperImage)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(reach(ctx, d, machine, os.Getenv(helperGoal)), d.Close())
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
		case goal == "run" && server.State == backend.StateRunning, goal == "stop" && server.State == backend.StateStopped:
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
func (w *world) helper(goal, step, image string) (string, error) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), helperState+"="+w.options.StateDir, helperUID+"="+string(uid), helperGoal+"="+goal, helperStep+"="+step, helperImage+"="+image)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		w.Fatalf("the manager to %s failed: %s", goal, exit.Stderr)
	}
	return string(out), err
}

// Whatever line a manager is killed at, the next one ends where an undisturbed one does:
// with one process or none, and nothing left over.
func TestManagerKilledAtEveryStep(t *testing.T) {
	needQEMU(t)
	image := emptyImage(t)
	for _, test := range []struct{ before, goal string }{
		{"", "run"}, {"run", "stop"}, {"run", "delete"}, {"stop", "delete"}, {"stop", "run"},
	} {
		t.Run(strings.TrimSpace(test.before+" "+test.goal), func(t *testing.T) {
			for _, at := range stepsOf(t, test.before, test.goal, image) {
				t.Run(at, func(t *testing.T) {
					w := newWorld(t)
					machine := firmware(uid)
					machine.Image.Path = image
					if test.before != "" {
						w.do(reach(t.Context(), w.driver, machine, test.before))
					}
					w.do(w.driver.Close())
					if _, err := w.helper(test.goal, at, image); err == nil {
						t.Fatalf("the manager was not killed at %q", at)
					}
					w.driver = nil
					w.open()
					if pids, err := findStrays(uid); err != nil || len(pids) > 1 {
						t.Fatalf("there are the processes %v, %v", pids, err)
					}
					w.do(reach(t.Context(), w.driver, machine, test.goal))
					switch pids, err := findStrays(uid); {
					case err != nil:
						t.Fatal(err)
					case test.goal == "run" && len(pids) != 1, test.goal != "run" && len(pids) != 0:
						t.Errorf("there are the processes %v", pids)
					}
					if server := w.server(); test.goal == "stop" && server.Ended.Cause != backend.CauseRequested {
						t.Errorf("the stop that was asked for counts as %+v", server.Ended)
					}
					w.remove()
				})
			}
		})
	}
}

// stepsOf returns the steps on the way to a goal, by going there once.
func stepsOf(t *testing.T, before, goal, image string) []string {
	t.Helper()
	w := newWorld(t)
	w.do(w.driver.Close())
	if before != "" {
		if _, err := w.helper(before, "", image); err != nil {
			t.Fatal(err)
		}
	}
	out, err := w.helper(goal, "", image)
	if err != nil {
		t.Fatal(err)
	}
	steps := slices.Compact(strings.Split(strings.TrimSpace(out), "\n"))
	if len(steps) < 2 {
		t.Fatalf("the steps to %s are %q", goal, steps)
	}
	w.driver = nil
	w.open()
	w.do(reach(t.Context(), w.driver, firmware(uid), "delete"))
	return steps
}
