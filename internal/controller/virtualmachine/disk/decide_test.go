package disk

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
)

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	here = v1alpha1.Host{Driver: "qemu", ID: "id", Name: "host"}
)

// disk returns a VirtualDisk of 1 GiB with a finalizer and a host.
func newDisk(change func(*v1alpha1.VirtualDisk)) *v1alpha1.VirtualDisk {
	disk := &v1alpha1.VirtualDisk{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "data", Generation: 1, Finalizers: []string{v1alpha1.DiskFinalizer}},
		Spec:       v1alpha1.VirtualDiskSpec{Size: ptr.To(resource.MustParse("1Gi"))},
		Status:     v1alpha1.VirtualDiskStatus{Host: &here},
	}
	if change != nil {
		change(disk)
	}
	return disk
}

func unclaimed(disk *v1alpha1.VirtualDisk)  { disk.Finalizers = nil }
func hostless(disk *v1alpha1.VirtualDisk)   { disk.Status.Host = nil }
func deleted(disk *v1alpha1.VirtualDisk)    { disk.DeletionTimestamp = &metav1.Time{Time: now} }
func wasCreated(disk *v1alpha1.VirtualDisk) { disk.Status.Size = ptr.To(resource.MustParse("1Gi")) }

// The whole life of a disk: what is done, and what its conditions say.
func TestDecideAndSummarize(t *testing.T) {
	owner := &backend.Identity{Name: "web"}
	complete := backend.DiskState{Created: true, SizeBytes: 1 << 30, AllocatedBytes: 1}
	small := backend.DiskState{Created: true, SizeBytes: 1 << 20}
	for _, test := range []struct {
		reason string
		disk   *v1alpha1.VirtualDisk
		seen   observation
		actErr error
		action external.Action
		ready  string // status and reason
		says   string // part of the message of Ready, or of Deleting if the disk is being deleted
	}{
		{"nothing was done before the finalizer and the host are recorded", newDisk(unclaimed), observation{}, nil, external.Claim, "False Creating", "being created"},
		{"a status that was lost is written again", newDisk(hostless), observation{}, nil, external.Claim, "False Creating", "being created"},
		{"it is created", newDisk(nil), observation{}, nil, external.Ensure, "False Creating", "being created"},
		{"it is being downloaded", newDisk(nil), observation{state: &backend.DiskState{Busy: true, Progress: "half"}}, nil, external.Wait, "False Creating", "Half"},
		{"it is there", newDisk(nil), observation{state: &complete}, nil, external.Keep, "True DiskAvailable", "as specified"},
		{"it has failed", newDisk(nil), observation{state: &backend.DiskState{Failure: errors.New("no space"), FailedAt: now}}, nil, external.BackOff, "False CreateFailed", "No space. The next attempt is at"},
		{
			"the next attempt is due", newDisk(nil), observation{state: &backend.DiskState{Failure: errors.New("no space"), FailedAt: now.Add(-time.Hour)}},
			nil, external.Ensure, "False Creating", "being created",
		},
		{"it grows", newDisk(nil), observation{state: &small}, nil, external.Ensure, "False Growing", "being grown"},
		{
			"its machine grows it", newDisk(nil), observation{state: &backend.DiskState{Created: true, SizeBytes: 1, AttachedTo: owner}},
			nil, external.Ensure, "False Growing", "by the machine web",
		},
		{
			"it could not be grown", newDisk(nil), observation{state: &backend.DiskState{Created: true, SizeBytes: 1, Failure: errors.New("no"), FailedAt: now}},
			nil, external.BackOff, "False GrowFailed", "No. The next",
		},
		{"its file is gone", newDisk(wasCreated), observation{state: &backend.DiskState{Created: true, Lost: "gone"}}, nil, external.Lost, "False DiskLost", "Gone"},
		{"its folder is gone: it is not created anew", newDisk(wasCreated), observation{}, nil, external.Lost, "False DiskLost", "restore the state directory"},
		{"another host has it", newDisk(nil), observation{elsewhere: true}, nil, external.Refuse, "False OnAnotherHost", "forget-host=id"},
		{"there is no driver", newDisk(nil), observation{err: fmt.Errorf("%w: add qemu", backend.ErrMissing)}, nil, external.Unreachable, "False DriverMissing", "add qemu"},
		{"the driver does not answer", newDisk(nil), observation{err: backend.ErrUnavailable}, nil, external.Unreachable, "Unknown BackendUnavailable", "Keelson retries"},
		{"its image is not possible", newDisk(nil), observation{}, &backend.FieldError{Field: "spec.image.path"}, external.Ensure, "False InvalidSpec", "spec.image.path"},
		{"its image is missing", newDisk(nil), observation{}, image.ErrMissing, external.Ensure, "False ImageMissing", "missing"},
		{"its image is not ready", newDisk(nil), observation{}, image.ErrNotReady, external.Ensure, "False ImageNotReady", "not ready"},
		{"its source is missing", newDisk(nil), observation{}, backend.ErrSourceMissing, external.Ensure, "False SourceMissing", "no such disk"},
		{"its source is not ready", newDisk(nil), observation{}, backend.ErrSourceNotReady, external.Ensure, "False SourceNotReady", "not ready"},
		{"its source is in use", newDisk(nil), observation{}, backend.ErrSourceInUse, external.Ensure, "False SourceInUse", "in use"},
		{"it is deleted", newDisk(deleted), observation{state: &complete}, nil, external.Remove, "False Terminating", "being deleted"},
		{
			"a machine has it", newDisk(deleted), observation{state: &backend.DiskState{Created: true, SizeBytes: 1, AttachedTo: owner}},
			backend.ErrDiskInUse, external.Remove, "False Terminating", "until the machine web lets the disk go",
		},
		{"it is busy", newDisk(deleted), observation{state: &complete}, backend.ErrInProgress, external.Remove, "False Terminating", "not busy"},
		{"it cannot be deleted", newDisk(deleted), observation{state: &complete}, errors.New("read-only"), external.Remove, "False Terminating", "Read-only. Keelson retries"},
		{"the driver of a disk is missing", newDisk(deleted), observation{err: backend.ErrMissing}, nil, external.Unreachable, "False Terminating", "waits for the driver"},
		{
			"there never was one", newDisk(func(d *v1alpha1.VirtualDisk) { deleted(d); hostless(d) }), observation{err: backend.ErrMissing},
			nil, external.Remove, "False Terminating", "waits for the driver",
		},
		{"another host deletes it", newDisk(deleted), observation{elsewhere: true}, nil, external.Refuse, "False Terminating", "run the manager on that host"},
		{"nothing is left to do", newDisk(func(d *v1alpha1.VirtualDisk) { deleted(d); unclaimed(d) }), observation{}, nil, external.Released, "False Terminating", "being deleted"},
	} {
		t.Run(test.reason, func(t *testing.T) {
			test.seen.host = here
			p := external.Decide(test.disk, v1alpha1.DiskFinalizer, new(Reconciler).Facts(test.disk, test.seen), now)
			if p.Action != test.action {
				t.Errorf("action is %s, want %s", p.Action, test.action)
			}
			if p.RequeueAfter <= 0 {
				t.Errorf("requeued after %v", p.RequeueAfter)
			}
			status := (&Reconciler{}).Summarize(test.disk, test.seen, p, test.actErr).Status
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if got := string(ready.Status) + " " + ready.Reason; got != test.ready {
				t.Errorf("Ready is %s, want %s", got, test.ready)
			}
			says := ready.Message
			deleting := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDeleting)
			if !test.disk.DeletionTimestamp.IsZero() {
				says = deleting.Message
			}
			if !strings.Contains(says, test.says) {
				t.Errorf("the message is %q, without %q", says, test.says)
			}
		})
	}
}

// Small changes of the allocated space are not written: a guest that writes would cause a write of the status each time.
func TestAllocated(t *testing.T) {
	for _, test := range []struct {
		before     string
		size, used int64
		want       string
	}{
		{"", 1 << 30, 1, "1Mi"},
		{"1Mi", 1 << 30, 40 << 20, "1Mi"},
		{"1Mi", 1 << 30, 60 << 20, "60Mi"},
		{"60Mi", 1 << 30, 0, "0"},
		{"1Mi", 1 << 20, 2 << 20, "2Mi"},
	} {
		var before *resource.Quantity
		if test.before != "" {
			before = ptr.To(resource.MustParse(test.before))
		}
		if got := allocated(before, &backend.DiskState{SizeBytes: test.size, AllocatedBytes: test.used}); got.String() != test.want {
			t.Errorf("%d of %d bytes after %s: %s, want %s", test.used, test.size, test.before, got, test.want)
		}
	}
}
