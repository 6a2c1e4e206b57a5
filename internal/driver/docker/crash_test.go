package docker

import (
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/moby/moby/client"

	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

// The crash tests run this test binary as a manager, configured by these variables.
const (
	helperState = "KEELSON_TEST_STATE" // the state directory
	helperHost  = "KEELSON_TEST_HOST"  // the address of the engine
)

// runHelper runs a manager that is killed at a step.
func runHelper() error {
	step = drivertest.AtStep
	d, err := Open(Options{StateDir: os.Getenv(helperState), Host: os.Getenv(helperHost), GuestDir: guestDir, Log: logr.Discard()})
	if err != nil {
		return err
	}
	return drivertest.Manage(d, small(uid))
}

// helper runs a manager for a goal until it is killed at a step.
func (w *fixture) helper(goal drivertest.Goal, step string) ([]string, error) {
	w.Helper()
	return drivertest.Manager(w, goal, step, helperState+"="+w.options.StateDir, helperHost+"="+w.options.Host)
}

// removeGuests removes the images of the default guest, so that it is imported again.
func (w *fixture) removeGuests() {
	w.Helper()
	found, err := w.api.ImageList(w.Context(), client.ImageListOptions{Filters: client.Filters{}.Add("reference", guestRepository)})
	w.do(err)
	for _, image := range found.Items {
		_, err := w.api.ImageRemove(w.Context(), image.ID, client.ImageRemoveOptions{})
		w.do(err)
	}
}

// A manager killed at any line is followed by one that reaches the same state as an undisturbed
// one: one container and one network, or none, and nothing left over.
func TestLongManagerKilledAtEveryStep(t *testing.T) {
	w := newFixture(t)
	w.do(w.driver.Close())
	must := func(goal drivertest.Goal) []string {
		t.Helper()
		steps, err := w.helper(goal, "")
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	for _, way := range drivertest.Ways {
		t.Run(strings.TrimSpace(string(way.Before+" "+way.Goal)), func(t *testing.T) {
			w.T = t
			reset := func() {
				t.Helper()
				must(drivertest.ToDelete)
				w.removeGuests()
				if way.Before != "" {
					must(way.Before)
				}
			}
			reset()
			steps := must(way.Goal)
			if len(steps) < 2 {
				t.Fatalf("steps are %v", steps)
			}
			for _, step := range steps {
				reset()
				if _, err := w.helper(way.Goal, step); err == nil {
					t.Errorf("no manager was killed at %q", step)
				}
				must(way.Goal)
				containers, networks := w.containers(t.Context()), w.networks(t.Context())
				if max(len(containers), len(networks)) > 1 || way.Goal == drivertest.ToDelete && len(containers)+len(networks) > 0 {
					t.Errorf("after a kill at %q containers are %v and networks %v", step, containers, networks)
				}
			}
			must(drivertest.ToDelete)
			if left := w.leftovers(t); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
	w.T = t
}
