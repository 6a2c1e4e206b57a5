package virtualmachine

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestDecide(t *testing.T) {
	const (
		stopped = backend.StateStopped
		running = backend.StateRunning
		paused  = backend.StatePaused
	)
	first := backoff("vm-uid", 1)
	unavailable := observation{name: "fake", driver: see(nil).driver, err: fmt.Errorf("it: %w", backend.ErrUnavailable)}
	for _, test := range []struct {
		name string
		vm   *v1alpha1.VirtualMachine
		seen observation
		want plan
	}{
		{"nothing there", newVM(), see(nil), plan{verdict: create}},
		{"nothing there, not claimed", newVM(finalizers()), see(nil), plan{verdict: claim}},
		{"nothing there, not claimed, and backing off", newVM(finalizers(), failed(1, "run-1", time.Second)), see(nil), plan{verdict: backOff, due: noon.Add(time.Second), again: time.Second}},
		{"somebody has removed the finalizer of a server", newVM(finalizers()), see(newServer(running)), plan{verdict: claim}},
		{"nothing there, and no host is noted", newVM(onHost("")), see(nil), plan{verdict: claim}},
		{"nothing there, and another host was given up", newVM(onHost("there"), forgets("there")), see(nil), plan{verdict: claim}},
		{"a server of which no host is noted", newVM(hadServer, onHost("")), see(newServer(running)), plan{verdict: claim}},
		{"another host has the server", newVM(hadServer, onHost("there")), observation{driver: see(nil).driver, host: here, err: errElsewhere}, plan{verdict: refuse}},
		{"the finalizer is that of another driver", newVM(hadServer), observation{err: errConflict}, plan{verdict: refuse}},
		{"nothing there, and it is to be stopped", newVM(action("stopped")), see(nil), plan{verdict: create}},
		{"the driver is missing", newVM(), observation{err: backend.ErrMissing}, plan{verdict: missing, again: missingCheck}},
		{"the driver cannot be opened", newVM(), observation{err: backend.ErrUnavailable}, plan{verdict: unreachable, again: time.Second}},
		{"the backend does not answer", newVM(hadServer), unavailable, plan{verdict: unreachable, again: time.Second}},
		{"the monitor does not answer", newVM(), see(newServer(backend.StateUnknown)), plan{verdict: unreachable, again: time.Second}},

		{"being created", newVM(), see(newServer(backend.StateAbsent, during(backend.TaskCreate))), plan{verdict: wait, again: taskCheck}},
		{"being started, and it is to be stopped", newVM(action("stopped")), see(newServer(stopped, during(backend.TaskStart))), plan{verdict: wait, again: taskCheck}},
		{"created", newVM(), see(newServer(stopped)), plan{verdict: start}},
		{"created, to be paused", newVM(action("paused")), see(newServer(stopped)), plan{verdict: start}},
		{"created, to be stopped", newVM(action("stopped")), see(newServer(stopped)), plan{verdict: keep}},
		{"running", newVM(), see(newServer(running)), plan{verdict: keep}},
		{"running, to be paused", newVM(action("paused")), see(newServer(running)), plan{verdict: pause}},
		{"paused", newVM(action("paused")), see(newServer(paused)), plan{verdict: keep}},
		{"paused, to run", newVM(), see(newServer(paused)), plan{verdict: resume}},
		{"paused, to be stopped", newVM(action("stopped")), see(newServer(paused)), plan{verdict: stop}},
		{"running, to be stopped", newVM(action("stopped")), see(newServer(running)), plan{verdict: stop}},
		{"stopped as requested, to run", newVM(), see(newServer(stopped, endedBy(backend.CauseRequested))), plan{verdict: start}},
		{"stopped as requested", newVM(action("stopped")), see(newServer(stopped, endedBy(backend.CauseRequested))), plan{verdict: keep}},

		{"the memory was changed", newVM(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Resource.Memory = resource.MustParse("2Gi") }), see(newServer(running)), plan{verdict: reconfigure}},
		{"the policy was changed", newVM(policy("Never")), see(newServer(running)), plan{verdict: keep}},

		{"crashed for the first time", newVM(), see(newServer(stopped, endedBy(backend.CauseGuestPanic))), plan{verdict: countEnd, due: noon, again: time.Second}},
		{"crashed, counted", newVM(failed(1, "run-1", 0)), see(newServer(stopped, endedBy(backend.CauseGuestPanic))), plan{verdict: start, due: noon}},
		{"crashed again", newVM(failed(1, "run-0", -time.Minute)), see(newServer(stopped, endedBy(backend.CauseHost))), plan{verdict: countEnd, due: noon.Add(first), again: first}},
		{"crashed again, counted", newVM(failed(2, "run-1", time.Minute)), see(newServer(stopped, endedBy(backend.CauseHost))), plan{verdict: backOff, due: noon.Add(time.Minute), again: time.Minute}},
		{"crashed again, and the spec was changed since", newVM(failed(2, "run-1", time.Minute), func(vm *v1alpha1.VirtualMachine) { vm.Generation++ }), see(newServer(stopped, endedBy(backend.CauseHost))), plan{verdict: start}},
		{"crashed after a good run", newVM(failed(4, "run-0", 0)), see(newServer(stopped, endedBy(backend.CauseHost), func(s *backend.Server) { s.Ended.StartedAt = noon.Add(-goodRun) })), plan{verdict: countEnd, due: noon, again: time.Second}},
		{"powered off, Always", newVM(), see(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{verdict: countEnd, due: noon, again: time.Second}},
		{"powered off, OnFailure", newVM(policy("OnFailure")), see(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{verdict: leave}},
		{"crashed, OnFailure", newVM(policy("OnFailure")), see(newServer(stopped, endedBy(backend.CauseError))), plan{verdict: countEnd, due: noon, again: time.Second}},
		{"crashed, Never", newVM(policy("Never")), see(newServer(stopped, endedBy(backend.CauseError))), plan{verdict: leave}},
		{"could not be started, Never", newVM(policy("Never")), see(newServer(stopped, endedBy(backend.CauseStartFailed))), plan{verdict: countEnd, due: noon.Add(first), again: first}},
		{"crashed, to be stopped", newVM(action("stopped")), see(newServer(stopped, endedBy(backend.CauseHost))), plan{verdict: stop}},
		{"could not be created", newVM(), see(newServer(backend.StateAbsent, endedBy(backend.CauseCreateFailed))), plan{verdict: countEnd, due: noon.Add(first), again: first}},
		{"could not be created, counted", newVM(failed(1, "run-1", time.Second)), see(newServer(backend.StateAbsent, endedBy(backend.CauseCreateFailed))), plan{verdict: backOff, due: noon.Add(time.Second), again: time.Second}},
		{"could not be created, and it is time", newVM(failed(1, "run-1", 0)), see(newServer(backend.StateAbsent, endedBy(backend.CauseCreateFailed))), plan{verdict: create, due: noon}},
		{"failures are about to be forgotten", newVM(failed(1, "run-0", -time.Minute)), see(newServer(running)), plan{verdict: keep, due: noon.Add(-time.Minute), again: goodRun - time.Minute}},

		{"a restart is asked for", newVM(hadServer, restartedAt(noon)), see(newServer(running)), plan{verdict: noteRestart}},
		{"a restart is asked for at a later time", newVM(hadServer, restartedAt(noon.Add(time.Hour))), see(newServer(running)), plan{verdict: keep, again: time.Hour}},
		{"a restart is asked for at a later time, of a guest that stays off", newVM(hadServer, policy("OnFailure"), restartedAt(noon.Add(time.Hour))), see(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{verdict: leave, again: time.Hour}},
		{"a restart is asked for at a later time, before the next attempt", newVM(hadServer, failed(2, "run-1", time.Minute), restartedAt(noon.Add(time.Second))), see(newServer(stopped, endedBy(backend.CauseHost))), plan{verdict: backOff, due: noon.Add(time.Minute), again: time.Second}},
		{"a restart is asked for at a later time, after the next attempt", newVM(hadServer, failed(2, "run-1", time.Minute), restartedAt(noon.Add(time.Hour))), see(newServer(stopped, endedBy(backend.CauseHost))), plan{verdict: backOff, due: noon.Add(time.Minute), again: time.Minute}},
		{"a restart was asked for before there was a server", newVM(restartedAt(noon)), see(nil), plan{verdict: create}},
		{"a restart was obeyed", newVM(hadServer, restartedAt(noon), lastRestart(noon)), see(newServer(running)), plan{verdict: keep}},
		{"a restart is under way", newVM(hadServer, restartedAt(noon), pendingRestart("run-1")), see(newServer(running)), plan{verdict: stop}},
		{"the first half of a restart is done", newVM(hadServer, restartedAt(noon), pendingRestart("run-1")), see(newServer(stopped, endedBy(backend.CauseRequested))), plan{verdict: start}},
		{"the guest was faster than the restart", newVM(hadServer, restartedAt(noon), pendingRestart("run-1"), policy("Never")), see(newServer(stopped, endedBy(backend.CauseGuestShutdown))), plan{verdict: start}},
		{"a restart is done", newVM(hadServer, restartedAt(noon), pendingRestart("run-0")), see(newServer(running)), plan{verdict: endRestart}},
		{"a restart while it is to be stopped", newVM(hadServer, restartedAt(noon), pendingRestart("run-1"), action("stopped")), see(newServer(stopped)), plan{verdict: endRestart}},

		{"deleted", newVM(deleted), see(newServer(running)), plan{verdict: remove}},
		{"deleted, but the finalizer is that of another driver", newVM(deleted, hadServer), observation{err: errConflict}, plan{verdict: refuse}},
		{"deleted, but another host has the server", newVM(deleted, onHost("there")), observation{driver: see(nil).driver, host: here, err: errElsewhere}, plan{verdict: refuse}},
		{"deleted, and another host was given up", newVM(deleted, onHost("there"), forgets("there")), see(nil), plan{verdict: remove}},
		{"deleted, and no host is noted", newVM(deleted, hadServer, onHost("")), see(newServer(running)), plan{verdict: remove}},
		{"deleted, and somebody has removed the finalizer", newVM(deleted, hadServer, finalizers()), see(newServer(running)), plan{verdict: remove}},
		{"deleted without a finalizer, nothing there", newVM(deleted, finalizers()), see(nil), plan{verdict: released}},
		{"deleted while being created", newVM(deleted), see(newServer(backend.StateAbsent, during(backend.TaskCreate))), plan{verdict: remove}},
		{"deleted, nothing there", newVM(deleted), see(nil), plan{verdict: remove}},
		{"deleted while the backend is away", newVM(deleted), unavailable, plan{verdict: remove}},
		{"deleted while backing off", newVM(deleted, failed(3, "run-1", time.Minute)), see(newServer(stopped, endedBy(backend.CauseHost))), plan{verdict: remove, due: noon.Add(time.Minute)}},
		{"deleted, but the driver is missing", newVM(deleted), observation{err: backend.ErrMissing}, plan{verdict: missing, again: missingCheck}},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.want.at = noon
			if diff := cmp.Diff(test.want, decide(test.vm, test.seen, noon), cmp.AllowUnexported(plan{})); diff != "" {
				t.Errorf("decide (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever a machine does meanwhile, it is looked at when a restart is due.
func TestNoVerdictForgetsARestart(t *testing.T) {
	verdicts := map[verdict]time.Duration{}
	for _, cause := range []backend.Cause{"", backend.CauseRequested, backend.CauseGuestShutdown, backend.CauseHost, backend.CauseStartFailed, backend.CauseCreateFailed} {
		for _, state := range []backend.State{backend.StateAbsent, backend.StateStopped, backend.StateRunning, backend.StatePaused, backend.StateUnknown} {
			for _, task := range []backend.Task{backend.TaskNone, backend.TaskStart} {
				for _, action := range []change{action("active"), action("stopped"), action("paused")} {
					for _, history := range []change{func(*v1alpha1.VirtualMachine) {}, failed(2, "run-1", time.Hour), policy("Never"), pendingRestart("run-0"), pendingRestart("run-1")} {
						server := newServer(state, during(task))
						if cause != "" && !server.IsOn() {
							endedBy(cause)(server)
						}
						vm := newVM(hadServer, action, history, restartedAt(noon.Add(time.Second)))
						got := decide(vm, see(server), noon)
						if verdicts[got.verdict] = got.again; got.again <= 0 || got.again > time.Second {
							t.Fatalf("%s: state %s, task %q, ended by %q: the next look is after %v, want 1 s at most", got.verdict, state, task, cause, got.again)
						}
					}
				}
			}
		}
	}
	for _, want := range []verdict{keep, leave, backOff, countEnd, wait, unreachable, start, stop, pause, resume, endRestart} {
		if _, found := verdicts[want]; !found {
			t.Errorf("no case has the verdict %s", want)
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
