package snapshots

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1" // its words; those of other kinds are the same
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/names"
	"github.com/keelson-dev/keelson/internal/requests"
)

// previousValid is how old the snapshot of the present state may be when a restore begins. If it is older, the restore was delayed
// before it began, and another one is made: the state may have changed since.
const previousValid = 15 * time.Minute

// Restore is a request to restore an object in place, once, and what is known about it.
type Restore struct {
	client.Object
	// Kind is the kind of the snapshots, and By the label of the one of the state before: the UID of the object.
	Kind, By string
	// Noun is what is restored, such as "cluster", and Content what a snapshot of it has, such as "objects".
	Noun, Content string
	// Spec is nil if no restore is requested.
	Spec *commonv1.Restore
	// Done is nil if none has ended.
	Done *commonv1.RestoreStatus
	// Idle is why nothing is restored now; nil if nothing prevents it.
	Idle *metav1.Condition
	// Unusable is why the object cannot be restored from the snapshot; empty if it can.
	Unusable string
	// Previous is the snapshot of the state before; nil if it does not exist.
	Previous *Snapshot
	// Begun means that the restore has begun and not ended: what is restored may be in either state, so the snapshot of the state before is the
	// only copy of that.
	Begun bool
	// Grace is how long it takes to stop what is restored.
	Grace time.Duration
}

// PreviousAction is what to do with the snapshot of the state before a restore.
type PreviousAction string

// The values of PreviousAction.
const (
	// PreviousKeep: it is as it should be, or not wanted.
	PreviousKeep PreviousAction = ""
	// PreviousCreate: it does not exist.
	PreviousCreate PreviousAction = "create"
	// PreviousRemove: it is of an earlier state, or must not be taken any more.
	PreviousRemove PreviousAction = "remove"
	// PreviousWait: it is being deleted.
	PreviousWait PreviousAction = "wait"
	// PreviousBlocked: an object with its name has another origin.
	PreviousBlocked PreviousAction = "blocked"
)

// Token identifies the request.
func (r *Restore) Token() string { return requests.Token(&r.Spec.RequestedAt) }

// IsDone reports whether the requested restore has ended.
func (r *Restore) IsDone() bool {
	return r.Done != nil && requests.Token(&r.Done.RequestedAt) == r.Token()
}

// IsRequested reports whether a restore is requested that has not ended.
func (r *Restore) IsRequested() bool {
	return r.Spec != nil && r.GetDeletionTimestamp().IsZero() && !r.IsDone()
}

// KeepsCurrent reports whether a snapshot of the present state is made before the restore.
func (r *Restore) KeepsCurrent() bool { return ptr.Deref(r.Spec.KeepCurrent, true) }

// IsDue reports whether the requested restore can begin: the present state is kept, or need not be.
func (r *Restore) IsDue(now time.Time) bool {
	if !r.IsRequested() || r.Unusable != "" || r.Idle != nil {
		return false
	}
	if r.Begun {
		return true // whatever its age
	}
	if !r.KeepsCurrent() {
		return !r.isPending() // it must not be taken after the restore
	}
	p := r.Previous
	return r.hasPrevious() && p.GetDeletionTimestamp().IsZero() && p.Ready != nil && p.Ready.Status == metav1.ConditionTrue &&
		now.Before(p.TakenAt.Add(previousValid+r.Grace))
}

// isOwn reports whether the previous snapshot was made for a restore of the object.
func (r *Restore) isOwn() bool {
	return r.Previous != nil && r.Previous.GetLabels()[r.By] == string(r.GetUID())
}

// isPending reports whether the previous snapshot is not taken yet.
func (r *Restore) isPending() bool {
	return r.isOwn() && r.Previous.GetDeletionTimestamp().IsZero() && r.Previous.TakenAt == nil
}

// hasPrevious reports whether there is a snapshot of the state before.
func (r *Restore) hasPrevious() bool { return r.isOwn() && r.Previous.TakenAt != nil }

// PreviousName returns the name of the snapshot of the state before. A request has one name, so that it has one snapshot.
func (r *Restore) PreviousName() string {
	sum := sha256.Sum256([]byte(string(r.GetUID()) + "/" + r.Token()))
	suffix := "-before-restore-" + hex.EncodeToString(sum[:])[:10]
	return names.Shorten(r.GetName(), validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// DecidePrevious decides about the snapshot of the present state, given whether the restore is due.
func (r *Restore) DecidePrevious(isDue bool) PreviousAction {
	switch {
	case !r.IsRequested() || r.Unusable != "" || r.Begun || isDue && r.KeepsCurrent():
		return PreviousKeep
	case r.Previous != nil && !r.isOwn() && r.KeepsCurrent():
		return PreviousBlocked
	case r.Previous != nil && !r.isOwn():
		return PreviousKeep
	case r.Previous != nil && !r.Previous.GetDeletionTimestamp().IsZero():
		return PreviousWait
	case !r.KeepsCurrent() && r.isPending():
		return PreviousRemove
	case !r.KeepsCurrent() || r.Idle != nil:
		return PreviousKeep
	case r.Previous == nil:
		return PreviousCreate
	case r.Previous.TakenAt != nil:
		return PreviousRemove // it is too old, or lost
	}
	return PreviousKeep
}

// End returns the requested restore as one that has ended at a time. message is the cause if it has failed.
func (r *Restore) End(failed bool, message string, now time.Time) *commonv1.RestoreStatus {
	done := &commonv1.RestoreStatus{
		RequestedAt: r.Spec.RequestedAt, Snapshot: r.Spec.Snapshot, Result: commonv1.RestoreSucceeded, Message: message,
		CompletedAt: ptr.To(metav1.NewTime(now).Rfc3339Copy()),
	}
	if failed {
		done.Result = commonv1.RestoreFailed
	}
	if r.hasPrevious() {
		done.Previous = r.Previous.GetName()
	}
	return done
}

// Condition returns the condition about the restore, given what is done with the snapshot of the present state, and whether the
// restore is due.
func (r *Restore) Condition(action PreviousAction, isDue bool) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
		c := condition(status, reason, message, args...)
		c.Type = v1alpha1.ConditionRestored
		return c
	}
	if done := r.Done; r.IsDone() {
		switch {
		case done.Result == commonv1.RestoreFailed:
			return is(metav1.ConditionFalse, v1alpha1.ReasonRestoreFailed,
				"The %s was not restored and has the %s that it had before: %s. To try again, change spec.restore.requestedAt", r.Noun, r.Content, done.Message)
		case done.Previous != "":
			return is(metav1.ConditionTrue, v1alpha1.ReasonRestored, "The %s has the %s of the %s %s. Those before are in the %s %s",
				r.Noun, r.Content, r.Kind, done.Snapshot, r.Kind, done.Previous)
		}
		return is(metav1.ConditionTrue, v1alpha1.ReasonRestored, "The %s has the %s of the %s %s", r.Noun, r.Content, r.Kind, done.Snapshot)
	}
	switch {
	case r.Idle != nil:
		return is(metav1.ConditionFalse, r.Idle.Reason, "%s", r.Idle.Message)
	case r.Unusable != "":
		return is(metav1.ConditionFalse, v1alpha1.ReasonSnapshotNotAvailable, "%s", r.Unusable)
	case action == PreviousBlocked:
		return is(metav1.ConditionFalse, v1alpha1.ReasonErrResourceExists,
			"There is a %s %s that Keelson has not made: delete it, or change spec.restore.requestedAt", r.Kind, r.Previous.GetName())
	case !isDue && action != PreviousRemove:
		cause := ""
		if r.Previous != nil && r.Previous.Ready != nil && r.Previous.Ready.Status != metav1.ConditionTrue {
			cause = ": " + r.Previous.Ready.Message
		}
		return is(metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending,
			"Before the restore, the present %s are kept in the %s %s, which is not taken yet%s. To restore without it, set spec.restore.keepCurrent to false",
			r.Content, r.Kind, r.PreviousName(), cause)
	}
	return is(metav1.ConditionFalse, v1alpha1.ReasonRestoring, "The %s is being restored from the %s %s", r.Noun, r.Kind, r.Spec.Snapshot)
}

// ObservePrevious returns the snapshot of the state before a restore; nil if it does not exist.
func (s Store[S]) ObservePrevious(ctx context.Context, r *Restore) (*Snapshot, error) {
	found, key := s.Empty(), client.ObjectKey{Namespace: r.GetNamespace(), Name: r.PreviousName()}
	err := kube.GetNew(ctx, s.Client, s.Live, key, found)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, kube.Named(err, "get", s.Kind, key.Namespace, key.Name)
	}
	return ptr.To(s.View(found)), nil
}

// ActOnPrevious makes or deletes the snapshot of the present state. wanted is the one to make, whose name and label it sets.
func (s Store[S]) ActOnPrevious(ctx context.Context, r *Restore, action PreviousAction, wanted S) error {
	switch action {
	case PreviousCreate:
		if err := s.Check(ctx); err != nil {
			return err
		}
		labels := wanted.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[r.By] = string(r.GetUID())
		wanted.SetLabels(labels)
		wanted.SetName(r.PreviousName())
		err := s.Client.Create(ctx, wanted, client.FieldOwner(kube.FieldManager))
		if apierrors.IsAlreadyExists(err) {
			err = kube.ErrStale // the next reconcile sees whose it is
		}
		if err != nil {
			return kube.Named(err, "create", s.Kind, wanted.GetNamespace(), wanted.GetName())
		}
		log.FromContext(ctx).Info("Made a snapshot of the state before a restore", s.Kind, wanted.GetName())
	case PreviousRemove:
		old := r.Previous
		if err := kube.Delete(ctx, s.Client, old.Object); err != nil {
			return kube.Named(err, "delete", s.Kind, old.GetNamespace(), old.GetName())
		}
	}
	return nil
}

// OfAnother returns why an object cannot be restored from a ready snapshot of another one. field is the field of a new object
// that is made of it.
func (r *Restore) OfAnother(kind, field string) string {
	return fmt.Sprintf("the %s %s is of another %s: create a new %s of it with %s", r.Kind, r.Spec.Snapshot, kind, kind, field)
}
