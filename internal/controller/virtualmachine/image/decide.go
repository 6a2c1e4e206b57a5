package image

import (
	"errors"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

// checkInterval is the interval of checks whether an imported image still exists, and of those for a
// missing driver.
const checkInterval = 30 * time.Second

// action is what a reconcile does.
type action string

const (
	// keep: machines can use the image.
	keep action = "keep"
	// released: the object is being deleted, and has no finalizer of this controller.
	released action = "released"
	// claim: the finalizer is added before anything is imported.
	claim action = "claim"
	// fetch: the import begins.
	fetch action = "import"
	// wait: the import is in progress.
	wait action = "wait"
	// backOff: the next attempt is not due yet.
	backOff action = "backOff"
	// unreachable: there is no driver, or it does not respond.
	unreachable action = "unreachable"
	// inUse: the deletion waits for machines.
	inUse action = "inUse"
	// remove: the image and the finalizer are removed.
	remove action = "remove"
)

// plan is the result of decide.
type plan struct {
	now    time.Time
	action action
	// nextAttempt is when the backoff after a failure ends.
	nextAttempt time.Time
	// requeueAfter is when to reconcile again without an event; zero means never.
	requeueAfter time.Duration
}

// decide returns the next action for an image.
func decide(image *v1alpha1.VirtualMachineImage, seen observation, now time.Time) plan {
	p := plan{now: now, requeueAfter: checkInterval}
	claimed := slices.Contains(image.Finalizers, v1alpha1.ImageFinalizer)
	switch {
	case !image.DeletionTimestamp.IsZero() && !claimed:
		p.action = released
	case !image.DeletionTimestamp.IsZero() && len(seen.users) > 0:
		p.action = inUse // the deletion of a machine is an event
	case !image.DeletionTimestamp.IsZero() && (seen.err == nil || errors.Is(seen.err, backend.ErrMissing)):
		p.action = remove
	case seen.err != nil:
		p.action = unreachable
	case !claimed:
		p.action = claim
	case seen.state == nil:
		p.action = fetch
	case seen.state.Failure != nil:
		p.nextAttempt = seen.state.FailedAt.Add(kube.FailurePause(image.Status.Conditions, v1alpha1.ConditionReady, seen.state.FailedAt))
		p.action, p.requeueAfter = backOff, p.nextAttempt.Sub(now)
		if p.requeueAfter <= 0 {
			p.action, p.requeueAfter = fetch, checkInterval
		}
	case !seen.state.Ready:
		p.action = wait
	default:
		p.action = keep
	}
	return p
}
