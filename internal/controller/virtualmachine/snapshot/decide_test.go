package snapshot

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
)

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	here = v1alpha1.Host{Driver: "qemu", ID: "id", Name: "host"}
)

// newSnapshot returns a VirtualMachineSnapshot with a finalizer and a host.
func newSnapshot(changes ...func(*v1alpha1.VirtualMachineSnapshot)) *v1alpha1.VirtualMachineSnapshot {
	s := &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "before", Generation: 1, Finalizers: []string{v1alpha1.SnapshotFinalizer}},
		Spec:       v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web"},
		Status:     v1alpha1.VirtualMachineSnapshotStatus{Host: &here},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func unclaimed(s *v1alpha1.VirtualMachineSnapshot)  { s.Finalizers = nil }
func hostless(s *v1alpha1.VirtualMachineSnapshot)   { s.Status.Host = nil }
func deleted(s *v1alpha1.VirtualMachineSnapshot)    { s.DeletionTimestamp = &metav1.Time{Time: now} }
func withMemory(s *v1alpha1.VirtualMachineSnapshot) { s.Spec.Memory = true }
func wasTaken(s *v1alpha1.VirtualMachineSnapshot)   { s.Status.TakenAt = &metav1.Time{Time: now} }

// nowhere is the store of a test that does not call it.
type nowhere struct{ backend.SnapshotStore }

// The whole life of a snapshot: what is done, and what its condition says.
func TestDecideAndSummarize(t *testing.T) {
	web := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	going := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "web", DeletionTimestamp: &metav1.Time{Time: now}}}
	of := func(machine *v1alpha1.VirtualMachine, state *backend.SnapshotState) observation {
		return observation{machine: machine, store: nowhere{}, host: here, state: state}
	}
	taken := &backend.SnapshotState{Taken: true, TakenAt: now, AllocatedBytes: 1 << 20, Disks: []backend.SnapshotDisk{{Name: "root", VirtualBytes: 1 << 30}}}
	failed := &backend.SnapshotState{Failure: errors.New("no space"), FailedAt: now.Add(-time.Second)}
	other := v1alpha1.Host{Driver: "qemu", ID: "other", Name: "there"}
	for _, test := range []struct {
		reason   string
		snapshot *v1alpha1.VirtualMachineSnapshot
		seen     observation
		actErr   error
		action   external.Action
		ready    string // status and reason
		says     string // part of the message
	}{
		{"there is no machine", newSnapshot(unclaimed, hostless), observation{}, nil, external.Await, "False MachineMissing", "no VirtualMachine web"},
		{"the machine is being deleted", newSnapshot(), of(going, nil), nil, external.Await, "False MachineMissing", "no VirtualMachine web"},
		{"the machine has no host yet", newSnapshot(unclaimed, hostless), observation{machine: web}, nil, external.Await, "False MachineNotCreated", "no disks yet"},
		{"the finalizer and the host come first", newSnapshot(unclaimed, hostless), of(web, nil), nil, external.Claim, "False SnapshotInProgress", "being taken"},
		{"it is taken", newSnapshot(), of(web, nil), nil, external.Ensure, "False SnapshotInProgress", "being taken"},
		{"the machine is not complete", newSnapshot(), of(web, nil), fmt.Errorf("take: %w", backend.ErrNotCreated), external.Ensure, "False MachineNotCreated", "no disks yet"},
		{"the machine has no disks", newSnapshot(), of(web, nil), fmt.Errorf("take: %w", backend.ErrNoDisks), external.Ensure, "False InvalidSpec", "no disks"},
		{"the machine has no memory", newSnapshot(withMemory), of(web, nil), fmt.Errorf("take: %w", backend.ErrNotRunning), external.Ensure, "False MachineNotRunning", "start it"},
		{"its memory cannot be in a snapshot", newSnapshot(withMemory), of(web, nil), fmt.Errorf("%w: it has UEFI firmware", backend.ErrInvalid), external.Ensure, "False InvalidSpec", "UEFI"},
		{"it is in progress", newSnapshot(), of(web, &backend.SnapshotState{Busy: true, Progress: "half"}), nil, external.Wait, "False SnapshotInProgress", "Half"},
		{"the last attempt failed", newSnapshot(), of(web, failed), nil, external.BackOff, "False SnapshotFailed", "No space. The next attempt"},
		{"the attempt was ended with its manager", newSnapshot(), of(web, &backend.SnapshotState{}), nil, external.Ensure, "False SnapshotInProgress", "being taken"},
		{"it is complete, and its machine is gone", newSnapshot(), of(nil, taken), nil, external.Keep, "True SnapshotTaken", "The snapshot of the machine web is taken"},
		{"a file is gone", newSnapshot(wasTaken), of(nil, &backend.SnapshotState{Taken: true, Lost: "the file is missing"}), nil, external.Lost, "False SnapshotLost", "The file is missing"},
		{"everything is gone, and it is not taken again", newSnapshot(wasTaken), of(web, nil), nil, external.Lost, "False SnapshotLost", "restore the state directory"},
		{"another host has it", newSnapshot(), observation{machine: web, host: here, elsewhere: &other}, nil, external.Refuse, "False OnAnotherHost", "there (other)"},
		{"the driver is away", newSnapshot(), observation{machine: web, err: backend.ErrUnavailable}, nil, external.Unreachable, "Unknown BackendUnavailable", "unknown"},
		{"the driver takes none", newSnapshot(), observation{machine: web, err: backend.ErrMissing}, nil, external.Unreachable, "False DriverMissing", ""},
		{"it is deleted", newSnapshot(deleted), of(nil, taken), fmt.Errorf("a machine is being made of it: %w", backend.ErrInProgress), external.Remove, "False Terminating", "The deletion waits: a machine"},
		{"it is deleted on another host", newSnapshot(deleted), observation{host: here, elsewhere: &other}, nil, external.Refuse, "False Terminating", "there (other)"},
		{"it is deleted, and the driver is away", newSnapshot(deleted), observation{err: backend.ErrUnavailable}, nil, external.Unreachable, "False Terminating", "Keelson retries"},
		{"it is deleted, and was never taken", newSnapshot(deleted, hostless), observation{}, nil, external.Remove, "", ""},
		{"it is deleted, and somebody else has a finalizer", newSnapshot(deleted, unclaimed), observation{}, nil, external.Released, "", ""},
	} {
		t.Run(test.reason, func(t *testing.T) {
			p := external.Decide(test.snapshot, v1alpha1.SnapshotFinalizer, new(Reconciler).Facts(test.snapshot, test.seen), now)
			if p.Action != test.action {
				t.Fatalf("the action is %s, want %s", p.Action, test.action)
			}
			if test.ready == "" {
				return
			}
			status := (&Reconciler{}).Summarize(test.snapshot, test.seen, p, test.actErr).Status
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if got := string(ready.Status) + " " + ready.Reason; got != test.ready || !strings.Contains(ready.Message, test.says) {
				t.Errorf("Ready is %s: %s, want %s: %s", got, ready.Message, test.ready, test.says)
			}
			if p.Action == external.Keep && (status.Size.String() != "1Mi" || len(status.Disks) != 1 || status.Disks[0].Size.String() != "1Gi" || !status.TakenAt.Time.Equal(now)) {
				t.Errorf("the status is %+v", status)
			}
		})
	}
}
