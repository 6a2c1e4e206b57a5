package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/testing/drivertest"
)

// untilRestored acts as a controller until a machine that is off is restored.
func untilRestored(d *Driver, machine backend.Machine, token string) error {
	ctx, cancel := context.WithTimeout(context.Background(), drivertest.HelperLimit)
	defer cancel()
	for ctx.Err() == nil {
		server, err := d.Observe(ctx, machine.Identity)
		switch {
		case err != nil:
			return err
		case server.Restored == token:
			d.mu.Lock()
			isSettling := d.fills[keyOf(machine.Identity)] // the call that deletes the Pod has not returned
			d.mu.Unlock()
			if pod, err := d.readFill(ctx, d.cache, machine.Identity); err != nil || pod == nil && !isSettling {
				return err
			}
		case server.FailedRestore != nil && server.FailedRestore.Token == token:
			return server.FailedRestore.Err
		case server.Task == backend.TaskNone:
			err := d.RestoreServer(ctx, machine.Identity, backend.Restore{Token: token, Snapshot: backend.SnapshotIdentity{UID: machine.Snapshot}})
			if err != nil && !errors.Is(err, backend.ErrInProgress) {
				return err
			}
		}
		time.Sleep(2 * time.Millisecond) //nolint:forbidigo // this acts as a manager
	}
	return ctx.Err()
}

// isBegun reports whether a restore has begun after a step.
func isBegun(steps []string, at string) bool {
	return slices.Index(steps, at) >= slices.Index(steps, "restore recorded")
}

// expectBegun fails the test unless the next manager finds a restore that has begun or ended, however late it comes: the controller withdraws
// any other one when the snapshot of the disks before is too old, and takes that again.
func (c *cluster) expectBegun(t *testing.T, machine *backend.Machine, token, at string) {
	t.Helper()
	secret, err := c.api.CoreV1().Secrets(recordNamespace).Get(t.Context(), recordName(machine.Namespace, objectName(machine.UID)), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pods := map[string]*corev1.Pod{objectName(machine.UID): nil, fillName(machine.UID): nil}
	for name := range pods {
		pod, err := c.api.CoreV1().Pods(machine.Namespace).Get(t.Context(), name, metav1.GetOptions{})
		switch {
		case err == nil:
			pods[name] = pod
		case !apierrors.IsNotFound(err):
			t.Fatal(err)
		}
	}
	for _, later := range []time.Duration{0, 16 * time.Minute, 24 * time.Hour} {
		server, err := describe(secret, pods[objectName(machine.UID)], pods[fillName(machine.UID)], time.Now().Add(later))
		if err != nil || server.Restoring != token && server.Restored != token {
			t.Errorf("%s after a kill at %q, the restore %s has not begun: %+v, %v", later, at, token, server, err)
		}
	}
}

// A manager killed at any line while a machine is made of a snapshot, restored from it, or deleted meanwhile, is followed by one that
// reaches the same state as an undisturbed one.
func TestLongManagerKilledWhileDisksAreFilled(t *testing.T) {
	c := newCluster(t)
	first := killedMachine(c.namespaces[0])
	id, remembered := c.taken(&first), c.takenWith(&first, &snapshotMemory{Started: first})
	variables := []string{helperConfig + "=" + kubeconfig(t), helperNamespace + "=" + c.namespaces[0], helperForward + "=" + c.serveForwards(t), helperFork + "=" + string(id.UID)}
	tokens, withMemory := 0, false
	manager := func(goal drivertest.Goal, at string) ([]string, error) {
		t.Helper()
		all := slices.Clone(variables)
		if goal == "restore" {
			all = append(all, fmt.Sprintf("%s=%d", helperRestore, tokens))
		}
		if withMemory {
			all = append(all, helperFork+"="+string(remembered.UID))
		}
		return drivertest.Manager(t, goal, at, all...)
	}
	must := func(goal drivertest.Goal) []string {
		t.Helper()
		steps, err := manager(goal, "")
		if err != nil {
			t.Fatal(err)
		}
		return steps
	}
	disks := slices.Repeat([]string{"PersistentVolumeClaim"}, 4) // those of the snapshots, too
	records := slices.Repeat([]string{"Secret"}, 3)              // those of the snapshots, too
	madeOf := slices.Concat([]string{"Pod", "Secret"}, disks, []string{"PodDisruptionBudget"}, records)
	seen := map[string]bool{}
	for _, way := range []struct {
		name   string
		before func()
		goal   drivertest.Goal
		want   []string
	}{
		{"a new machine", func() { must(drivertest.ToDelete) }, drivertest.ToRun, madeOf},
		{"a new machine with memory", func() { withMemory = true; must(drivertest.ToDelete) }, drivertest.ToRun, madeOf},
		{"a restore", func() { tokens++ }, "restore", slices.Concat(disks, records)},
		{"deleted while its disks are copied", func() {
			c.fills(nil)
			_, _ = manager(drivertest.ToRun, "fill Pod created") // it is killed
		}, drivertest.ToDelete, slices.Concat(disks[:2], records[:2])},
	} {
		t.Run(way.name, func(t *testing.T) {
			defer c.fills(&launcher.JobResult{Filled: true})
			withMemory = false
			must(drivertest.ToDelete)
			if way.goal == "restore" {
				must(drivertest.ToStop)
			}
			way.before()
			steps := must(way.goal)
			for _, at := range steps {
				seen[at] = true
				way.before()
				if _, err := manager(way.goal, at); err == nil {
					t.Errorf("no manager was killed at %q", at)
				}
				if way.goal == "restore" && isBegun(steps, at) {
					c.expectBegun(t, &first, fmt.Sprint(tokens), at)
				}
				must(way.goal)
				if got := c.kinds(t); !slices.Equal(got, way.want) {
					t.Errorf("after a kill at %q there are %q, want %q", at, got, way.want)
				}
				if withMemory && c.definition(first).Epoch != string(remembered.UID) { // the launcher finds the memory of it
					t.Errorf("after a kill at %q, it boots", at)
				}
			}
		})
	}
	must(drivertest.ToDelete)
	c.deleteTaken(id)
	c.deleteTaken(remembered)
	for _, want := range []string{"claim created", "secret created", "fill Pod created", "fill recorded", "fill Pod deleted", "restore recorded", "fill Pod is being deleted"} {
		if !seen[want] {
			t.Errorf("no manager was killed at %q", want)
		}
	}
}
