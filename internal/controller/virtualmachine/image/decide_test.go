package image

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

var here = v1alpha1.Host{Driver: "qemu", ID: "1", Name: "here"}

type change func(*v1alpha1.VirtualMachineImage)

func newImage(changes ...change) *v1alpha1.VirtualMachineImage {
	image := &v1alpha1.VirtualMachineImage{ObjectMeta: metav1.ObjectMeta{Name: "it", Finalizers: []string{v1alpha1.ImageFinalizer}, Generation: 1}}
	for _, change := range changes {
		change(image)
	}
	return image
}

func unclaimed(i *v1alpha1.VirtualMachineImage) { i.Finalizers = nil }

func deleted(i *v1alpha1.VirtualMachineImage) { i.DeletionTimestamp = &metav1.Time{Time: now} }

// was has a condition Ready for an hour, on a host.
func was(status metav1.ConditionStatus, reason string, host v1alpha1.Host) change {
	return func(i *v1alpha1.VirtualMachineImage) {
		i.Status.Host = &host
		i.Status.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: "Before", LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		}}
	}
}

func TestDecideAndSummarize(t *testing.T) {
	broken := errors.New("no route to host")
	missing := fmt.Errorf("%w: install QEMU", backend.ErrMissing)
	away := fmt.Errorf("driver qemu: %w", backend.ErrUnavailable)
	ready := &backend.ImageState{Ready: true, Format: "qcow2", AllocatedBytes: 1<<20 + 1, VirtualBytes: 4 << 30}
	type result struct {
		Action               external.Action
		Again                time.Duration
		Ready                metav1.ConditionStatus
		Reason, Message      string
		Deleting, DeletingAs string
		Size                 string
	}
	for _, test := range []struct {
		name   string
		image  *v1alpha1.VirtualMachineImage
		seen   observation
		actErr error
		want   result
	}{
		{
			name: "nothing is imported before the finalizer is there", image: newImage(unclaimed),
			want: result{external.Claim, external.CheckInterval, "False", "Importing", "The image is being imported", "False", "NotDeleting", ""},
		},
		{
			name: "the import begins", image: newImage(),
			want: result{external.Ensure, external.CheckInterval, "False", "Importing", "The image is being imported", "False", "NotDeleting", ""},
		},
		{
			name: "the progress of the download shows", image: newImage(), seen: observation{state: &backend.ImageState{Progress: "50 % of 2 MiB"}},
			want: result{external.Wait, external.CheckInterval, "False", "Importing", "50 % of 2 MiB", "False", "NotDeleting", ""},
		},
		{
			name: "machines can use it; its size is rounded up", image: newImage(), seen: observation{state: ready},
			want: result{external.Keep, external.CheckInterval, "True", "Imported", "Machines can use the image: spec.image.name", "False", "NotDeleting", "2Mi of 4Gi"},
		},
		{
			name: "a new manager finds it again: nothing changes", image: newImage(was("True", "Imported", here)),
			want: result{external.Ensure, external.CheckInterval, "True", "Imported", "Before", "False", "NotDeleting", ""},
		},
		{
			name: "a manager on another host imports it there", image: newImage(was("True", "Imported", v1alpha1.Host{Driver: "qemu", ID: "2"})),
			want: result{external.Ensure, external.CheckInterval, "False", "Importing", "The image is being imported", "False", "NotDeleting", ""},
		},
		{
			name: "the file was lost, and is downloaded again", image: newImage(was("True", "Imported", here)),
			seen: observation{state: &backend.ImageState{Progress: "being downloaded"}},
			want: result{external.Wait, external.CheckInterval, "False", "Importing", "Being downloaded", "False", "NotDeleting", ""},
		},
		{
			name: "the first failure is retried soon", image: newImage(),
			seen: observation{state: &backend.ImageState{Failure: broken, FailedAt: now.Add(-4 * time.Second)}},
			want: result{external.BackOff, 6 * time.Second, "False", "ImportFailed", "No route to host. The next attempt is at 2026-05-04T12:00:06Z", "False", "NotDeleting", ""},
		},
		{
			name: "the backoff is over", image: newImage(), seen: observation{state: &backend.ImageState{Failure: broken, FailedAt: now.Add(-10 * time.Second)}},
			want: result{external.Ensure, external.CheckInterval, "False", "Importing", "The image is being imported", "False", "NotDeleting", ""},
		},
		{
			name: "what fails for long is retried rarely", image: newImage(was("False", "ImportFailed", here)),
			seen: observation{state: &backend.ImageState{Failure: broken, FailedAt: now}},
			want: result{external.BackOff, 5 * time.Minute, "False", "ImportFailed", "No route to host. The next attempt is at 2026-05-04T12:05:00Z", "False", "NotDeleting", ""},
		},
		{
			name: "a file that is not allowed", image: newImage(), actErr: &backend.FieldError{Field: "spec.path", Message: "is outside"},
			want: result{external.Ensure, external.CheckInterval, "False", "InvalidSpec", "Not possible: spec.path: is outside", "False", "NotDeleting", ""},
		},
		{
			name: "no driver", image: newImage(), seen: observation{err: missing},
			want: result{external.Unreachable, external.CheckInterval, "False", "DriverMissing", "Driver is missing: install QEMU", "False", "NotDeleting", ""},
		},
		{
			name: "the driver does not respond", image: newImage(), seen: observation{err: away},
			want: result{external.Unreachable, external.CheckInterval, "Unknown", "BackendUnavailable",
				"The state of the image is unknown: driver qemu: backend does not answer. Keelson retries", "False", "NotDeleting", ""},
		},
		{
			name: "a deletion waits for machines", image: newImage(deleted), seen: observation{state: ready, users: []string{"a/1", "a/2", "b/1", "b/2", "b/3"}},
			want: result{external.InUse, external.CheckInterval, "False", "Terminating", "The image is being deleted: no new machine can use it", "False",
				"InUse: The deletion waits until no machine names the image: a/1, a/2, b/1 and 2 more", ""},
		},
		{
			name: "nobody uses it any more", image: newImage(deleted), seen: observation{state: ready},
			want: result{external.Remove, external.WaitInterval, "False", "Terminating", "The image is being deleted: no new machine can use it", "True", "Removing: The image is being removed", ""},
		},
		{
			name: "without a driver there is nothing to remove", image: newImage(deleted), seen: observation{err: missing},
			want: result{external.Remove, external.WaitInterval, "False", "Terminating", "The image is being deleted: no new machine can use it", "True",
				"Removing: The deletion waits for the driver: driver is missing: install QEMU", ""},
		},
		{
			name: "a driver that does not respond may have it", image: newImage(deleted), seen: observation{err: away},
			want: result{external.Unreachable, external.CheckInterval, "False", "Terminating", "The image is being deleted: no new machine can use it", "True",
				"Removing: The deletion waits for the driver: driver qemu: backend does not answer", ""},
		},
		{
			name: "somebody else's finalizer", image: newImage(deleted, unclaimed),
			want: result{external.Released, external.CheckInterval, "False", "Terminating", "The image is being deleted: no new machine can use it", "True", "Removing: The image is being removed", ""},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.seen.host = here
			p := external.Decide(test.image, v1alpha1.ImageFinalizer, new(Reconciler).Facts(test.image, test.seen), now)
			status := (&Reconciler{}).Summarize(test.image, test.seen, p, test.actErr).Status
			got := result{Action: p.Action, Again: p.RequeueAfter}
			if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); c != nil {
				got.Ready, got.Reason, got.Message = c.Status, c.Reason, c.Message
			}
			if c := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionDeleting); c != nil {
				got.Deleting, got.DeletingAs = string(c.Status), c.Reason
				if c.Reason != v1alpha1.ReasonNotDeleting {
					got.DeletingAs += ": " + c.Message
				}
			}
			if status.Size != nil {
				got.Size = status.Size.String() + " of " + status.VirtualSize.String()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if want := int32(len(test.seen.users)); status.Users != want { //nolint:gosec // few
				t.Errorf("users: %d, want %d", status.Users, want)
			}
		})
	}
}
