package virtualmachine

import (
	"errors"
	"hash/fnv"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

const (
	// The pause before an attempt is this times the square of the number of failures
	// in a row before it, and not more than the last.
	backoffUnit = 10 * time.Second
	maxBackoff  = 300 * time.Second

	// goodRun is how long a run lasts after which earlier failures are forgotten.
	stableRun = 10 * time.Minute

	// missingCheck is how often it is looked whether a driver has come that was missing.
	missingDriverInterval = 30 * time.Second

	// taskCheck is when a task is looked at that has told of nothing.
	taskCheckInterval = 30 * time.Second
)

// verdict is what is to be done.
type action string

const (
	// keep: all is as it should be.
	keep action = "keep"
	// missing: this manager does not have the driver.
	awaitDriver action = "missing"
	// refuse: another host has the server, or the object contradicts itself about which
	// driver does. Nothing is done.
	refuse action = "refuse"
	// released: the object is being deleted, and there is no server.
	released action = "released"
	// unreachable: nobody knows what there is, so nothing is done.
	unreachable action = "unreachable"
	// wait: a task is going on.
	wait action = "wait"
	// countEnd: a run has ended by itself, or an attempt has failed. That is written
	// down before anything is done about it, so that it counts once.
	recordEnd action = "countEnd"
	// backOff: the next attempt is not due.
	backOff action = "backOff"
	// leave: the guest has stopped by itself, and the policy is to leave it so.
	leaveStopped action = "leave"
	// noteRestart: a restart was asked for. Which run it is to end is written down
	// first, so that it happens once.
	recordRestart action = "noteRestart"
	// endRestart: the restart that was asked for has happened.
	completeRestart action = "endRestart"
	// claim: before there is a server, and whenever that is missing, the finalizer is set
	// and the host written down.
	claim action = "claim"
	// The others are calls of the driver.
	create      action = "create"
	start       action = "start"
	stop        action = "stop"
	pause       action = "pause"
	resume      action = "resume"
	reconfigure action = "reconfigure"
	remove      action = "remove"
)

// plan is what to do.
type plan struct {
	// at is when it was made.
	now    time.Time
	action action
	// due is when the next attempt after a failure is made; zero if none has failed.
	nextAttempt time.Time
	// again is when to look again if nothing happens; zero means never.
	requeueAfter time.Duration
}

// acts reports whether the plan is to change anything but the status.
func (p plan) acts() bool {
	switch p.action {
	case claim, create, start, stop, pause, resume, reconfigure, remove:
		return true
	}
	return false
}

// decide returns what is to be done for vm, given what there is.
func decide(vm *v1alpha1.VirtualMachine, observed observation, now time.Time) plan {
	p := plan{now: now}
	if failures := consecutiveFailures(vm); failures > 0 && vm.Status.StartFailure.RetryAfter != nil {
		p.nextAttempt = vm.Status.StartFailure.RetryAfter.Time
	}
	p.action = p.decide(vm, observed)
	if p.action == recordEnd {
		ended := observed.server.Ended
		p.nextAttempt = now.Add(backoffAfter(vm, ended, failuresAfter(vm, ended)))
	}
	p.requeueAfter = p.nextRequeue(vm, observed.server)
	return p
}

func (p *plan) decide(vm *v1alpha1.VirtualMachine, observed observation) action {
	server := observed.server
	deleted, claimed := !vm.DeletionTimestamp.IsZero(), isClaimed(vm, observed)
	switch {
	case errors.Is(observed.err, errConflict), errors.Is(observed.err, errOnAnotherHost):
		return refuse
	case deleted && len(finalizersOf(vm)) == 0 && server == nil && observed.err == nil:
		return released
	case errors.Is(observed.err, backend.ErrMissing):
		return awaitDriver
	case observed.driver == nil:
		return unreachable
	case deleted:
		// Also when nobody knows what there is: the driver finds out, or fails.
		return remove
	case observed.err != nil:
		return unreachable
	case server != nil && !claimed:
		return claim
	case server == nil && !claimed:
		return p.unlessBackingOff(claim)
	case server == nil:
		return p.unlessBackingOff(create)
	case server.Task != backend.TaskNone:
		return wait
	case server.State == backend.StateUnknown:
		return unreachable
	}
	if action := p.decideRestart(vm, server); action != "" {
		return action
	}
	return p.decidePower(vm, server)
}

// decideRestart returns what to do about spec.restartedAt, "" if nothing.
func (p *plan) decideRestart(vm *v1alpha1.VirtualMachine, server *backend.Server) action {
	pending := vm.Status.PendingRestart
	switch {
	case pending == nil:
		if server.State != backend.StateAbsent && isRestartDue(vm, p.now) {
			return recordRestart
		}
		return ""
	case pending.Run != server.Run || vm.Spec.Action == v1alpha1.ActionStopped && !server.IsOn():
		return completeRestart
	case server.IsOn():
		return stop
	case server.State == backend.StateStopped:
		return p.unlessBackingOff(start)
	}
	return ""
}

// isRestartDue reports whether spec.restartedAt asks for a restart now. A machine of
// which there was never a server has nothing to restart.
func isRestartDue(vm *v1alpha1.VirtualMachine, now time.Time) bool {
	asked, obeyed := vm.Spec.RestartedAt, vm.Status.LastRestartTime
	return asked != nil && !asked.After(now) && vm.Status.Server != nil && (obeyed == nil || asked.After(obeyed.Time))
}

// decidePower returns what to do so that the power of the server is what it should be.
func (p *plan) decidePower(vm *v1alpha1.VirtualMachine, server *backend.Server) action {
	wanted := vm.Spec.Action
	ended := server.Ended
	byItself := ended != nil && ended.Cause != backend.CauseRequested
	switch {
	case server.State == backend.StateAbsent:
		if ended != nil && ended.Run != vm.Status.LastEndedRun {
			return recordEnd
		}
		return p.unlessBackingOff(create)
	case wanted == v1alpha1.ActionStopped:
		if server.IsOn() || byItself {
			return stop
		}
	case server.State == backend.StateStopped && byItself && !restarts(vm, ended.Cause):
		return leaveStopped
	case server.State == backend.StateStopped && byItself && ended.Run != vm.Status.LastEndedRun:
		return recordEnd
	case server.State == backend.StateStopped:
		return p.unlessBackingOff(start)
	case wanted == v1alpha1.ActionPaused && server.State == backend.StateRunning:
		return pause
	case wanted != v1alpha1.ActionPaused && server.State == backend.StatePaused:
		return resume
	}
	if server.Hash != hash(&vm.Spec) {
		return reconfigure
	}
	return keep
}

// unlessBackingOff returns verdict, unless the last attempt has failed and the next one
// is not due.
func (p *plan) unlessBackingOff(action action) action {
	if p.now.Before(p.nextAttempt) {
		return backOff
	}
	return action
}

// restarts reports whether the policy is to start a server again that has ended for
// this cause.
func restarts(vm *v1alpha1.VirtualMachine, cause backend.Cause) bool {
	if cause == backend.CauseStartFailed {
		return true // it never ran
	}
	switch vm.Spec.RestartPolicy {
	case v1alpha1.RestartNever:
		return false
	case v1alpha1.RestartOnFailure:
		return cause != backend.CauseGuestShutdown
	}
	return true
}

// failuresSoFar returns how many failures in a row there were with the present spec.
func consecutiveFailures(vm *v1alpha1.VirtualMachine) int32 {
	if vm.Status.StartFailure == nil || vm.Status.ObservedGeneration != vm.Generation {
		// A change of the spec gets a new chance at once.
		return 0
	}
	return vm.Status.StartFailure.Count
}

// failuresWith returns how many failures in a row there are with this end.
func failuresAfter(vm *v1alpha1.VirtualMachine, ended *backend.Ended) int32 {
	if !ended.StartedAt.IsZero() && ended.At.Sub(ended.StartedAt) >= stableRun {
		return 1
	}
	return consecutiveFailures(vm) + 1
}

// pauseAfter returns the pause after a number of failures in a row. A machine that ran
// is started again at once the first time.
func backoffAfter(vm *v1alpha1.VirtualMachine, ended *backend.Ended, failures int32) time.Duration {
	if endedRun(ended) {
		failures--
	}
	return backoff(string(vm.UID), failures)
}

// isRun reports whether it is the end of a run, and not of an attempt.
func endedRun(ended *backend.Ended) bool {
	return ended.Cause != backend.CauseCreateFailed && ended.Cause != backend.CauseStartFailed
}

// backoff returns the pause after so many failures. Up to a tenth of it depends on the
// machine, so that those that failed together are not tried again together.
func backoff(uid string, failures int32) time.Duration {
	if failures <= 0 {
		return 0
	}
	pause := maxBackoff
	if failures < 6 {
		pause = min(backoffUnit*time.Duration(failures)*time.Duration(failures), maxBackoff)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // never fails
	return pause - pause/10*time.Duration(hash.Sum32()%1000)/1000
}

// unreachablePause is how long to wait before asking again who did not answer: as long
// as that has been so, within limits.
func unreachableInterval(vm *v1alpha1.VirtualMachine, now time.Time) time.Duration {
	since := now
	for _, condition := range vm.Status.Conditions {
		if condition.Type == v1alpha1.ConditionReady && condition.Reason == v1alpha1.ReasonBackendUnavailable {
			since = condition.LastTransitionTime.Time
		}
	}
	return min(max(now.Sub(since), time.Second), 30*time.Second)
}

// nextLook returns after how long there is something to do although nothing happens, 0 if never. It is the one place
// that knows this, so that no verdict forgets what another one waits for.
func (p *plan) nextRequeue(vm *v1alpha1.VirtualMachine, server *backend.Server) time.Duration {
	var pause time.Duration
	switch p.action {
	case remove, released:
		return 0
	case wait:
		pause = taskCheckInterval
	case backOff:
		pause = p.nextAttempt.Sub(p.now)
	case recordEnd:
		// The write that counts it is an event; this is for when that gets lost.
		pause = max(p.nextAttempt.Sub(p.now), time.Second)
	case awaitDriver:
		pause = missingDriverInterval
	case unreachable:
		pause = unreachableInterval(vm, p.now)
	}
	if vm.Status.StartFailure != nil && server != nil && server.IsOn() {
		// Failures are forgotten then.
		pause = earliest(pause, server.StartedAt.Add(stableRun).Sub(p.now))
	}
	if vm.Spec.RestartedAt != nil {
		pause = earliest(pause, vm.Spec.RestartedAt.Sub(p.now))
	}
	return pause
}

// soonest returns the shorter one of two pauses. One that is not positive is none; it returns 0 if both are none.
func earliest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}
