package snapshot

import (
	"errors"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// checkInterval is the interval at which a driver is looked for, and at which the files of a snapshot are looked at.
	checkInterval = 30 * time.Second
	// waitInterval is the interval of attempts while something else has to happen first: the machine is created, or a copy ends.
	waitInterval = 5 * time.Second
)

// action is what a reconcile does.
type action string

const (
	// keep: the snapshot is taken.
	keep action = "keep"
	// released: the object is being deleted, and has no finalizer of this controller.
	released action = "released"
	// missing: the VirtualMachine does not exist.
	missing action = "missing"
	// notCreated: the machine has no host yet.
	notCreated action = "notCreated"
	// claim: the finalizer is added and the host recorded, before there are files.
	claim action = "claim"
	// take: the snapshot is taken.
	take action = "take"
	// wait: it is being taken.
	wait action = "wait"
	// backOff: the next attempt is not due yet.
	backOff action = "backOff"
	// unreachable: there is no driver, or it does not respond.
	unreachable action = "unreachable"
	// refuse: another host has the machine or the snapshot.
	refuse action = "refuse"
	// lost: the snapshot was taken, and its files are gone. It is not taken again: that would be another one.
	lost action = "lost"
	// remove: the files and the finalizer are removed.
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

// decide returns the next action for a snapshot.
func decide(s *v1alpha1.VirtualMachineSnapshot, seen observation, now time.Time) plan {
	p := plan{now: now, requeueAfter: checkInterval}
	claimed, recorded := slices.Contains(s.Finalizers, v1alpha1.SnapshotFinalizer), s.Status.Host != nil
	deleted := !s.DeletionTimestamp.IsZero()
	isTaken := seen.state != nil && seen.state.Taken
	switch {
	case deleted && !claimed:
		p.action = released
	case seen.elsewhere != nil:
		p.action = refuse
	case deleted && (seen.err == nil || !recorded && errors.Is(seen.err, backend.ErrMissing)):
		p.action, p.requeueAfter = remove, waitInterval
	case seen.err != nil:
		p.action = unreachable
	case isTaken && seen.state.Lost != "", seen.state == nil && s.Status.TakenAt != nil:
		p.action = lost
	case isTaken:
		p.action = keep
	case seen.machine == nil || !seen.machine.DeletionTimestamp.IsZero():
		p.action, p.requeueAfter = missing, waitInterval
	case seen.store == nil:
		p.action, p.requeueAfter = notCreated, waitInterval
	case !claimed || !recorded:
		p.action = claim
	case seen.state == nil:
		p.action = take
	case seen.state.Busy:
		p.action = wait
	case seen.state.Failure != nil:
		p.nextAttempt = seen.state.FailedAt.Add(kube.FailurePause(s.Status.Conditions, v1alpha1.ConditionReady, seen.state.FailedAt))
		p.action, p.requeueAfter = backOff, p.nextAttempt.Sub(now)
		if p.requeueAfter <= 0 {
			p.action, p.requeueAfter = take, checkInterval
		}
	default:
		p.action = take
	}
	return p
}
