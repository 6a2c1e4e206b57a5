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

// Goal is what a machine is to be.
type Goal string

// The goals.
const (
	ToRun    Goal = "run"
	ToStop   Goal = "stop"
	ToDelete Goal = "delete"
)

// Ways are pairs of goals: from a machine that has reached the first one, to the second.
// The empty goal is no machine.
var Ways = []struct{ Before, Goal Goal }{{"", ToRun}, {ToRun, ToStop}, {ToRun, ToDelete}, {ToStop, ToDelete}, {ToStop, ToRun}}

// The variables of a manager that is killed. It is the test binary once more.
const (
	goalVariable = "KEELSON_TEST_GOAL"
	stepVariable = "KEELSON_TEST_STEP" // at which to kill itself; empty names them all
	// helperLimit is how long such a manager may take.
	helperLimit = time.Minute
)

// IsManager reports whether this process is a manager that Manager has started: TestMain
// then opens the driver and calls Manage.
func IsManager() bool { return os.Getenv(goalVariable) != "" }

// AtStep is what a driver is to call at every point where being killed makes a difference.
func AtStep(name string) {
	switch os.Getenv(stepVariable) {
	case "":
		fmt.Println(name)
	case name:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // this process
		select {}
	}
}

// Manage reaches the goal of this manager, and closes the driver.
func Manage(d backend.Driver, machine backend.Machine) error {
	ctx, cancel := context.WithTimeout(context.Background(), helperLimit)
	defer cancel()
	return errors.Join(Reach(ctx, d, machine, Goal(os.Getenv(goalVariable))), d.Close())
}

// Reach does what a controller does until a machine is as it should be.
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
		case goal == ToRun && server.State == backend.StateStopped:
			call = d.Start(ctx, machine)
		case goal == ToStop:
			call = d.Stop(ctx, machine.Identity, 0)
		}
		if call != nil && !errors.Is(call, backend.ErrInProgress) {
			return call
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // this plays a manager
	}
	return ctx.Err()
}

// Manager runs a manager with a goal in a process of its own, with these variables, until
// it is killed at a step. Without a step it returns all steps.
func Manager(t testing.TB, goal Goal, step string, variables ...string) (steps []string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), helperLimit)
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
