package virtualmachine

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// A stale cache that still has a deleted object leads to no server.
func TestACacheThatIsBehindMakesNoServer(t *testing.T) {
	w := newFixture(t)
	w.createReady()
	stale := w.Object()
	w.Delete()
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
	stale := w.Object()
	w.ReconcileOnce()
	for range 3 {
		if _, err := w.Reconcile(t.Context(), stale.DeepCopy()); err != nil {
			t.Errorf("Reconcile: %v", err)
		}
	}
	w.reconcileUntilStable()
	if got := w.Object().Status.Restarts; got != 1 {
		t.Errorf("one crash counts as %d", got)
	}
}

// TestStories tells what happens to a VirtualMachine. In the end it has one server and the state that it asks for, or both
// are gone.
func TestStories(t *testing.T) {
	createReady := func(w *fixture) { w.createReady() }
	hasRestarted := func(w *fixture) bool { return w.Object().Status.Restarts == 1 }
	hasRunTwice := func(w *fixture) bool {
		status := w.Object().Status
		return status.LastRestartRequestedAt != nil && status.Server.Run == "run-2"
	}
	table := stories.Table[*fixture]{New: startFixture, Steps: 12, Always: (*fixture).expectOneServer, Finish: func(w *fixture) {
		w.reconcileUntilStable()
		if !w.IsGone() {
			w.backend.Boot(w.uid())
			w.reconcileUntilStable()
		}
	}}
	for _, story := range []struct {
		name   string
		before func(*fixture)
		happen func(*fixture)
		reason string // empty if it is gone
		check  func(*fixture) bool
	}{
		{"it was created", nil, func(w *fixture) { w.create() }, v1alpha1.ReasonGuestReady, nil},
		{
			"the guest crashed", createReady, func(w *fixture) { w.backend.Crash(w.uid(), backend.CauseGuestPanic, "") },
			v1alpha1.ReasonGuestReady, hasRestarted,
		},
		{
			"a restart was asked for", createReady, func(w *fixture) { w.Change(restartRequestedAt(w.Clock.Now())) },
			v1alpha1.ReasonGuestReady, hasRunTwice,
		},
		{"it was stopped", createReady, func(w *fixture) { w.Change(withAction(v1alpha1.ActionStopped)) }, v1alpha1.ReasonStopped, nil},
		{"the server vanished", createReady, func(w *fixture) { w.backend.Lose(w.uid()) }, v1alpha1.ReasonGuestReady, nil},
		{"it was deleted", createReady, (*fixture).Delete, "", nil},
		{"it was deleted before it had a server", func(w *fixture) { w.create() }, (*fixture).Delete, "", nil},
	} {
		table.Stories = append(table.Stories, stories.Story[*fixture]{
			Name: story.name, Before: story.before, Happen: story.happen,
			End: func(w *fixture) {
				if story.reason != "" {
					w.expect(v1alpha1.PhaseActive, isTrue, story.reason)
					if story.check != nil && !story.check(w) {
						w.Errorf("status %+v", w.Object().Status)
					}
					if got := w.backend.UIDs(); len(got) != 1 || got[0] != w.uid() {
						w.Errorf("the servers are %v", got)
					}
					w.Delete()
					w.reconcileUntilStable()
				}
				if !w.IsGone() || len(w.backend.UIDs()) > 0 {
					w.Errorf("it is not gone: servers %v", w.backend.UIDs())
				}
			},
		})
	}
	table.Run(t)
}

// expectOneServer fails the test if there is a server too many, or one that nothing would delete.
func (w *fixture) expectOneServer() {
	w.Helper()
	servers := w.backend.UIDs()
	if len(servers) > 1 || len(servers) == 1 && (w.IsGone() || len(w.Object().Finalizers) == 0) {
		w.Errorf("the servers are %v; the VirtualMachine is gone: %t", servers, w.IsGone())
	}
}
