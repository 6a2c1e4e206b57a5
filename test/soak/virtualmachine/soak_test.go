//go:build soak

package virtualmachine

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

func TestMain(m *testing.M) { env.Main(m) }

const (
	// machines is the number of machines, some of which are always in transition, and snapshots that of snapshots.
	machines  = 50
	snapshots = 10
	// restTime is the time for all of them to settle.
	restTime = 4 * time.Minute
)

func isShort() bool { return os.Getenv("KEELSON_SOAK") == "short" }

// churn is the progress of the test.
type churn struct {
	*world
	random *rand.Rand
	counts map[string]int
	// frozen are suspended QEMUs, until thaw resumes them.
	frozen map[types.UID]int
}

// TestSoakChurn creates, changes, forks, restores and deletes machines, puts them to sleep, takes snapshots of them, kills and
// suspends their QEMUs, and kills the manager, all at random. Meanwhile, the counter in the memory and on the disk of each machine never
// goes back except by a restore, and the file on the disk has all that its guest has written. Afterwards processes, sockets, disks and objects match exactly, and after the deletion of all
// machines nothing is left.
func TestSoakChurn(t *testing.T) {
	length := 20 * time.Minute
	if isShort() {
		length = 40 * time.Second
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	c := &churn{world: newWorld(t), random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}, frozen: map[types.UID]int{}}
	c.startManager(t)
	for end := time.Now().Add(length); time.Now().Before(end); {
		c.step(t)
		c.expectOneEach(t)
		c.checkCounters(t)
		time.Sleep(time.Duration(c.random.Int64N(int64(200 * time.Millisecond)))) //nolint:forbidigo // a random delay is the point
	}
	c.thaw(t)
	eventually(t, "machines of snapshots that are gone are deleted", restTime, func() string { return c.deleteUncreated(t) })
	for i := range machines {
		c.do(t, c.create(t.Context(), name(i)))
	}
	// A change of the spec resets the backoff of machines.
	forAll(t, c.list(t), func(ctx context.Context, name string) error {
		err := c.patch(ctx, name, `{"action":"active","terminationGracePeriodSeconds":1}`)
		if apierrors.IsNotFound(err) {
			return nil // it was being deleted
		}
		return err
	})
	eventually(t, "the machines have settled", restTime, func() string { return c.unrest(t) })
	before := c.numbers()
	eventually(t, "the guests count", restTime, func() string { return c.stuck(t, before) })
	eventually(t, "all snapshots are deleted", restTime, func() string { return c.deleteSnapshots(t) })
	eventually(t, "everything matches", time.Minute, func() string { return c.mismatch(t) })
	t.Logf("%d machines in total, %d managers; %s", len(c.uids), c.managers, c.summary())

	forAll(t, c.list(t), func(ctx context.Context, name string) error {
		return c.vms.Delete(ctx, name, metav1.DeleteOptions{})
	})
	eventually(t, "all machines are deleted", restTime, func() string {
		if left := c.list(t); len(left) > 0 {
			return fmt.Sprintf("%d are left, the first is %s: %s", len(left), left[0].Name, left[0].Status.Reason)
		}
		return ""
	})
	eventually(t, "nothing is left", time.Minute, func() string { return c.mismatch(t) })
}

func name(i int) string { return fmt.Sprintf("vm%d", i) }

// step performs one operation on a machine or the manager.
func (c *churn) step(t *testing.T) {
	t.Helper()
	ctx, vm := t.Context(), name(c.random.IntN(machines))
	var what string
	switch n := c.random.IntN(120); {
	case n < 40:
		what = "created"
		c.do(t, c.create(ctx, vm))
	case n < 52:
		what = "deleted"
		c.do(t, c.vms.Delete(ctx, vm, metav1.DeleteOptions{}))
	case n < 72:
		action := []string{"active", "stopped", "paused", "asleep"}[c.random.IntN(4)]
		what = "set to " + action
		c.do(t, c.patch(ctx, vm, `{"action":"`+action+`"}`))
	case n < 77:
		what = "restarted"
		c.do(t, c.patch(ctx, vm, `{"restartRequestedAt":"`+time.Now().UTC().Format(time.RFC3339)+`"}`))
	case n < 97:
		what = c.stepSnapshot(t, vm)
	case n < 109:
		what = "killed"
		if pid := c.pick(t); pid != 0 {
			signals.Try(t, pid, syscall.SIGKILL)
		}
	case n < 112:
		what = "frozen"
		c.freeze(t)
	case n < 115:
		what = "thawed"
		c.thaw(t)
	default:
		what = "managers killed"
		c.manager.Kill(t)
		if c.random.IntN(2) == 0 {
			time.Sleep(time.Duration(c.random.Int64N(int64(2 * time.Second)))) //nolint:forbidigo // a time without a manager
		}
		c.startManager(t)
	}
	c.counts[what]++
}

// stepSnapshot performs one operation with a snapshot.
func (c *churn) stepSnapshot(t *testing.T, vm string) (what string) {
	t.Helper()
	ctx, snapshot := t.Context(), fmt.Sprintf("snap%d", c.random.IntN(snapshots))
	switch n := c.random.IntN(20); {
	case n < 9:
		c.do(t, c.take(ctx, snapshot, vm, n < 6))
		return "snapshots taken"
	case n < 12:
		c.do(t, c.snapshots.Delete(ctx, snapshot, metav1.DeleteOptions{}))
		return "snapshots deleted"
	case n < 16:
		c.do(t, c.create(ctx, vm, func(spec *v1alpha1.VirtualMachineSpec) { spec.Image = &v1alpha1.Image{Snapshot: snapshot} }))
		return "made of a snapshot"
	}
	c.do(t, c.restore(ctx, vm, snapshot))
	return "restored"
}

// deleteUncreated deletes machines that wait for a snapshot, which may be gone. It returns one that is not deleted yet; "" if there is
// none.
func (c *churn) deleteUncreated(t *testing.T) string {
	t.Helper()
	left := ""
	for _, vm := range c.list(t) {
		if vm.Spec.Image != nil && vm.Spec.Image.Snapshot != "" && !meta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionCreated) {
			c.do(t, c.vms.Delete(t.Context(), vm.Name, metav1.DeleteOptions{}))
			left = vm.Name
		}
	}
	return left
}

// do ignores that a machine exists or does not.
func (c *churn) do(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// pick returns the PID of a random QEMU; 0 if there is none.
func (c *churn) pick(t *testing.T) int {
	t.Helper()
	all := c.qemus(t)
	if len(all) == 0 {
		return 0
	}
	uids := slices.Sorted(maps.Keys(all))
	return all[uids[c.random.IntN(len(uids))]][0]
}

// freeze suspends a random QEMU, so that it does not respond.
func (c *churn) freeze(t *testing.T) {
	t.Helper()
	all := c.qemus(t)
	for _, uid := range slices.Sorted(maps.Keys(all)) {
		if c.frozen[uid] == 0 && c.random.IntN(10) == 0 {
			c.frozen[uid] = all[uid][0]
			signals.Try(t, all[uid][0], syscall.SIGSTOP)
			return
		}
	}
}

// thaw resumes all suspended QEMUs. It looks up their PIDs again, because they may have been
// reused.
func (c *churn) thaw(t *testing.T) {
	t.Helper()
	for _, pids := range c.qemus(t) {
		for _, pid := range pids {
			signals.Try(t, pid, syscall.SIGCONT)
		}
	}
	clear(c.frozen)
}

// expectOneEach fails the test if a machine has two QEMUs.
func (c *churn) expectOneEach(t *testing.T) {
	t.Helper()
	for uid, pids := range c.qemus(t) {
		if len(pids) > 1 {
			t.Fatalf("the machine %s has %d processes: %v", uid, len(pids), pids)
		}
	}
}

func (c *churn) summary() string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		parts = append(parts, fmt.Sprintf("%d times %s", c.counts[what], what))
	}
	return strings.Join(parts, ", ")
}
