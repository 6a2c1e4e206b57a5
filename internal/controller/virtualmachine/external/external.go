// Package external is what the controllers of images, disks and snapshots have in common: each object stands for something that a driver
// keeps outside of the API. It is claimed with a finalizer, and its host is recorded, before it is made, so that nothing is left over. It is
// made, and made again after a failure; if it is lost, it is not replaced. It is deleted before the finalizer is removed.
package external

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// CheckInterval is the interval at which a driver is asked again, and at which a missing driver is looked for.
	CheckInterval = 30 * time.Second
	// WaitInterval is the interval of attempts while something else has to happen first.
	WaitInterval = 5 * time.Second
	// callTimeout limits each call of a driver.
	callTimeout = 10 * time.Second
)

// Action is what a reconcile does.
type Action string

const (
	// Keep leaves it: it is as specified.
	Keep Action = "keep"
	// Released means that nothing is left to do: the object is being deleted, and has no finalizer of its controller.
	Released Action = "released"
	// Await does nothing: something that it needs does not exist yet.
	Await Action = "await"
	// Claim adds the finalizer and records the host, before it is made.
	Claim Action = "claim"
	// Ensure makes or changes it.
	Ensure Action = "ensure"
	// Wait does nothing: that is in progress.
	Wait Action = "wait"
	// BackOff does nothing: the next attempt is not due yet.
	BackOff Action = "backOff"
	// Unreachable means that the driver says nothing: there is no driver, or it does not respond.
	Unreachable Action = "unreachable"
	// Refuse does nothing: another host has it.
	Refuse Action = "refuse"
	// Lost means that it was made and is gone. It is not made again: that would be another one.
	Lost Action = "lost"
	// InUse does nothing: the deletion waits for its users.
	InUse Action = "inUse"
	// Remove deletes it, and then removes the finalizer.
	Remove Action = "remove"
)

// Facts are what Decide decides by.
type Facts struct {
	// Conditions are those of the status, with the time of the last change of Ready.
	Conditions []metav1.Condition
	// IsRecorded means that the status has the host.
	IsRecorded bool
	// IsElsewhere means that another host has it.
	IsElsewhere bool
	// IsUsed means that something else keeps it from being deleted.
	IsUsed bool
	// Lacks means that something that it needs does not exist yet.
	Lacks bool
	// Err is why the driver does not say whether it exists.
	Err error
	// Exists means that the driver has it, or an attempt to make it. The fields below describe that.
	Exists bool
	// IsMade means that it is as specified, IsLost that it was and is gone, and IsBusy that an operation is in progress.
	IsMade, IsLost, IsBusy bool
	// Failure is why the last attempt failed at FailedAt.
	Failure  error
	FailedAt time.Time
}

// Plan is the result of Decide.
type Plan struct {
	// Now is when it was made.
	Now    time.Time
	Action Action
	// NextAttempt is when the backoff after a failure ends.
	NextAttempt time.Time
	// RequeueAfter is when to reconcile again without an event.
	RequeueAfter time.Duration
}

// Decide returns the next action for an object whose controller has this finalizer. It is a pure function.
func Decide(object client.Object, finalizer string, f Facts, now time.Time) Plan {
	p := Plan{Now: now, RequeueAfter: CheckInterval}
	isDeleted, isClaimed := object.GetDeletionTimestamp() != nil, controllerutil.ContainsFinalizer(object, finalizer)
	switch {
	case isDeleted && !isClaimed:
		p.Action = Released
	case f.IsElsewhere:
		p.Action = Refuse
	case isDeleted && f.IsUsed:
		p.Action = InUse
	case isDeleted && (f.Err == nil || !f.IsRecorded && errors.Is(f.Err, backend.ErrMissing)):
		p.Action, p.RequeueAfter = Remove, WaitInterval
	case f.Err != nil:
		p.Action = Unreachable
	case f.Lacks:
		p.Action, p.RequeueAfter = Await, WaitInterval
	case !isClaimed || !f.IsRecorded:
		p.Action = Claim
	case f.IsLost:
		p.Action = Lost
	case f.IsMade:
		p.Action = Keep
	case !f.Exists:
		p.Action = Ensure
	case f.IsBusy:
		p.Action = Wait
	default:
		p.Action = Ensure
		if f.Failure == nil {
			break
		}
		p.NextAttempt = f.FailedAt.Add(kube.FailurePause(f.Conditions, v1alpha1.ConditionReady, f.FailedAt))
		if left := p.NextAttempt.Sub(now); left > 0 {
			p.Action, p.RequeueAfter = BackOff, left
		}
	}
	return p
}

// Kind is what is different for each kind T of objects. S is what is observed of one.
type Kind[T client.Object, S any] interface {
	// Finalizer is that of the controller.
	Finalizer() string
	// Observe asks the driver. The error is one of the API.
	Observe(ctx context.Context, object T) (S, error)
	// Facts returns what is to be decided by. It is a pure function.
	Facts(object T, seen S) Facts
	// Ensure makes or changes it, and Delete deletes it, if it exists.
	Ensure(ctx context.Context, object T, seen S) error
	Delete(ctx context.Context, object T, seen S) error
	// Summarize returns the object with its new status. actErr is the error of the action. It is a pure function.
	Summarize(object T, seen S, plan Plan, actErr error) T
	// Reports says how results are reported.
	Reports() Reports
}

// Reports is how the results of a kind are reported.
type Reports struct {
	// Verb is the action of events of Ready.
	Verb string
	// Quiet are the reasons of Ready that need no attention: they are no event.
	Quiet []string
	// Waits are errors of an action which mean that something else has to happen first, which is looked for again.
	Waits []error
}

// Reconcile carries out the next action for an object, and writes its status.
func Reconcile[T client.Object, S any](ctx context.Context, base kube.Base, kind Kind[T, S], object T) (reconcile.Result, error) {
	seen, err := kind.Observe(ctx, object)
	if err != nil {
		return reconcile.Result{}, err
	}
	plan := Decide(object, kind.Finalizer(), kind.Facts(object, seen), base.Clock.Now())
	kube.LogAction(ctx, plan.Action)
	if plan.Action == Released {
		return reconcile.Result{}, nil
	}
	actErr := act(ctx, base.Client, kind, object, seen, plan)
	if plan.Action == Remove && actErr == nil {
		return reconcile.Result{}, nil // the object is gone
	}
	return finish(ctx, base, kind, object, seen, plan, actErr)
}

func act[T client.Object, S any](ctx context.Context, c client.Client, kind Kind[T, S], object T, seen S, plan Plan) error {
	calling, cancel := Call(ctx)
	defer cancel()
	switch plan.Action {
	case Claim:
		return kube.AddFinalizer(ctx, c, object, kind.Finalizer()) // the status then records the host
	case Ensure:
		return kind.Ensure(calling, object, seen)
	case Remove:
		if err := kind.Delete(calling, object, seen); err != nil {
			return err
		}
		log.FromContext(ctx).Info("Deleted")
		return kube.RemoveFinalizer(ctx, c, object, kind.Finalizer())
	}
	return nil
}

// finish writes the status if it changed, then records events.
func finish[T client.Object, S any](ctx context.Context, base kube.Base, kind Kind[T, S], object T, seen S, plan Plan, actErr error) (reconcile.Result, error) {
	after, reports := kind.Summarize(object, seen, plan, actErr), kind.Reports()
	before, now := kind.Facts(object, seen).Conditions, kind.Facts(after, seen).Conditions
	was, is := kube.ConditionTransition(before, now, v1alpha1.ConditionReady)
	kube.LogReady(ctx, is)
	wasDeleting, deleting := kube.ConditionTransition(before, now, v1alpha1.ConditionDeleting)
	outcome := kube.Outcome{
		Urgent: plan.Action == Claim || was.Status != is.Status || was.Reason != is.Reason || wasDeleting.Reason != deleting.Reason,
		Again:  plan.RequeueAfter,
	}
	switch {
	case slices.ContainsFunc(reports.Waits, func(expected error) bool { return errors.Is(actErr, expected) }):
		outcome.Again = WaitInterval
	case !errors.Is(actErr, backend.ErrInvalid):
		outcome.Err = actErr
	}
	written, result, err := base.Status.Finish(ctx, object, after, outcome)
	switch {
	case !written:
	case deleting.Reason == v1alpha1.ReasonInUse && wasDeleting.Reason != deleting.Reason:
		base.Events.Warning(object, deleting.Reason, "Delete", deleting.Message)
	case was.Reason == is.Reason:
	case is.Status == metav1.ConditionTrue:
		base.Events.Normal(object, is.Reason, reports.Verb, is.Message)
	case !slices.Contains(reports.Quiet, is.Reason):
		base.Events.Warning(object, is.Reason, reports.Verb, is.Message)
	}
	return result, err
}

// Found returns what a driver has said about something: nil if it does not exist.
func Found[S any](state S, err error) (*S, error) {
	switch {
	case errors.Is(err, backend.ErrNotFound):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &state, nil
}

// Call returns a context for a call of a driver.
func Call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, callTimeout)
}
