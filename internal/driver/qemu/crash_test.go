package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/diskbackup"
	"github.com/keelson-dev/keelson/internal/driver/savedmemory"
	"github.com/keelson-dev/keelson/internal/machine/owner"
	"github.com/keelson-dev/keelson/internal/process"
	_ "github.com/keelson-dev/keelson/internal/process/shim" // the test binary is also the shim of its child processes
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/roles"
)

// The crash tests run this test binary as a manager, configured by these variables.
const (
	helperState = "KEELSON_TEST_STATE" // the state directory
	helperUID   = "KEELSON_TEST_UID"   // the UID of the machine
	helperImage = "KEELSON_TEST_IMAGE" // the image of the machine: a path, or an address, # and a digest
	helperDisks = "KEELSON_TEST_DISKS" // the disks of the machine, as JSON; if not empty, only they are changed
	helperStop  = "KEELSON_TEST_STOP"  // if not empty, the machines are stopped as at a shutdown of the host
	helperKeep  = "KEELSON_TEST_KEEP"  // if not empty, the disk of the machine is retained
)

func TestMain(m *testing.M) {
	if drivertest.IsManager() {
		roles.Inherit()
		if err := runHelper(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(roles.Run(func() int { return runWithTemplates(m) }))
}

// runWithTemplates runs the tests with a directory for templates.
func runWithTemplates(m *testing.M) int {
	dir, err := os.MkdirTemp("", "keelson-templates-")
	if err == nil {
		defer os.RemoveAll(dir) //nolint:errcheck // only disk space
		err = os.Setenv(testTemplates, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// runHelper runs a manager that is killed at a step.
func runHelper() error {
	step, savedmemory.Step, diskbackup.Step, owner.Step = drivertest.AtStep, drivertest.AtStep, drivertest.AtStep, drivertest.AtStep
	if os.Getenv(helperStop) != "" {
		return StopAll(context.Background(), os.Getenv(helperState), StopOptions{SleepTimeout: time.Minute})
	}
	instant := os.Getenv(helperInstant)
	starts := InstantNever
	if instant != "" || os.Getenv(testTemplates) != "" {
		starts = InstantAlways
	}
	d, err := Open(Options{StateDir: os.Getenv(helperState), GuestDir: guestFolder, Accelerator: AccelTCG, ImageDirs: confine.Anywhere, ImageNetworks: loopback, Users: testUsers, InstantStart: starts, Log: logr.Discard()})
	if err != nil {
		return err
	}
	if instant != "" {
		return runInstantHelper(d, instant)
	}
	machine := firmware(uid)
	if address, digest, found := strings.Cut(os.Getenv(helperImage), "#"); found {
		machine.Image.URL, machine.Image.Sha256 = address, digest
	} else {
		machine.Image.Path = address
	}
	if way := os.Getenv(helperSnapshot); way != "" {
		return runSnapshotHelper(d, way)
	}
	if way := os.Getenv(helperVirtual); way != "" {
		return runVirtualHelper(d, way)
	}
	if disks := os.Getenv(helperDisks); disks != "" {
		return runDiskHelper(d, disks)
	}
	if os.Getenv(helperKeep) != "" {
		return drivertest.Manage(keepsDisks{settled{d}}, machine)
	}
	return drivertest.Manage(settled{d}, machine)
}

// settled is a driver that waits before it closes until the network of a machine that is off has ended, unless it is asleep and woken
// by connections: otherwise, chance decides which steps of the network belong to a run.
type settled struct{ *Driver }

func (d settled) Close() error {
	for begun := time.Now(); time.Since(begun) < 50*time.Second; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // this acts as a manager
		server, err := d.Observe(context.Background(), backend.Identity{UID: uid, Namespace: "default"})
		if err == nil && (server.IsOn() || server.State == backend.StateAsleep) {
			break
		}
		if _, err := d.processes.Find(networkProcess + "default"); errors.Is(err, process.ErrNotFound) {
			break
		}
	}
	return d.Driver.Close()
}

// keepsDisks retains the disks of deleted machines.
type keepsDisks struct{ settled }

func (d keepsDisks) Delete(ctx context.Context, id backend.Identity, options backend.DeleteOptions) error {
	options.KeepDisk = true
	return d.Driver.Delete(ctx, id, options)
}

// helper runs a manager for a goal until it is killed at a step.
func (w *fixture) helper(goal drivertest.Goal, step, image string) ([]string, error) {
	w.Helper()
	return drivertest.Manager(w, goal, step, helperState+"="+w.options.StateDir, helperUID+"="+string(uid), helperImage+"="+image)
}

// reach takes the machine of the test to a goal.
func (w *fixture) reach(machine backend.Machine, goal drivertest.Goal) {
	w.Helper()
	w.do(drivertest.Reach(w.Context(), w.driver, machine, goal))
}

// A manager killed at any line is followed by one that reaches the same state as an undisturbed
// one: one process or none, and nothing left over.
func TestLongManagerKilledAtEveryStep(t *testing.T) {
	needQEMU(t)
	image := emptyImage(t)
	for _, way := range drivertest.Ways {
		t.Run(strings.TrimSpace(string(way.Before+" "+way.Goal)), func(t *testing.T) {
			for _, at := range stepsOf(t, way.Before, way.Goal, image) {
				t.Run(at, func(t *testing.T) {
					w := newFixture(t)
					machine := firmware(uid)
					machine.Image.Path = image
					if way.Before != "" {
						w.reach(machine, way.Before)
					}
					w.do(w.driver.Close())
					if _, err := w.helper(way.Goal, at, image); err == nil {
						t.Fatalf("the manager was not killed at %q", at)
					}
					w.open()
					if pids, err := findOrphans(uid); err != nil || len(pids) > 1 {
						t.Fatalf("processes are %v, %v", pids, err)
					}
					w.reach(machine, way.Goal)
					switch pids, err := findOrphans(uid); {
					case err != nil:
						t.Fatal(err)
					case way.Goal == drivertest.ToRun && len(pids) != 1, way.Goal != drivertest.ToRun && len(pids) != 0:
						t.Errorf("processes are %v", pids)
					}
					if server := w.server(); way.Goal == drivertest.ToStop && server.Ended.Cause != backend.CauseRequested {
						t.Errorf("the requested stop counts as %+v", server.Ended)
					}
					w.remove()
				})
			}
		})
	}
}

// stepsOf returns the steps to a goal, from an undisturbed run.
func stepsOf(t *testing.T, before, goal drivertest.Goal, image string) []string {
	t.Helper()
	w := newFixture(t)
	w.do(w.driver.Close())
	if before != "" {
		if _, err := w.helper(before, "", image); err != nil {
			t.Fatal(err)
		}
	}
	steps, err := w.helper(goal, "", image)
	if err != nil {
		t.Fatal(err)
	}
	if len(steps) < 2 {
		t.Fatalf("steps to %s are %q", goal, steps)
	}
	w.open()
	w.reach(firmware(uid), drivertest.ToDelete)
	return steps
}
