//go:build soak

// Package virtualmachine is a soak test of VirtualMachines on QEMU: real machines, a real
// manager, and somebody who kills both.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

func TestMain(m *testing.M) { env.Main(m) }

const (
	// machines is how many there are, of which some are always on their way.
	machines = 50
	// restTime is how long it may take until all of them are as they should be.
	restTime = 4 * time.Minute
)

func isShort() bool { return os.Getenv("KEELSON_SOAK") == "short" }

// churn is what has happened so far.
type churn struct {
	*world
	random *rand.Rand
	counts map[string]int
	// frozen are QEMUs that do not answer, until they are thawed.
	frozen map[types.UID]int
}

// TestSoakChurn creates, changes and deletes machines, kills and stops their QEMUs, and
// kills the manager, all at random moments. Afterwards processes, sockets, disks and objects
// match exactly, and when all machines are deleted nothing is left.
func TestSoakChurn(t *testing.T) {
	length := 10 * time.Minute
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
		time.Sleep(time.Duration(c.random.Int64N(int64(200 * time.Millisecond)))) //nolint:forbidigo // a random moment is the point
	}
	c.thaw(t)
	for i := range machines {
		c.do(t, c.create(t.Context(), name(i)))
	}
	// A change of the spec gets machines that back off a new chance at once.
	forAll(t, c.list(t), func(ctx context.Context, name string) error {
		err := c.patch(ctx, name, `{"action":"active","terminationGracePeriodSeconds":1}`)
		if apierrors.IsNotFound(err) {
			return nil // it was being deleted
		}
		return err
	})
	eventually(t, "the machines come to rest", restTime, func() string { return c.unrest(t) })
	eventually(t, "everything matches", time.Minute, func() string { return c.mismatch(t) })
	t.Logf("%d machines in all, %d managers; %s", len(c.uids), c.managers, c.summary())

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

// step does one thing to one machine or to the manager.
func (c *churn) step(t *testing.T) {
	t.Helper()
	ctx, vm := t.Context(), name(c.random.IntN(machines))
	var what string
	switch n := c.random.IntN(100); {
	case n < 40:
		what = "created"
		c.do(t, c.create(ctx, vm))
	case n < 52:
		what = "deleted"
		c.do(t, c.vms.Delete(ctx, vm, metav1.DeleteOptions{}))
	case n < 72:
		action := []string{"active", "stopped", "paused"}[c.random.IntN(3)]
		what = "set to " + action
		c.do(t, c.patch(ctx, vm, `{"action":"`+action+`"}`))
	case n < 77:
		what = "restarted"
		c.do(t, c.patch(ctx, vm, `{"restartedAt":"`+time.Now().UTC().Format(time.RFC3339)+`"}`))
	case n < 89:
		what = "killed"
		if pid := c.pick(t); pid != 0 {
			signals.Try(t, pid, syscall.SIGKILL)
		}
	case n < 92:
		what = "frozen"
		c.freeze(t)
	case n < 95:
		what = "thawed"
		c.thaw(t)
	default:
		what = "managers killed"
		c.manager.Kill(t)
		if c.random.IntN(2) == 0 {
			time.Sleep(time.Duration(c.random.Int64N(int64(2 * time.Second)))) //nolint:forbidigo // nobody is there for a while
		}
		c.startManager(t)
	}
	c.counts[what]++
}

// do accepts that a machine is or is not there.
func (c *churn) do(t *testing.T, err error) {
	t.Helper()
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// pick returns the pid of some QEMU; 0 if there is none.
func (c *churn) pick(t *testing.T) int {
	t.Helper()
	all := c.qemus(t)
	if len(all) == 0 {
		return 0
	}
	uids := slices.Sorted(maps.Keys(all))
	return all[uids[c.random.IntN(len(uids))]][0]
}

// freeze stops some QEMU, which then does not answer.
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

// thaw lets all QEMUs go on. Their pids are looked up again: they may be others by now.
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
