package snapshots

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// Store reads and writes the snapshots of a kind.
type Store[S client.Object] struct {
	Client client.Client
	// Live is the API server: Client may be stale.
	Live client.Reader
	// Kind is the kind of the snapshots, and By the label with the UID of the object whose schedule has made them.
	Kind, By string
	// Empty returns an object to read into.
	Empty func() S
	// List returns those in a namespace that have the label.
	List func(ctx context.Context, options ...client.ListOption) ([]S, error)
	// View returns what a schedule has to know of one.
	View func(S) Snapshot
	// New returns the snapshot of an object for a scheduled time. It has no owner reference, because it outlives the object.
	New func(at time.Time) S
	// Check returns an error if the cached object that has the schedule is not up to date.
	Check func(ctx context.Context) error
	// IsSource reports whether something is being made of a snapshot or restored from it.
	IsSource func(ctx context.Context, snapshot client.Object) (bool, error)
}

// Observe returns the snapshots that a schedule has made.
func (s Store[S]) Observe(ctx context.Context, of Of) ([]Snapshot, error) {
	items, err := s.List(ctx, client.InNamespace(of.GetNamespace()), client.MatchingLabels{s.By: string(of.GetUID())})
	if err != nil {
		return nil, kube.Named(err, "list", s.Kind+"s", of.GetNamespace(), "")
	}
	last := of.Status.LastSnapshot
	if last != "" && !slices.ContainsFunc(items, func(item S) bool { return item.GetName() == last }) {
		found := s.Empty() // the cache may be behind
		switch err := s.Live.Get(ctx, client.ObjectKey{Namespace: of.GetNamespace(), Name: last}, found); {
		case err == nil && found.GetLabels()[s.By] == string(of.GetUID()):
			items = append(items, found)
		case client.IgnoreNotFound(err) != nil:
			return nil, kube.Named(err, "get", s.Kind, of.GetNamespace(), last)
		}
	}
	all := make([]Snapshot, 0, len(items))
	for _, item := range items {
		all = append(all, s.View(item))
	}
	return all, nil
}

// Error is an error of the snapshot that is due.
type Error struct{ Err error }

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Act makes the snapshot that is due, and deletes those that are not kept. The error is an *Error if the one that is due could not
// be made.
func (s Store[S]) Act(ctx context.Context, of Of, p *Plan) error {
	if !p.Create.IsZero() {
		if err := s.create(ctx, of, p.Create); err != nil {
			return &Error{Err: err}
		}
	}
	p.made = true
	for _, old := range p.Prune {
		if needed, err := s.IsSource(ctx, old.Object); err != nil || needed {
			return err // it is deleted after the next one is taken
		}
		if err := kube.Delete(ctx, s.Client, old.Object); err != nil {
			return kube.Named(err, "delete", s.Kind, old.GetNamespace(), old.GetName())
		}
		log.FromContext(ctx).Info("Deleted a scheduled snapshot that is not kept", s.Kind, old.GetName())
	}
	return nil
}

// create makes the snapshot for a scheduled time, unless an earlier attempt or manager did.
func (s Store[S]) create(ctx context.Context, of Of, at time.Time) error {
	if err := s.Check(ctx); err != nil {
		return err
	}
	wanted := s.New(at)
	err := s.Client.Create(ctx, wanted, client.FieldOwner(kube.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		found := s.Empty()
		if err = s.Live.Get(ctx, client.ObjectKeyFromObject(wanted), found); err == nil && found.GetLabels()[s.By] != string(of.GetUID()) {
			err = kube.ErrNotOwned
		}
	} else if err == nil {
		log.FromContext(ctx).Info("Made a scheduled snapshot", s.Kind, wanted.GetName())
	}
	return kube.Named(err, "create", s.Kind, wanted.GetNamespace(), wanted.GetName())
}

// Summarize sets the condition about a schedule, and returns its progress, given the error of Act. The plan is nil if nothing was
// decided.
func Summarize(of Of, p *Plan, actErr error, now time.Time, conditions *[]metav1.Condition) commonv1.SnapshotScheduleStatus {
	is := condition(metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The schedule was not looked at yet")
	if before := meta.FindStatusCondition(*conditions, v1alpha1.ConditionSnapshotsUpToDate); before != nil {
		is = *before
	}
	status := of.Status
	var failed *Error
	switch isFailed := errors.As(actErr, &failed); {
	case p != nil && p.made:
		is, status = p.Condition, p.Status
	case isFailed && errors.Is(failed, kube.ErrNotOwned):
		is = condition(metav1.ConditionFalse, v1alpha1.ReasonErrResourceExists,
			"There is a %s %s that the schedule has not made: delete it, or wait for the next time", of.Kind, p.Status.LastSnapshot)
	case isFailed && !kube.IsStale(failed):
		is = condition(metav1.ConditionFalse, v1alpha1.ReasonSnapshotPending, "%v. Keelson retries", failed.Err)
	}
	kube.SetConditions(of, conditions, now, is)
	return status
}
