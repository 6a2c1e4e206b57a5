package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// helperSnapshot is the goal of a manager that takes or deletes the snapshot of the machine.
const helperSnapshot = "KEELSON_TEST_SNAPSHOT"

// The goals.
const (
	goalTaken   = "taken"
	goalDeleted = "deleted"
)

// killedSnapshot is the snapshot of the crash tests.
func killedSnapshot(namespace string) backend.SnapshotIdentity {
	return backend.SnapshotIdentity{UID: "0b5b4d8e-0000-4000-8000-0000000000de", Namespace: namespace, Name: "before"}
}

// reachSnapshot acts as a controller until a snapshot of a machine is taken or deleted.
func reachSnapshot(ctx context.Context, d *Driver, goal string, id backend.SnapshotIdentity, machine backend.Machine) error {
	for ctx.Err() == nil {
		state, err := d.ObserveSnapshot(ctx, id)
		if err != nil && !errors.Is(err, backend.ErrNotFound) {
			return err
		}
		switch {
		case goal == goalTaken && state.Taken:
			return nil
		case goal == goalDeleted:
			if err := d.DeleteSnapshot(ctx, id); err == nil || !errors.Is(err, backend.ErrInProgress) {
				return err
			}
		case !state.Busy:
			if err := d.TakeSnapshot(ctx, id, backend.Source{Server: machine.Identity}); err != nil {
				return err
			}
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // this acts as a manager
	}
	return ctx.Err()
}

func manageSnapshot(d *Driver, goal string, machine backend.Machine) error {
	ctx, cancel := context.WithTimeout(context.Background(), drivertest.HelperLimit)
	defer cancel()
	err := reachSnapshot(ctx, d, goal, killedSnapshot(machine.Namespace), machine)
	if err == nil && goal == goalTaken { // the Pod that has taken it is deleted
		err = d.TakeSnapshot(ctx, killedSnapshot(machine.Namespace), backend.Source{Server: machine.Identity})
	}
	return errors.Join(err, d.Close())
}

// A manager that is killed at any step is followed by one that takes the snapshot once, or deletes it, and leaves nothing else.
func TestLongManagerKilledWhileASnapshotIsTaken(t *testing.T) {
	c := newCluster(t)
	namespace := c.namespaces[0]
	variables := []string{helperConfig + "=" + kubeconfig(t), helperNamespace + "=" + namespace, helperForward + "=" + c.serveForwards(t)}
	if _, err := drivertest.Manager(t, drivertest.ToRun, "", variables...); err != nil {
		t.Fatal(err)
	}
	reach := func(goal, at string) []string {
		t.Helper()
		steps, err := drivertest.Manager(t, drivertest.ToRun, at, slices.Concat(variables, []string{helperSnapshot + "=" + goal})...)
		if (err == nil) != (at == "") {
			t.Fatalf("killed at %q: %v", at, err)
		}
		return steps
	}
	for _, way := range []struct{ before, goal string }{{goalDeleted, goalTaken}, {goalTaken, goalDeleted}} {
		reach(way.before, "")
		steps := reach(way.goal, "")
		t.Logf("steps to %s are %q", way.goal, steps)
		for _, at := range steps {
			reach(way.before, "")
			reach(way.goal, at)
			reach(way.goal, "")
			harness.Eventually(t, fmt.Sprintf("after a kill at %q, its Pod is gone", at), func() bool { return c.takePod(killedSnapshot(namespace)) == nil })
			claims, err := c.api.CoreV1().PersistentVolumeClaims(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: labelSnapshot})
			if err != nil {
				t.Fatal(err)
			}
			records, err := c.api.CoreV1().Secrets(recordNamespace).List(t.Context(), metav1.ListOptions{LabelSelector: labelSnapshot})
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if way.goal == goalTaken {
				want = 1
			}
			if len(claims.Items) != want || len(records.Items) != want {
				t.Errorf("after a kill at %q, the claims are %+v, and the records %+v", at, claims.Items, records.Items)
			}
		}
	}
	reach(goalDeleted, "")
	if _, err := drivertest.Manager(t, drivertest.ToDelete, "", variables...); err != nil {
		t.Fatal(err)
	}
}
