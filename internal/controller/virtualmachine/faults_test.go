package virtualmachine

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A stale cache that still has a deleted object leads to no server.
func TestACacheThatIsBehindMakesNoServer(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	stale := w.vm()
	w.remove()
	w.reconcileUntilStable()
	w.backend.Calls()
	for range 3 {
		result, err := w.Reconcile(t.Context(), stale.DeepCopy())
		if want := (reconcile.Result{RequeueAfter: kube.StalePause}); err != nil || result != want {
			t.Errorf("Reconcile returns %v, %v; want %v", result, err, want)
		}
	}
	unseen := stale.DeepCopy()
	unseen.Finalizers = nil
	if _, err := w.Reconcile(t.Context(), unseen); err != nil {
		t.Errorf("Reconcile: %v", err)
	}
	w.expectCalls()
}

func TestACacheThatIsBehindCountsACrashOnce(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	w.backend.Crash(w.uid(), backend.CauseHost, "")
	stale := w.vm()
	w.reconcile()
	for range 3 {
		if _, err := w.Reconcile(t.Context(), stale.DeepCopy()); err != nil {
			t.Errorf("Reconcile: %v", err)
		}
	}
	w.reconcileUntilStable()
	if got := w.vm().Status.Restarts; got != 1 {
		t.Errorf("one crash counts as %d", got)
	}
}

// scenarios are events in the life of a VirtualMachine, and its expected final state.
var scenarios = []struct {
	name   string
	ready  bool // whether the machine is ready before the event
	happen func(*fixture)
	reason string
	check  func(*fixture) bool
}{
	{"it was created", false, func(*fixture) {}, v1alpha1.ReasonGuestReady, nil},
	{
		"the guest crashed", true,
		func(w *fixture) { w.backend.Crash(w.uid(), backend.CauseGuestPanic, "") },
		v1alpha1.ReasonGuestReady, func(w *fixture) bool { return w.vm().Status.Restarts == 1 },
	},
	{
		"a restart was asked for", true,
		func(w *fixture) { w.change(restartedAt(w.clock.Now())) },
		v1alpha1.ReasonGuestReady, func(w *fixture) bool {
			return w.vm().Status.LastRestartTime != nil && w.vm().Status.Server.Run == "run-2"
		},
	},
	{
		"it was stopped", true,
		func(w *fixture) { w.change(withAction(v1alpha1.ActionStopped)) }, v1alpha1.ReasonStopped, nil,
	},
	{
		"the server vanished", true,
		func(w *fixture) { w.backend.Lose(w.uid()) }, v1alpha1.ReasonGuestReady, nil,
	},
	{
		"it was deleted", true, func(w *fixture) { w.remove() }, "", nil,
	},
	{
		"it was deleted before it had a server", false, func(w *fixture) { w.remove() }, "", nil,
	},
}

// A process is killed at each write, or the write fails: the next process reaches the state
// of an undisturbed one.
func TestKilledAtAnyWrite(t *testing.T) {
	type killed struct{}
	for _, fault := range []struct {
		name   string
		moment harness.Moment
		raise  func() error
	}{
		{"killed before a write", harness.Before, func() error { panic(killed{}) }},
		{"killed after a write", harness.After, func() error { panic(killed{}) }},
		{"a write is lost", harness.Before, func() error { return errLost }},
		{"the answer to a write is lost", harness.After, func() error { return errLost }},
	} {
		for _, story := range scenarios {
			t.Run(fault.name+", "+story.name, func(t *testing.T) {
				w := newFixture(t)
				for step := 0; ; step++ {
					w.backend.Forget()
					if story.ready {
						w.createReady()
					} else {
						w.create()
					}
					story.happen(w)
					faulty, reached := harness.OnWrite(w.client, step, fault.moment, fault.raise)
					w.useClient(faulty)
					func() {
						defer func() {
							if r := recover(); r != nil && r != any(killed{}) {
								panic(r)
							}
						}()
						for range 12 {
							if w.isGone() {
								return
							}
							result, _ := w.Reconcile(t.Context(), w.vm())
							w.advance(min(result.RequeueAfter, taskCheckInterval))
						}
					}()
					w.restart()
					w.finishScenario(step, story.reason, story.check)
					if !reached() {
						return
					}
				}
			})
		}
	}
}

// finishScenario completes a scenario, checks the final state, and cleans up.
func (w *fixture) finishScenario(step int, reason string, check func(*fixture) bool) {
	w.Helper()
	w.reconcileUntilStable()
	if reason == "" {
		if !w.isGone() || len(w.backend.UIDs()) > 0 {
			w.Fatalf("step %d: it is not gone: servers %v", step, w.backend.UIDs())
		}
		return
	}
	w.backend.Boot(w.uid())
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, isTrue, reason)
	if check != nil && !check(w) {
		w.Fatalf("step %d: status %+v", step, w.vm().Status)
	}
	if got := w.backend.UIDs(); len(got) != 1 || got[0] != w.uid() {
		w.Fatalf("step %d: the servers are %v", step, got)
	}
	w.remove()
	w.reconcileUntilStable()
	if !w.isGone() || len(w.backend.UIDs()) > 0 {
		w.Fatalf("step %d: it is not gone: servers %v", step, w.backend.UIDs())
	}
}
