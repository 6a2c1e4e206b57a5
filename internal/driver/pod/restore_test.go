package pod

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestNewRestore(t *testing.T) {
	machine := newMachine()
	machine.DiskBytes, machine.Disks = 64<<20, []backend.Disk{{Name: "new", SizeBytes: 1 << 20}}
	snapshot := func(of backend.Identity, disks ...string) *snapshotRecord {
		rec := &snapshotRecord{Machine: of}
		for _, name := range disks {
			rec.Disks = append(rec.Disks, snapshotDisk{Name: name})
		}
		return rec
	}
	id := backend.SnapshotIdentity{UID: "snapshot", Name: "before"}
	for name, test := range map[string]struct {
		snapshot *snapshotRecord
		want     []string
		says     string
	}{
		"a disk was removed":  {snapshot(machine.Identity, rootDisk, "old"), []string{rootDisk}, ""},
		"all were removed":    {snapshot(machine.Identity, "old"), nil, "none of the disks"},
		"of another machine":  {snapshot(backend.Identity{UID: "other"}, rootDisk), nil, "of another machine"},
		"its volume was lost": {nil, nil, "is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newRestore(&machine, id, test.snapshot, backend.Restore{Token: "once", Snapshot: id})
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) {
					t.Errorf("got %+v, %v, want %q", got, err, test.says)
				}
				return
			}
			if diff := cmp.Diff(&fill{Snapshot: id, Disks: test.want, Token: "once"}, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A machine is restored once for each token, off or asleep, and not started meanwhile.
func TestRestore(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	id := c.taken(&machine)
	restore := func(token string) error {
		return c.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: token, Snapshot: id})
	}
	if err := restore("on"); err == nil || errors.Is(err, backend.ErrInProgress) {
		t.Errorf("a machine that is on: %v", err)
	}
	c.must("Sleep", c.driver.Sleep(t.Context(), machine.Identity, backend.SleepOptions{}))
	c.until(machine, "it is asleep", func(s backend.Server) bool { return s.State == backend.StateAsleep && s.Task == backend.TaskNone })
	c.fills(nil)
	c.must("RestoreServer", restore("once"))
	c.until(machine, "it is being restored", func(s backend.Server) bool { return s.Task == backend.TaskRestore })
	if err := c.driver.Start(t.Context(), machine); !errors.Is(err, backend.ErrInProgress) {
		t.Errorf("the start of a machine that is being restored: %v", err)
	}
	// Its Pod is killed with its node: the next attempt does it.
	pod := c.fillPod(&machine)
	if err := c.api.CoreV1().Pods(pod.Namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.until(machine, "the attempt has ended", func(s backend.Server) bool {
		return s.Task == backend.TaskNone && s.Restored == "" && s.FailedRestore == nil
	})
	c.open(t)
	c.fills(&launcher.JobResult{Filled: true})
	harness.Eventually(t, "the next attempt begins", func() bool { err := restore("once"); return err == nil || errors.Is(err, backend.ErrInProgress) })
	c.until(machine, "it is restored and off", func(s backend.Server) bool {
		return s.Restored == "once" && s.Task == backend.TaskNone && s.State == backend.StateStopped && s.Ended.Cause == backend.CauseRequested
	})
	harness.Eventually(t, "the Pod is gone", func() bool { return c.fillPod(&machine) == nil })
	if err := restore("once"); err != nil || c.fillPod(&machine) != nil {
		t.Errorf("a restore that is done: %v", err)
	}
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "it runs", func(s backend.Server) bool { return isRunning(s) && s.Restored == "once" })
	c.stop(machine)
	c.fills(&launcher.JobResult{Error: "the volume has no room"})
	c.must("RestoreServer", restore("twice"))
	c.until(machine, "it is not restored", func(s backend.Server) bool {
		return s.Task == backend.TaskNone && s.Restored == "once" && s.FailedRestore != nil && s.FailedRestore.Token == "twice" && strings.Contains(s.FailedRestore.Err.Error(), "no room")
	})
	c.deleteTaken(id)
	c.must("RestoreServer", restore("thrice"))
	c.until(machine, "the snapshot is gone", func(s backend.Server) bool {
		return s.FailedRestore != nil && s.FailedRestore.Token == "thrice" && strings.Contains(s.FailedRestore.Err.Error(), "is gone")
	})
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "it runs", isRunning)
	c.remove(machine)
	c.nothingLeft()
}

// A restore that was withdrawn before it began does not keep the machine from starting. If the API server does not answer meanwhile, that is an
// error, which the controller retries, and no progress.
func TestRestoreIsWithdrawn(t *testing.T) {
	c := newCluster(t)
	var isDown atomic.Bool
	config := env.Config(t)
	config.Wrap(func(to http.RoundTripper) http.RoundTripper {
		return transport(func(r *http.Request) (*http.Response, error) {
			if isDown.Load() && strings.HasSuffix(r.URL.Path, fillSuffix) {
				return nil, errors.New("it does not answer")
			}
			return to.RoundTrip(r)
		})
	})
	c.openWith(t, config)
	machine := c.machine(uuid.NewUUID())
	c.must("Create", c.driver.Create(t.Context(), machine))
	secret, rec, err := c.driver.find(t.Context(), machine.Identity)
	if err != nil {
		t.Fatal(err)
	}
	rec.Fill = &fill{Snapshot: backend.SnapshotIdentity{UID: "gone"}, Disks: []string{rootDisk}, Token: "once"}
	c.must("record", c.driver.writeRecord(t.Context(), secret, rec, nil))
	isDown.Store(true)
	for _, token := range []string{"once", "twice", ""} {
		if err := c.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: token}); !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrInProgress) {
			t.Errorf("RestoreServer %q: %v", token, err)
		}
	}
	if err := c.driver.Start(t.Context(), machine); !errors.Is(err, backend.ErrUnavailable) || errors.Is(err, backend.ErrInProgress) {
		t.Errorf("Start: %v", err)
	}
	isDown.Store(false)
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "it runs", isRunning)
	c.remove(machine)
}

// A Secret that is lost during a restore is written again without it. The Pod does not stay.
func TestSecretIsLostDuringARestore(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.machine(uuid.NewUUID())
	c.must("Create", c.driver.Create(t.Context(), machine))
	id := c.taken(&machine)
	c.fills(nil)
	c.must("RestoreServer", c.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: "once", Snapshot: id}))
	c.loseRecord(machine.Identity)
	c.fills(&launcher.JobResult{Filled: true})
	harness.Eventually(t, "its disks are restored", func() bool {
		pod, err := c.driver.readFill(t.Context(), c.driver.cache, machine.Identity)
		return err == nil && pod != nil && isOver(pod)
	})
	c.must("Create", c.driver.Create(t.Context(), machine))
	harness.Eventually(t, "the Pod is gone", func() bool { return c.fillPod(&machine) == nil })
	c.remove(machine)
	c.deleteTaken(id)
}

// A restore whose Pod finds no node says so. It has failed when a claim that it needs is gone, and ends when it is withdrawn.
func TestRestoreThatCannotBegin(t *testing.T) {
	c := newCluster(t)
	before := startTimeout
	startTimeout = 100 * time.Millisecond
	t.Cleanup(func() { startTimeout = before })
	c.open(t)
	for name, test := range map[string]struct {
		lost func(machine *backend.Machine, id backend.SnapshotIdentity) string
		says string
		off  bool
	}{
		"a disk is lost":                             {func(machine *backend.Machine, _ backend.SnapshotIdentity) string { return objectName(machine.UID) }, "the root disk is gone; restore it", false},
		"the snapshot is lost":                       {func(_ *backend.Machine, id backend.SnapshotIdentity) string { return snapshotName(id.UID) }, "the snapshot before is gone; restore it", false},
		"it is withdrawn, and the machine starts":    {},
		"it is withdrawn, and the machine stays off": {off: true},
	} {
		t.Run(name, func(t *testing.T) {
			c.jobsWait.Store(true)
			machine := c.machine(uuid.NewUUID())
			c.must("Create", c.driver.Create(t.Context(), machine))
			id := c.taken(&machine)
			restore := func() error {
				return c.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{Token: "once", Snapshot: id})
			}
			if err := restore(); !errors.Is(err, backend.ErrInProgress) {
				t.Fatal(err)
			}
			c.until(machine, "its Pod waits", func(s backend.Server) bool { return s.Task == backend.TaskNone && s.RestoreWaits })
			if err := restore(); err == nil || errors.Is(err, backend.ErrInProgress) || !strings.Contains(err.Error(), "waits: too big") {
				t.Errorf("RestoreServer: %v", err)
			}
			switch {
			case test.off:
				harness.Eventually(t, "it has ended", func() bool {
					_ = c.driver.RestoreServer(t.Context(), machine.Identity, backend.Restore{}) // again, as a controller does
					s, err := c.driver.Observe(t.Context(), machine.Identity)
					return err == nil && s.State == backend.StateStopped && s.Task == backend.TaskNone && !s.RestoreWaits
				})
			case test.lost == nil:
				harness.Eventually(t, "the machine starts", func() bool {
					_ = c.driver.Start(t.Context(), machine) // again, as a controller does
					s, err := c.driver.Observe(t.Context(), machine.Identity)
					return err == nil && isRunning(s)
				})
			default:
				claim := test.lost(&machine, id)
				c.must("Delete", c.api.CoreV1().PersistentVolumeClaims(machine.Namespace).Delete(t.Context(), claim, metav1.DeleteOptions{}))
				harness.Eventually(t, "it has failed", func() bool {
					_ = restore() // again, as a controller does
					s, err := c.driver.Observe(t.Context(), machine.Identity)
					return err == nil && s.FailedRestore != nil && strings.Contains(s.FailedRestore.Err.Error(), claim) && strings.Contains(s.FailedRestore.Err.Error(), test.says)
				})
				c.jobsWait.Store(false) // nothing begins later
			}
			if c.fillPod(&machine) != nil {
				t.Error("the Pod still waits")
			}
			c.remove(machine)
			c.deleteTaken(id)
		})
	}
}
