package drivertest

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

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Goal is the desired state of a machine.
type Goal string

// Goals of a machine.
const (
	ToRun    Goal = "run"
	ToStop   Goal = "stop"
	ToSleep  Goal = "sleep"
	ToDelete Goal = "delete"
)

// Ways are pairs of goals: a machine that has reached the first one is taken to the second one. The
// empty goal means no machine.
var Ways = []struct{ Before, Goal Goal }{{"", ToRun}, {ToRun, ToStop}, {ToRun, ToDelete}, {ToStop, ToDelete}, {ToStop, ToRun}}

// SleepWays are those of drivers that put machines to sleep.
var SleepWays = []struct{ Before, Goal Goal }{{ToRun, ToSleep}, {ToSleep, ToRun}, {ToSleep, ToStop}, {ToSleep, ToDelete}}

// Environment variables of a manager that is killed. It runs the test binary.
const (
	goalVariable = "KEELSON_TEST_GOAL"
	stepVariable = "KEELSON_TEST_STEP" // the step at which it kills itself; if empty, it prints all steps
	// HelperLimit is the timeout of such a manager, on a machine that is busy.
	HelperLimit = 3 * time.Minute
)

// IsManager reports whether Manager has started this process. TestMain then opens the driver and
// calls Manage.
func IsManager() bool { return os.Getenv(goalVariable) != "" }

// AtStep is called by a driver at each point where a crash makes a difference.
func AtStep(name string) {
	switch os.Getenv(stepVariable) {
	case "":
		fmt.Println(name)
	case name:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // this process
		select {}
	}
}

// Manage reaches the goal of this manager and closes the driver.
func Manage(d backend.Driver, machine backend.Machine) error {
	ctx, cancel := context.WithTimeout(context.Background(), HelperLimit)
	defer cancel()
	return errors.Join(Reach(ctx, d, machine, Goal(os.Getenv(goalVariable))), d.Close())
}

// Reach acts as a controller until a machine has reached a goal.
func Reach(ctx context.Context, d backend.Driver, machine backend.Machine, goal Goal) error {
	for ctx.Err() == nil {
		server, err := d.Observe(ctx, machine.Identity)
		gone := errors.Is(err, backend.ErrNotFound)
		if err != nil && !gone {
			return err
		}
		var call error
		switch {
		case goal == ToDelete:
			if call = d.Delete(ctx, machine.Identity, backend.DeleteOptions{}); call == nil {
				return nil
			}
		case server.Task != backend.TaskNone:
		case gone || server.State == backend.StateAbsent:
			call = d.Create(ctx, machine)
		case goal == ToRun && server.State == backend.StateRunning,
			goal == ToStop && server.State == backend.StateStopped && server.Ended != nil && server.Ended.Cause == backend.CauseRequested:
			return nil
		case goal == ToSleep && server.State == backend.StateAsleep:
			return nil
		case goal == ToSleep && server.IsOn():
			// Its network goes on, which is more to be killed in than without.
			call = d.Sleep(ctx, machine.Identity, backend.SleepOptions{WakeOnConnection: true})
		case goal == ToRun && server.State == backend.StatePaused:
			call = d.Resume(ctx, machine.Identity)
		case goal == ToRun && (server.State == backend.StateStopped || server.State == backend.StateAsleep),
			goal == ToSleep && server.State == backend.StateStopped:
			call = d.Start(ctx, machine)
		case goal == ToStop:
			call = d.Stop(ctx, machine.Identity, 0)
		}
		if call != nil && !errors.Is(call, backend.ErrInProgress) {
			return call
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // this acts as a manager
	}
	return ctx.Err()
}

// Manager runs a manager with a goal in its own process, with these environment variables, until it
// is killed at a step. Without a step it returns all steps.
func Manager(t testing.TB, goal Goal, step string, variables ...string) (steps []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), HelperLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = slices.Concat(os.Environ(), variables, []string{goalVariable + "=" + string(goal), stepVariable + "=" + step})
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		t.Fatalf("the manager to %s failed: %s", goal, exit.Stderr)
	}
	return slices.Compact(strings.Split(strings.TrimSpace(string(out)), "\n")), err
}
