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
	lastBackoff = 300 * time.Second

	// goodRun is how long a run lasts after which earlier failures are forgotten.
	goodRun = 10 * time.Minute

	// missingCheck is how often it is looked whether a driver has come that was missing.
	missingCheck = 30 * time.Second

	// taskCheck is when a task is looked at that has told of nothing.
	taskCheck = 30 * time.Second
)

// verdict is what is to be done.
type verdict string

const (
	// keep: all is as it should be.
	keep verdict = "keep"
	// missing: this manager does not have the driver.
	missing verdict = "missing"
	// refuse: another host has the server, or the object contradicts itself about which
	// driver does. Nothing is done.
	refuse verdict = "refuse"
	// released: the object is being deleted, and there is no server.
	released verdict = "released"
	// unreachable: nobody knows what there is, so nothing is done.
	unreachable verdict = "unreachable"
	// wait: a task is going on.
	wait verdict = "wait"
	// countEnd: a run has ended by itself, or an attempt has failed. That is written
	// down before anything is done about it, so that it counts once.
	countEnd verdict = "countEnd"
	// backOff: the next attempt is not due.
	backOff verdict = "backOff"
	// leave: the guest has stopped by itself, and the policy is to leave it so.
	leave verdict = "leave"
	// noteRestart: a restart was asked for. Which run it is to end is written down
	// first, so that it happens once.
	noteRestart verdict = "noteRestart"
	// endRestart: the restart that was asked for has happened.
	endRestart verdict = "endRestart"
	// claim: before there is a server, and whenever that is missing, the finalizer is set
	// and the host written down.
	claim verdict = "claim"
	// The others are calls of the driver.
	create      verdict = "create"
	start       verdict = "start"
	stop        verdict = "stop"
	pause       verdict = "pause"
	resume      verdict = "resume"
	reconfigure verdict = "reconfigure"
	remove      verdict = "remove"
)

// plan is what to do.
type plan struct {
	// at is when it was made.
	at      time.Time
	verdict verdict
	// due is when the next attempt after a failure is made; zero if none has failed.
	due time.Time
	// again is when to look again if nothing happens; zero means never.
	again time.Duration
}

// acts reports whether the plan is to change anything but the status.
func (p plan) acts() bool {
	switch p.verdict {
	case claim, create, start, stop, pause, resume, reconfigure, remove:
		return true
	}
	return false
}

// decide returns what is to be done for vm, given what there is.
func decide(vm *v1alpha1.VirtualMachine, seen observation, now time.Time) plan {
	p := plan{at: now}
	if failures := failuresSoFar(vm); failures > 0 && vm.Status.StartFailure.RetryAfter != nil {
		p.due = vm.Status.StartFailure.RetryAfter.Time
	}
	p.verdict = p.decide(vm, seen)
	if p.verdict == countEnd {
		ended := seen.server.Ended
		p.due = now.Add(pauseAfter(vm, ended, failuresWith(vm, ended)))
	}
	p.again = p.nextLook(vm, seen.server)
	return p
}

func (p *plan) decide(vm *v1alpha1.VirtualMachine, seen observation) verdict {
	server := seen.server
	deleted, claimed := !vm.DeletionTimestamp.IsZero(), isClaimed(vm, seen)
	switch {
	case errors.Is(seen.err, errConflict), errors.Is(seen.err, errElsewhere):
		return refuse
	case deleted && len(finalizersOf(vm)) == 0 && server == nil && seen.err == nil:
		return released
	case errors.Is(seen.err, backend.ErrMissing):
		return missing
	case seen.driver == nil:
		return unreachable
	case deleted:
		// Also when nobody knows what there is: the driver finds out, or fails.
		return remove
	case seen.err != nil:
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
	if verdict := p.decideRestart(vm, server); verdict != "" {
		return verdict
	}
	return p.decidePower(vm, server)
}

// decideRestart returns what to do about spec.restartedAt, "" if nothing.
func (p *plan) decideRestart(vm *v1alpha1.VirtualMachine, server *backend.Server) verdict {
	pending := vm.Status.PendingRestart
	switch {
	case pending == nil:
		if server.State != backend.StateAbsent && isRestartDue(vm, p.at) {
			return noteRestart
		}
		return ""
	case pending.Run != server.Run || vm.Spec.Action == v1alpha1.ActionStopped && !server.IsOn():
		return endRestart
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
func (p *plan) decidePower(vm *v1alpha1.VirtualMachine, server *backend.Server) verdict {
	wanted := vm.Spec.Action
	ended := server.Ended
	byItself := ended != nil && ended.Cause != backend.CauseRequested
	switch {
	case server.State == backend.StateAbsent:
		if ended != nil && ended.Run != vm.Status.LastEndedRun {
			return countEnd
		}
		return p.unlessBackingOff(create)
	case wanted == v1alpha1.ActionStopped:
		if server.IsOn() || byItself {
			return stop
		}
	case server.State == backend.StateStopped && byItself && !restarts(vm, ended.Cause):
		return leave
	case server.State == backend.StateStopped && byItself && ended.Run != vm.Status.LastEndedRun:
		return countEnd
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
func (p *plan) unlessBackingOff(verdict verdict) verdict {
	if p.at.Before(p.due) {
		return backOff
	}
	return verdict
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
func failuresSoFar(vm *v1alpha1.VirtualMachine) int32 {
	if vm.Status.StartFailure == nil || vm.Status.ObservedGeneration != vm.Generation {
		// A change of the spec gets a new chance at once.
		return 0
	}
	return vm.Status.StartFailure.Count
}

// failuresWith returns how many failures in a row there are with this end.
func failuresWith(vm *v1alpha1.VirtualMachine, ended *backend.Ended) int32 {
	if !ended.StartedAt.IsZero() && ended.At.Sub(ended.StartedAt) >= goodRun {
		return 1
	}
	return failuresSoFar(vm) + 1
}

// pauseAfter returns the pause after a number of failures in a row. A machine that ran
// is started again at once the first time.
func pauseAfter(vm *v1alpha1.VirtualMachine, ended *backend.Ended, failures int32) time.Duration {
	if isRun(ended) {
		failures--
	}
	return backoff(string(vm.UID), failures)
}

// isRun reports whether it is the end of a run, and not of an attempt.
func isRun(ended *backend.Ended) bool {
	return ended.Cause != backend.CauseCreateFailed && ended.Cause != backend.CauseStartFailed
}

// backoff returns the pause after so many failures. Up to a tenth of it depends on the
// machine, so that those that failed together are not tried again together.
func backoff(uid string, failures int32) time.Duration {
	if failures <= 0 {
		return 0
	}
	pause := lastBackoff
	if failures < 6 {
		pause = min(backoffUnit*time.Duration(failures)*time.Duration(failures), lastBackoff)
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // never fails
	return pause - pause/10*time.Duration(hash.Sum32()%1000)/1000
}

// unreachablePause is how long to wait before asking again who did not answer: as long
// as that has been so, within limits.
func unreachablePause(vm *v1alpha1.VirtualMachine, now time.Time) time.Duration {
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
func (p *plan) nextLook(vm *v1alpha1.VirtualMachine, server *backend.Server) time.Duration {
	var pause time.Duration
	switch p.verdict {
	case remove, released:
		return 0
	case wait:
		pause = taskCheck
	case backOff:
		pause = p.due.Sub(p.at)
	case countEnd:
		// The write that counts it is an event; this is for when that gets lost.
		pause = max(p.due.Sub(p.at), time.Second)
	case missing:
		pause = missingCheck
	case unreachable:
		pause = unreachablePause(vm, p.at)
	}
	if vm.Status.StartFailure != nil && server != nil && server.IsOn() {
		// Failures are forgotten then.
		pause = soonest(pause, server.StartedAt.Add(goodRun).Sub(p.at))
	}
	if vm.Spec.RestartedAt != nil {
		pause = soonest(pause, vm.Spec.RestartedAt.Sub(p.at))
	}
	return pause
}

// soonest returns the shorter one of two pauses. One that is not positive is none; it returns 0 if both are none.
func soonest(a, b time.Duration) time.Duration {
	if a <= 0 || b > 0 && b < a {
		return max(b, 0)
	}
	return a
}
