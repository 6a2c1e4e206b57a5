package virtualmachine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

func TestDecide(t *testing.T) {
	const (
		stopped = backend.StateStopped
		running = backend.StateRunning
		paused  = backend.StatePaused
		asleep  = backend.StateAsleep
	)
	first := backoff("vm-uid", 1)
	unavailable := observation{name: "fake", driver: observedServer(nil).driver, err: fmt.Errorf("it: %w", backend.ErrUnavailable)}
	for _, test := range []struct {
		name     string
		vm       *v1alpha1.VirtualMachine
		observed observation
		want     plan
	}{
		{"nothing there", newVM(), observedServer(nil), plan{action: create}},
		{"nothing there, not claimed", newVM(finalizers()), observedServer(nil), plan{action: claim}},
		{"nothing there, not claimed, and backing off", newVM(finalizers(), failed(1, "run-1", time.Second)), observedServer(nil), plan{action: backOff, nextAttempt: noon.Add(time.Second), requeueAfter: time.Second}},
		{"somebody has removed the finalizer of a server", newVM(finalizers()), observedServer(newServer(running)), plan{action: claim}},
		{"no server, no host recorded", newVM(onHost("")), observedServer(nil), plan{action: claim}},
		{"nothing there, and another host was given up", newVM(onHost("there"), forgets("there")), observedServer(nil), plan{action: claim}},
		{"a server, no host recorded", newVM(hadServer, onHost("")), observedServer(newServer(running)), plan{action: claim}},
		{"another host has the server", newVM(hadServer, onHost("there")), observation{driver: observedServer(nil).driver, host: thisHost, err: errOnAnotherHost}, plan{action: refuse}},
		{"the finalizer is that of another driver", newVM(hadServer), observation{err: errConflict}, plan{action: refuse}},
		{"nothing there, and it is to be stopped", newVM(withAction("stopped")), observedServer(nil), plan{action: create}},
		{"the driver is missing", newVM(), observation{err: backend.ErrMissing}, plan{action: awaitDriver, requeueAfter: missingDriverInterval}},
		{"the driver cannot be opened", newVM(), observation{err: backend.ErrUnavailable}, plan{action: unreachable, requeueAfter: time.Second}},
		{"the backend does not answer", newVM(hadServer), unavailable, plan{action: unreachable, requeueAfter: time.Second}},
		{"the monitor does not answer", newVM(), observedServer(newServer(backend.StateUnknown)), plan{action: unreachable, requeueAfter: time.Second}},
		{"the monitor does not answer, to be stopped", newVM(withAction("stopped")), observedServer(newServer(backend.StateUnknown)), plan{action: stop, requeueAfter: taskCheckInterval}},
		{"the monitor does not answer, being stopped", newVM(withAction("stopped")), observedServer(newServer(backend.StateUnknown, during(backend.TaskStop))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"the monitor does not answer, to sleep", newVM(withAction("asleep")), observedServer(newServer(backend.StateUnknown)), plan{action: unreachable, requeueAfter: time.Second}},
		{"the monitor does not answer, and a restore is asked for", newVM(restoring("a", once, true)), observedServer(newServer(backend.StateUnknown)), plan{action: stop, requeueAfter: taskCheckInterval, previous: snapshots.PreviousCreate}},
		{"the monitor does not answer, and a restore is done", newVM(restoring("a", once, true)), observedServer(newServer(backend.StateUnknown, func(s *backend.Server) { s.Restored = once })), plan{action: unreachable, requeueAfter: time.Second}},
		{"the monitor does not answer, and a restore has failed", newVM(restoring("a", once, true)), observedServer(newServer(backend.StateUnknown, func(s *backend.Server) {
			s.FailedRestore = &backend.FailedRestore{Token: once, Err: backend.ErrNotFound}
		})), plan{action: unreachable, requeueAfter: time.Second}},
		{"the monitor does not answer, and there is no snapshot to restore", newVM(restoring("a", once, true)), unusable(newServer(backend.StateUnknown)), plan{action: unreachable, requeueAfter: time.Second}},
		{"asleep, but its process has not ended, and a restore is asked for", newVM(restoring("a", once, true)), observedServer(newServer(backend.StateUnknown, sleeping)), plan{action: unreachable, requeueAfter: time.Second, previous: snapshots.PreviousCreate}},
		{"asleep, but its process has not ended, to be stopped", newVM(withAction("stopped")), observedServer(newServer(backend.StateUnknown, sleeping)), plan{action: unreachable, requeueAfter: time.Second}},
		{"asleep, but its process has not ended, and a restart is asked for", newVM(hadServer, restartRequestedAt(noon)), observedServer(newServer(backend.StateUnknown, sleeping)), plan{action: unreachable, requeueAfter: time.Second}},

		{"being created", newVM(), observedServer(newServer(backend.StateAbsent, during(backend.TaskCreate))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"being started, and it is to be stopped", newVM(withAction("stopped")), observedServer(newServer(stopped, during(backend.TaskStart))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"no node can take it", newVM(), observedServer(newServer(stopped, blocked(false))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"no node can take it, and it is to be stopped", newVM(withAction("stopped")), observedServer(newServer(stopped, blocked(false))), plan{action: stop}},
		{"no node can take it, and it is to sleep", newVM(withAction("asleep")), observedServer(newServer(stopped, blocked(false))), plan{action: stop}},
		{"no node can take it, and it is smaller now", newVM(smaller), observedServer(newServer(stopped, blocked(false))), plan{action: stop}},
		{"no node can take it, and a restart is asked for", newVM(hadServer, restartRequestedAt(noon)), observedServer(newServer(stopped, blocked(false))), plan{action: recordRestart}},
		{"no node can take it, and a restart is under way", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1")), observedServer(newServer(stopped, blocked(false))), plan{action: stop}},
		{"no node can take what a restart has started", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-0")), observedServer(newServer(stopped, blocked(false))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"no node can take it, and it is deleted", newVM(deleted), observedServer(newServer(stopped, blocked(false))), plan{action: remove}},
		{"it wakes, and no node can take it", newVM(), observedServer(newServer(stopped, blocked(true))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"it wakes, no node can take it, and it is to sleep", newVM(withAction("asleep")), observedServer(newServer(stopped, blocked(true))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"it wakes, no node can take it, and it is smaller now", newVM(smaller), observedServer(newServer(stopped, blocked(true))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"it wakes, no node can take it, and it is to be stopped", newVM(withAction("stopped")), observedServer(newServer(stopped, blocked(true))), plan{action: stop}},
		{"created", newVM(), observedServer(newServer(stopped)), plan{action: start}},
		{"created, to be paused", newVM(withAction("paused")), observedServer(newServer(stopped)), plan{action: start}},
		{"created, to be stopped", newVM(withAction("stopped")), observedServer(newServer(stopped)), plan{action: keep}},
		{"running", newVM(), observedServer(newServer(running)), plan{action: keep}},
		{"running, to be paused", newVM(withAction("paused")), observedServer(newServer(running)), plan{action: pause}},
		{"paused", newVM(withAction("paused")), observedServer(newServer(paused)), plan{action: keep}},
		{"paused, to run", newVM(), observedServer(newServer(paused)), plan{action: resume}},
		{"paused, to be stopped", newVM(withAction("stopped")), observedServer(newServer(paused)), plan{action: stop}},
		{"running, to be stopped", newVM(withAction("stopped")), observedServer(newServer(running)), plan{action: stop}},
		{"stopped as requested, to run", newVM(), observedServer(newServer(stopped, endedBy(backend.CauseRequested))), plan{action: start}},
		{"stopped as requested", newVM(withAction("stopped")), observedServer(newServer(stopped, endedBy(backend.CauseRequested))), plan{action: keep}},

		{"running, to sleep", newVM(withAction("asleep")), observedServer(newServer(running)), plan{action: sleep}},
		{"paused, to sleep", newVM(withAction("asleep")), observedServer(newServer(paused)), plan{action: sleep}},
		{"falling asleep, and it is to run", newVM(), observedServer(newServer(running, during(backend.TaskSleep))), plan{action: wait, requeueAfter: taskCheckInterval}},
		{"asleep", newVM(withAction("asleep")), observedServer(newServer(asleep, endedBy(backend.CauseRequested))), plan{action: keep}},
		{"asleep, and the spec was changed", newVM(withAction("asleep"), func(vm *v1alpha1.VirtualMachine) { vm.Spec.Resource.Memory = resource.MustParse("2Gi") }), observedServer(newServer(asleep)), plan{action: keep}},
		{"asleep, to run", newVM(), observedServer(newServer(asleep, endedBy(backend.CauseRequested))), plan{action: start}},
		{"asleep, to be paused", newVM(withAction("paused")), observedServer(newServer(asleep)), plan{action: start}},
		{"asleep, to be stopped: its guest shuts down", newVM(withAction("stopped")), observedServer(newServer(asleep)), plan{action: start}},
		{"asleep, to be stopped at once", newVM(withAction("stopped"), func(vm *v1alpha1.VirtualMachine) { vm.Spec.TerminationGracePeriodSeconds = new(int64) }), observedServer(newServer(asleep)), plan{action: stop}},
		{"asleep, and it could not wake", newVM(), observedServer(newServer(asleep, endedBy(backend.CauseStartFailed))), plan{action: recordEnd, nextAttempt: noon.Add(first), requeueAfter: first}},
		{"asleep, and it could not wake, counted", newVM(failed(1, "run-1", time.Second)), observedServer(newServer(asleep, endedBy(backend.CauseStartFailed))), plan{action: backOff, nextAttempt: noon.Add(time.Second), requeueAfter: time.Second}},
		{"its memory was lost, Never", newVM(policy("Never")), observedServer(newServer(stopped, endedBy(backend.CauseMemoryLost))), plan{action: recordEnd, nextAttempt: noon, requeueAfter: time.Second}},
		{"its memory was lost, counted", newVM(failed(1, "run-1", 0)), observedServer(newServer(stopped, endedBy(backend.CauseMemoryLost))), plan{action: start, nextAttempt: noon}},
		{"its memory was lost, and it is to sleep again", newVM(withAction("asleep")), observedServer(newServer(stopped, endedBy(backend.CauseMemoryLost))), plan{action: recordEnd, nextAttempt: noon, requeueAfter: time.Second}},
		{"its memory was lost, counted, and it is to sleep again", newVM(withAction("asleep"), failed(1, "run-1", 0)), observedServer(newServer(stopped, endedBy(backend.CauseMemoryLost))), plan{action: stop, nextAttempt: noon}},
		{"off, to sleep", newVM(withAction("asleep")), observedServer(newServer(stopped)), plan{action: keep}},
		{"powered off, to sleep", newVM(withAction("asleep")), observedServer(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{action: stop}},
		{"off, and a restore waits that is not wanted", newVM(withAction("stopped")), observedServer(newServer(stopped, restoreWaits)), plan{action: withdraw}},
		{"asleep, and a restore waits that is not wanted", newVM(withAction("asleep")), observedServer(newServer(asleep, restoreWaits)), plan{action: withdraw}},
		{"asleep, and a restart is asked for", newVM(hadServer, withAction("asleep"), restartRequestedAt(noon)), observedServer(newServer(asleep)), plan{action: keep}},

		{"the memory was changed", newVM(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Resource.Memory = resource.MustParse("2Gi") }), observedServer(newServer(running)), plan{action: reconfigure}},
		{"the policy was changed", newVM(policy("Never")), observedServer(newServer(running)), plan{action: keep}},

		{"crashed for the first time", newVM(), observedServer(newServer(stopped, endedBy(backend.CauseGuestPanic))), plan{action: recordEnd, nextAttempt: noon, requeueAfter: time.Second}},
		{"crashed, counted", newVM(failed(1, "run-1", 0)), observedServer(newServer(stopped, endedBy(backend.CauseGuestPanic))), plan{action: start, nextAttempt: noon}},
		{"crashed again", newVM(failed(1, "run-0", -time.Minute)), observedServer(newServer(stopped, endedBy(backend.CauseHost))), plan{action: recordEnd, nextAttempt: noon.Add(first), requeueAfter: first}},
		{"crashed again, counted", newVM(failed(2, "run-1", time.Minute)), observedServer(newServer(stopped, endedBy(backend.CauseHost))), plan{action: backOff, nextAttempt: noon.Add(time.Minute), requeueAfter: time.Minute}},
		{"crashed again, and the spec was changed since", newVM(failed(2, "run-1", time.Minute), func(vm *v1alpha1.VirtualMachine) { vm.Generation++ }), observedServer(newServer(stopped, endedBy(backend.CauseHost))), plan{action: start}},
		{"crashed after a good run", newVM(failed(4, "run-0", 0)), observedServer(newServer(stopped, endedBy(backend.CauseHost), func(s *backend.Server) { s.Ended.StartedAt = noon.Add(-stableRun) })), plan{action: recordEnd, nextAttempt: noon, requeueAfter: time.Second}},
		{"powered off, Always", newVM(), observedServer(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{action: recordEnd, nextAttempt: noon, requeueAfter: time.Second}},
		{"powered off, OnFailure", newVM(policy("OnFailure")), observedServer(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{action: leaveStopped}},
		{"crashed, OnFailure", newVM(policy("OnFailure")), observedServer(newServer(stopped, endedBy(backend.CauseError))), plan{action: recordEnd, nextAttempt: noon, requeueAfter: time.Second}},
		{"crashed, Never", newVM(policy("Never")), observedServer(newServer(stopped, endedBy(backend.CauseError))), plan{action: leaveStopped}},
		{"could not be started, Never", newVM(policy("Never")), observedServer(newServer(stopped, endedBy(backend.CauseStartFailed))), plan{action: recordEnd, nextAttempt: noon.Add(first), requeueAfter: first}},
		{"crashed, to be stopped", newVM(withAction("stopped")), observedServer(newServer(stopped, endedBy(backend.CauseHost))), plan{action: stop}},
		{"could not be created", newVM(), observedServer(newServer(backend.StateAbsent, endedBy(backend.CauseCreateFailed))), plan{action: recordEnd, nextAttempt: noon.Add(first), requeueAfter: first}},
		{"could not be created, counted", newVM(failed(1, "run-1", time.Second)), observedServer(newServer(backend.StateAbsent, endedBy(backend.CauseCreateFailed))), plan{action: backOff, nextAttempt: noon.Add(time.Second), requeueAfter: time.Second}},
		{"could not be created, and it is time", newVM(failed(1, "run-1", 0)), observedServer(newServer(backend.StateAbsent, endedBy(backend.CauseCreateFailed))), plan{action: create, nextAttempt: noon}},
		{"failures are about to be forgotten", newVM(failed(1, "run-0", -time.Minute)), observedServer(newServer(running)), plan{action: keep, nextAttempt: noon.Add(-time.Minute), requeueAfter: stableRun - time.Minute}},

		{"a restart is asked for", newVM(hadServer, restartRequestedAt(noon)), observedServer(newServer(running)), plan{action: recordRestart}},
		{"a restart is asked for at a later time", newVM(hadServer, restartRequestedAt(noon.Add(time.Hour))), observedServer(newServer(running)), plan{action: keep, requeueAfter: time.Hour}},
		{"a restart is asked for at a later time, of a guest that stays off", newVM(hadServer, policy("OnFailure"), restartRequestedAt(noon.Add(time.Hour))), observedServer(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{action: leaveStopped, requeueAfter: time.Hour}},
		{"a restart is asked for at a later time, before the next attempt", newVM(hadServer, failed(2, "run-1", time.Minute), restartRequestedAt(noon.Add(time.Second))), observedServer(newServer(stopped, endedBy(backend.CauseHost))), plan{action: backOff, nextAttempt: noon.Add(time.Minute), requeueAfter: time.Second}},
		{"a restart is asked for at a later time, after the next attempt", newVM(hadServer, failed(2, "run-1", time.Minute), restartRequestedAt(noon.Add(time.Hour))), observedServer(newServer(stopped, endedBy(backend.CauseHost))), plan{action: backOff, nextAttempt: noon.Add(time.Minute), requeueAfter: time.Minute}},
		{"a restart was asked for before there was a server", newVM(restartRequestedAt(noon)), observedServer(nil), plan{action: create}},
		{"a restart with a part of a second was obeyed", newVM(hadServer, restartRequestedAt(noon.Add(-time.Millisecond)), lastRestart(noon.Add(-time.Second))), observedServer(newServer(running)), plan{action: keep}},
		{"a restart was obeyed", newVM(hadServer, restartRequestedAt(noon), lastRestart(noon)), observedServer(newServer(running)), plan{action: keep}},
		{"a restart is under way", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1")), observedServer(newServer(running)), plan{action: stop}},
		{"the first half of a restart is done", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1")), observedServer(newServer(stopped, endedBy(backend.CauseRequested))), plan{action: start}},
		{"the guest was faster than the restart", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1"), policy("Never")), observedServer(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{action: start}},
		{"a restart cannot be completed", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1")), observedServer(newServer(stopped, attempt(backend.CauseStartFailed))), plan{action: recordEnd, nextAttempt: noon.Add(first), requeueAfter: first}},
		{"a restart cannot be completed, counted", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1"), failed(1, "attempt-1", time.Second)), observedServer(newServer(stopped, attempt(backend.CauseStartFailed))), plan{action: backOff, nextAttempt: noon.Add(time.Second), requeueAfter: time.Second}},
		{"a restart cannot be completed, counted, and it is time", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1"), failed(1, "attempt-1", 0)), observedServer(newServer(stopped, attempt(backend.CauseStartFailed))), plan{action: start, nextAttempt: noon}},
		{"a restart, and the memory was lost", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1")), observedServer(newServer(stopped, attempt(backend.CauseMemoryLost))), plan{action: recordEnd, nextAttempt: noon, requeueAfter: time.Second}},
		{"a restart of a guest that crashes meanwhile", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1")), observedServer(newServer(stopped, endedBy(backend.CauseGuestPanic))), plan{action: start}},
		{"a restart is asked for, and the monitor does not answer", newVM(hadServer, restartRequestedAt(noon)), observedServer(newServer(backend.StateUnknown)), plan{action: recordRestart}},
		{"a restart is under way, and the monitor does not answer", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1")), observedServer(newServer(backend.StateUnknown)), plan{action: stop, requeueAfter: taskCheckInterval}},
		{"a restart is done, and the monitor does not answer yet", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-0")), observedServer(newServer(backend.StateUnknown)), plan{action: unreachable, requeueAfter: time.Second}},
		{"a restart is done", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-0")), observedServer(newServer(running)), plan{action: completeRestart}},
		{"a restart while it is to be stopped", newVM(hadServer, restartRequestedAt(noon), pendingRestart("run-1"), withAction("stopped")), observedServer(newServer(stopped)), plan{action: completeRestart}},

		{"deleted", newVM(deleted), observedServer(newServer(running)), plan{action: remove}},
		{"deleted, but the finalizer is that of another driver", newVM(deleted, hadServer), observation{err: errConflict}, plan{action: refuse}},
		{"deleted, but another host has the server", newVM(deleted, onHost("there")), observation{driver: observedServer(nil).driver, host: thisHost, err: errOnAnotherHost}, plan{action: refuse}},
		{"deleted, and another host was given up", newVM(deleted, onHost("there"), forgets("there")), observedServer(nil), plan{action: remove}},
		{"deleted, no host recorded", newVM(deleted, hadServer, onHost("")), observedServer(newServer(running)), plan{action: remove}},
		{"deleted, and somebody has removed the finalizer", newVM(deleted, hadServer, finalizers()), observedServer(newServer(running)), plan{action: remove}},
		{"deleted without a finalizer, nothing there", newVM(deleted, finalizers()), observedServer(nil), plan{action: released}},
		{"deleted while being created", newVM(deleted), observedServer(newServer(backend.StateAbsent, during(backend.TaskCreate))), plan{action: remove}},
		{"deleted, nothing there", newVM(deleted), observedServer(nil), plan{action: remove}},
		{"deleted while the backend is away", newVM(deleted), unavailable, plan{action: remove}},
		{"deleted while backing off", newVM(deleted, failed(3, "run-1", time.Minute)), observedServer(newServer(stopped, endedBy(backend.CauseHost))), plan{action: remove, nextAttempt: noon.Add(time.Minute)}},
		{"deleted, but the driver is missing", newVM(deleted), observation{err: backend.ErrMissing}, plan{action: awaitDriver, requeueAfter: missingDriverInterval}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.want.now, test.want.power = noon, powerOf(test.vm, test.observed.server, noon)
			if diff := cmp.Diff(test.want, decide(test.vm, test.observed, noon), cmp.AllowUnexported(plan{}, power{}, servicePlan{})); diff != "" {
				t.Errorf("decide (-want +got):\n%s", diff)
			}
		})
	}
}

// A machine is requeued for the time when a restart is due, whatever else happens.
func TestNoActionForgetsARestart(t *testing.T) {
	verdicts := map[action]time.Duration{}
	for _, cause := range []backend.Cause{"", backend.CauseRequested, backend.CauseGuestShutdown, backend.CauseHost, backend.CauseStartFailed, backend.CauseCreateFailed, backend.CauseMemoryLost} {
		for _, state := range []backend.State{backend.StateAbsent, backend.StateStopped, backend.StateRunning, backend.StatePaused, backend.StateUnknown, backend.StateAsleep} {
			for _, task := range []backend.Task{backend.TaskNone, backend.TaskStart} {
				for _, action := range []change{withAction("active"), withAction("stopped"), withAction("paused"), withAction("asleep")} {
					for _, history := range []change{func(*v1alpha1.VirtualMachine) {}, failed(2, "run-1", time.Hour), policy("Never"), pendingRestart("run-0"), pendingRestart("run-1")} {
						server := newServer(state, during(task))
						if cause != "" && !server.IsOn() {
							endedBy(cause)(server)
						}
						vm := newVM(hadServer, action, history, restartRequestedAt(noon.Add(time.Second)))
						got := decide(vm, observedServer(server), noon)
						if verdicts[got.action] = got.requeueAfter; got.requeueAfter <= 0 || got.requeueAfter > time.Second {
							t.Fatalf("%s: state %s, task %q, ended by %q: it is requeued after %v, want 1 s at most", got.action, state, task, cause, got.requeueAfter)
						}
					}
				}
			}
		}
	}
	for _, want := range []action{keep, leaveStopped, backOff, recordEnd, wait, unreachable, start, stop, pause, sleep, resume, completeRestart} {
		if _, found := verdicts[want]; !found {
			t.Errorf("no case has the action %s", want)
		}
	}
}

func TestBackoffGrowsWithTheSquareOfFailures(t *testing.T) {
	for failures, want := range map[int32]time.Duration{
		0: 0, 1: 10 * time.Second, 2: 40 * time.Second, 3: 90 * time.Second, 5: 250 * time.Second, 6: 300 * time.Second, 1 << 30: 300 * time.Second,
	} {
		got := backoff("vm-uid", failures)
		if got > want || got < want-want/10 {
			t.Errorf("after %d failures: %v, want %v or up to a tenth less", failures, got, want)
		}
	}
	if backoff("a", 3) == backoff("b", 3) {
		t.Error("two machines that failed together are tried again together")
	}
}
