package virtualmachine

import (
	"errors"
	"hash/fnv"
	"time"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/requests"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

const (
	// The backoff is backoffUnit times the square of the number of consecutive failures, and
	// at most maxBackoff.
	backoffUnit = 10 * time.Second
	maxBackoff  = 300 * time.Second

	// stableRun is the duration of a run that resets the count of failures.
	stableRun = 10 * time.Minute

	// missingDriverInterval is the interval of checks for a missing driver.
	missingDriverInterval = 30 * time.Second

	// taskCheckInterval is the interval of checks of a task whose driver sends no notification.
	taskCheckInterval = 30 * time.Second
)

// action is what a reconcile does.
type action string

const (
	// keep: the server matches the spec.
	keep action = "keep"
	// missing: this manager does not have the driver.
	awaitDriver action = "missing"
	// refuse: the server is on another host, or the object names several drivers. Nothing is
	// done.
	refuse action = "refuse"
	// released: the object is being deleted, and there is no server.
	released action = "released"
	// unreachable: the state of the server is unknown, so nothing is done.
	unreachable action = "unreachable"
	// wait: a task is in progress.
	wait action = "wait"
	// recordEnd: a run has ended unrequested, or an attempt has failed. The status records it
	// before anything else happens, so that it is counted once.
	recordEnd action = "recordEnd"
	// backOff: the next attempt is not due yet.
	backOff action = "backOff"
	// leaveStopped: the guest powered itself off, and the restart policy leaves it off.
	leaveStopped action = "leaveStopped"
	// recordRestart: a restart was requested. The status first records the run that it ends,
	// so that it happens once.
	recordRestart action = "recordRestart"
	// completeRestart: the requested restart is complete.
	completeRestart action = "completeRestart"
	// claim: before a server is created, or if they are missing, the finalizer is added and
	// the host recorded.
	claim action = "claim"
	// The others are calls of the driver.
	create      action = "create"
	start       action = "start"
	stop        action = "stop"
	pause       action = "pause"
	sleep       action = "sleep"
	resume      action = "resume"
	restore     action = "restore"
	withdraw    action = "withdraw"
	reconfigure action = "reconfigure"
	remove      action = "remove"
)

// plan is the result of decide.
type plan struct {
	// now is when the plan was made.
	now    time.Time
	action action
	// power is the power state that the machine should have.
	power power
	// nextAttempt is when the backoff after a failure ends; zero if nothing has failed.
	nextAttempt time.Time
	// requeueAfter is when to reconcile again without an event; zero means never.
	requeueAfter time.Duration
	// previous is the action on the VirtualMachineSnapshot of the disks before a restore.
	previous snapshots.PreviousAction
	// service is what to do with the Service and the EndpointSlice.
	service servicePlan
	// schedule is the plan for spec.snapshots; nil without that field, and for a machine that is being deleted.
	schedule *snapshots.Plan
}

// acts reports whether the plan changes anything other than the status.
func (p plan) acts() bool { return actions[p.action].do != nil }

// decide returns the next action for vm, given the observation.
func decide(vm *v1alpha1.VirtualMachine, observed observation, now time.Time) plan {
	p := plan{now: now, power: powerOf(vm, observed.server, now)}
	if failures := consecutiveFailures(vm); failures > 0 && vm.Status.StartFailure.RetryAfter != nil {
		p.nextAttempt = vm.Status.StartFailure.RetryAfter.Time
	}
	p.action = p.decide(vm, observed)
	p.previous = decidePrevious(vm, &observed)
	p.service = decideService(vm, observed, p)
	if vm.Spec.Snapshots != nil && vm.DeletionTimestamp.IsZero() {
		p.schedule = snapshots.Decide(newSchedule(vm, observed), observed.scheduled, now)
	}
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
		// Even if the state of the server is unknown: the driver fails if it cannot delete it.
		return remove
	case observed.err != nil:
		return unreachable
	case server != nil && !claimed:
		return claim
	case server == nil && !claimed:
		return p.unlessBackingOff(claim)
	case server == nil:
		return p.unlessBackingOff(create)
	case server.Task == backend.TaskStart && server.Blocked != nil:
		return p.decideBlocked(vm, server)
	case server.Task != backend.TaskNone:
		return wait
	case server.State == backend.StateUnknown:
		return p.decideUnknown(vm, &observed)
	}
	if action := p.decideRestore(vm, &observed); action != "" {
		return action
	}
	if action := p.decideRestart(vm, server); action != "" {
		return action
	}
	return p.decidePower(vm, server)
}

// decideUnknown returns the action for a server whose monitor does not respond. Only its run can be ended: the driver kills it when the
// grace period is over. The memory of one that is falling asleep is not discarded. A restore needs the run to end, and its present disks can be
// kept only then.
func (p *plan) decideUnknown(vm *v1alpha1.VirtualMachine, observed *observation) action {
	pending, server := vm.Status.PendingRestart, observed.server
	switch {
	case server.Asleep != nil:
	case pending == nil && isRestartDue(vm, p.now):
		return recordRestart
	case p.power.wanted == v1alpha1.ActionStopped, pending != nil && pending.Run == server.Run, canRestore(vm, observed):
		return stop
	}
	return unreachable
}

// decideRestart returns the action for spec.restartRequestedAt, or "" if there is none.
func (p *plan) decideRestart(vm *v1alpha1.VirtualMachine, server *backend.Server) action {
	pending := vm.Status.PendingRestart
	switch {
	case pending == nil:
		// A machine that is asleep is restarted after it has woken.
		if server.State != backend.StateAbsent && server.State != backend.StateAsleep && isRestartDue(vm, p.now) {
			return recordRestart
		}
		return ""
	case pending.Run != server.Run || p.power.wanted == v1alpha1.ActionStopped && !server.IsOn():
		return completeRestart
	case server.IsOn(), server.State == backend.StateAsleep:
		return stop
	case server.State == backend.StateStopped:
		return p.powerOn(vm, start, failedStart(server.Ended))
	}
	return ""
}

// isRestartDue reports whether spec.restartRequestedAt requests a restart now. A machine that never
// had a server has nothing to restart.
func isRestartDue(vm *v1alpha1.VirtualMachine, now time.Time) bool {
	asked := requests.At(vm.Spec.RestartRequestedAt)
	return !asked.After(now) && vm.Status.Server != nil && asked.After(requests.At(vm.Status.LastRestartRequestedAt))
}

// decidePower returns the action that brings the server to the power state of the spec.
func (p *plan) decidePower(vm *v1alpha1.VirtualMachine, server *backend.Server) action {
	wanted := p.power.wanted
	ended := server.Ended
	byItself := ended != nil && ended.Cause != backend.CauseRequested
	switch {
	case server.State == backend.StateAbsent:
		return p.powerOn(vm, create, ended)
	case server.State == backend.StateAsleep:
		return p.decideAsleep(vm, server)
	case wanted == v1alpha1.ActionAsleep && server.IsOn():
		return sleep
	case wanted == v1alpha1.ActionStopped, wanted == v1alpha1.ActionAsleep && !isLossUnrecorded(vm, ended):
		// A machine that is off has no memory to save.
		if server.IsOn() || byItself {
			return stop
		}
	case server.State == backend.StateStopped && byItself && !restarts(vm, ended):
		return leaveStopped
	case server.State == backend.StateStopped && byItself:
		return p.powerOn(vm, start, ended)
	case server.State == backend.StateStopped:
		return p.powerOn(vm, start, nil)
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

// decideAsleep returns the action for a server that is asleep. Its spec is applied when it is awake.
func (p *plan) decideAsleep(vm *v1alpha1.VirtualMachine, server *backend.Server) action {
	switch wanted := p.power.wanted; {
	case wanted == v1alpha1.ActionAsleep && server.Asleep != nil && server.Asleep.SleepOptions != p.power.sleep:
		return sleep // only the options change
	case wanted == v1alpha1.ActionAsleep:
		return keep
	case wanted == v1alpha1.ActionStopped && gracePeriod(vm) == 0:
		return stop
	}
	// A machine that is to be off wakes, so that its guest can shut down.
	return p.powerOn(vm, start, failedStart(server.Ended))
}

// isLossUnrecorded reports whether the memory of the server was lost, and the status does not say so yet.
func isLossUnrecorded(vm *v1alpha1.VirtualMachine, ended *backend.Ended) bool {
	return ended != nil && ended.Cause == backend.CauseMemoryLost && ended.Run != vm.Status.LastEndedRun
}

// powerOn returns action, which creates or starts the server. An end or a failure that the status does not have yet is recorded before,
// so that each has its message, its event and its backoff.
func (p *plan) powerOn(vm *v1alpha1.VirtualMachine, action action, ended *backend.Ended) action {
	if ended != nil && ended.Run != vm.Status.LastEndedRun {
		return recordEnd
	}
	return p.unlessBackingOff(action)
}

// failedStart returns ended if it is a failure to start the server, not the end of a run.
func failedStart(ended *backend.Ended) *backend.Ended {
	if ended != nil && (ended.Cause == backend.CauseStartFailed || ended.Cause == backend.CauseMemoryLost) {
		return ended
	}
	return nil
}

// unlessBackingOff returns action, or backOff if the last attempt has failed and the next one
// is not due yet.
func (p *plan) unlessBackingOff(action action) action {
	if p.now.Before(p.nextAttempt) {
		return backOff
	}
	return action
}

// restarts reports whether the restart policy restarts a server whose run ended with cause.
func restarts(vm *v1alpha1.VirtualMachine, ended *backend.Ended) bool {
	if failedStart(ended) != nil {
		return true // it never ran, or its guest did not end it
	}
	switch vm.Spec.RestartPolicy {
	case v1alpha1.RestartNever:
		return false
	case v1alpha1.RestartOnFailure:
		return ended.Cause != backend.CauseGuestShutdown
	}
	return true
}

// consecutiveFailures returns the number of consecutive failures with the current spec.
func consecutiveFailures(vm *v1alpha1.VirtualMachine) int32 {
	if vm.Status.StartFailure == nil || vm.Status.ObservedGeneration != vm.Generation {
		// A change of the spec resets the backoff.
		return 0
	}
	return vm.Status.StartFailure.Count
}

// failuresAfter returns the number of consecutive failures including this end.
func failuresAfter(vm *v1alpha1.VirtualMachine, ended *backend.Ended) int32 {
	if !ended.StartedAt.IsZero() && ended.At.Sub(ended.StartedAt) >= stableRun {
		return 1
	}
	return consecutiveFailures(vm) + 1
}

// backoffAfter returns the backoff after a number of consecutive failures. A machine that ran
// is first restarted without a delay.
func backoffAfter(vm *v1alpha1.VirtualMachine, ended *backend.Ended, failures int32) time.Duration {
	if endedRun(ended) {
		failures--
	}
	return backoff(string(vm.UID), failures)
}

// endedRun reports whether a run ended, not an attempt to create or start the server.
func endedRun(ended *backend.Ended) bool {
	return ended.Cause != backend.CauseCreateFailed && ended.Cause != backend.CauseStartFailed
}

// backoff returns the backoff after a number of failures. Up to a tenth of it is jitter that
// depends on the UID, so that machines that failed together are not retried together.
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

// unreachableInterval returns when to retry a backend that does not respond: after as long as
// it has not responded, between a second and 30 seconds.
func unreachableInterval(vm *v1alpha1.VirtualMachine, now time.Time) time.Duration {
	since := now
	for _, condition := range vm.Status.Conditions {
		if condition.Type == v1alpha1.ConditionReady && condition.Reason == v1alpha1.ReasonBackendUnavailable {
			since = condition.LastTransitionTime.Time
		}
	}
	return min(max(now.Sub(since), time.Second), 30*time.Second)
}

// nextRequeue returns after how long to reconcile without an event, 0 if never. All reasons to requeue are here, so that
// no action forgets one.
func (p *plan) nextRequeue(vm *v1alpha1.VirtualMachine, server *backend.Server) time.Duration {
	var pause time.Duration
	switch p.action {
	case remove, released:
		return 0
	case wait:
		pause = taskCheckInterval
	case stop:
		if server.State == backend.StateUnknown {
			pause = taskCheckInterval // nothing may change until its backend responds
		}
	case backOff:
		pause = p.nextAttempt.Sub(p.now)
	case recordEnd:
		// The status write triggers the next reconcile; this is for a write that is lost.
		pause = max(p.nextAttempt.Sub(p.now), time.Second)
	case awaitDriver:
		pause = missingDriverInterval
	case unreachable:
		pause = unreachableInterval(vm, p.now)
	}
	if vm.Status.StartFailure != nil && server != nil && server.IsOn() {
		// The count of failures is reset then.
		pause = earliest(pause, server.StartedAt.Add(stableRun).Sub(p.now))
	}
	if !p.power.change.IsZero() {
		pause = earliest(pause, p.power.change.Sub(p.now))
	}
	if vm.Spec.RestartRequestedAt != nil {
		pause = earliest(pause, vm.Spec.RestartRequestedAt.Sub(p.now))
	}
	if p.schedule != nil && !p.schedule.Again.IsZero() {
		pause = earliest(pause, max(p.schedule.Again.Sub(p.now), time.Second))
	}
	return pause
}

// earliest returns the shorter of two delays. A delay that is not positive does not count; the result is 0 if neither does.
func earliest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}
