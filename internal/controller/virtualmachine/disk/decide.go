package disk

import (
	"errors"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// checkInterval is the interval at which the allocated space is measured, and a driver is looked for.
	checkInterval = 30 * time.Second
	// waitInterval is the interval of attempts while something else is in the way: a machine has the disk to clone, or the
	// disk to delete is busy.
	waitInterval = 5 * time.Second
)

// action is what a reconcile does.
type action string

const (
	// keep: the disk is as specified.
	keep action = "keep"
	// released: the object is being deleted, and has no finalizer of this controller.
	released action = "released"
	// claim: the finalizer is added and the host recorded, before there is a disk.
	claim action = "claim"
	// ensure: the disk is created or grown.
	ensure action = "ensure"
	// wait: that is in progress.
	wait action = "wait"
	// backOff: the next attempt is not due yet.
	backOff action = "backOff"
	// unreachable: there is no driver, or it does not respond.
	unreachable action = "unreachable"
	// refuse: another host has the disk.
	refuse action = "refuse"
	// lost: the data is gone. It is not replaced by an empty disk.
	lost action = "lost"
	// remove: the disk and the finalizer are removed, unless a machine has the disk.
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

// decide returns the next action for a disk.
func decide(disk *v1alpha1.VirtualDisk, seen observation, now time.Time) plan {
	p := plan{now: now, requeueAfter: checkInterval}
	claimed, recorded := slices.Contains(disk.Finalizers, v1alpha1.DiskFinalizer), disk.Status.Host != nil
	deleted := !disk.DeletionTimestamp.IsZero()
	switch {
	case deleted && !claimed:
		p.action = released
	case seen.elsewhere:
		p.action = refuse
	case deleted && (seen.err == nil || !recorded && errors.Is(seen.err, backend.ErrMissing)):
		p.action, p.requeueAfter = remove, waitInterval
	case seen.err != nil:
		p.action = unreachable
	case !claimed || !recorded:
		p.action = claim
	case seen.state == nil && disk.Status.Size != nil:
		p.action = lost
	case seen.state == nil:
		p.action = ensure
	case seen.state.Lost != "":
		p.action = lost
	case seen.state.Busy:
		p.action = wait
	case seen.state.Failure != nil:
		p.nextAttempt = seen.state.FailedAt.Add(kube.FailurePause(disk.Status.Conditions, v1alpha1.ConditionReady, seen.state.FailedAt))
		p.action, p.requeueAfter = backOff, p.nextAttempt.Sub(now)
		if p.requeueAfter <= 0 {
			p.action, p.requeueAfter = ensure, checkInterval
		}
	case !seen.state.Created || seen.state.SizeBytes < sizeOf(disk):
		p.action = ensure
	default:
		p.action = keep
	}
	return p
}

// sizeOf returns spec.size in bytes, 0 if it is not set.
func sizeOf(disk *v1alpha1.VirtualDisk) int64 {
	if disk.Spec.Size == nil {
		return 0
	}
	return disk.Spec.Size.Value()
}
