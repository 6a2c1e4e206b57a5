package cluster_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/engine/fake"
)

// run sets spec.running.
func (w *world) run(running bool) {
	w.Helper()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Running = ptr.To(running) })
}

// expectAtRest fails the test unless the cluster is stopped as spec.running requests.
func (w *world) expectAtRest() {
	w.Helper()
	w.expectPhase(v1alpha1.PhaseStopped, v1alpha1.ReasonStopped)
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonStopped)
	w.expect(v1alpha1.ConditionControlPlaneAvailable, "False", v1alpha1.ReasonStopped)
	w.expect(v1alpha1.ConditionEtcdHealthy, "False", v1alpha1.ReasonStopped)
	if last := w.get().Status.LastOperation; last != nil && last.State != v1alpha1.OperationSucceeded {
		w.Errorf("the last operation is %+v", last)
	}
}

func TestStopAndStart(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.events()
	w.outside.Calls()
	w.outside.Hold(func(fake.Call) bool { return true })
	w.run(false)
	w.settle()
	w.expectPhase(v1alpha1.PhaseProvisioned, v1alpha1.ReasonStopping)
	if last := w.get().Status.LastOperation; last.Type != v1alpha1.OperationStop || last.State != v1alpha1.OperationProcessing {
		t.Errorf("the last operation is %+v", last)
	}
	w.outside.Hold(nil)
	w.outside.End(w.get().UID, nil)
	w.settle()
	w.expectAtRest()
	w.expect(v1alpha1.ConditionProvisioned, "True", v1alpha1.ReasonApplied)
	if w.secret() == nil || w.kubeconfig() == nil {
		t.Error("the kubeconfig of a stopped cluster is gone")
	}
	if len(w.prober.Targets()) > 0 {
		t.Error("a stopped cluster is probed")
	}
	if events := w.events(); strings.Contains(events, "Warning") || strings.Count(events, "Normal "+v1alpha1.ReasonStopped) != 1 {
		t.Errorf("events:\n%s", events)
	}

	w.restart() // the next manager does not start it
	w.settle()
	w.expectAtRest()
	if calls := len(w.outside.Calls()); calls != 1 {
		t.Errorf("%d calls of the engine to stop it", calls)
	}

	w.change(func(c *v1alpha1.Cluster) { c.Spec.APIServer = &v1alpha1.APIServer{Port: 16443} })
	w.settle()
	w.expectAtRest()
	w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonStopped)

	w.run(true)
	w.settle()
	w.expectWhole()
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
	if events := w.events(); strings.Contains(events, "Warning") {
		t.Errorf("events:\n%s", events)
	}
}

// A cluster that never becomes ready can be stopped, and so can one that was not provisioned yet.
func TestStopOfAClusterThatIsNotReady(t *testing.T) {
	w := newWorld(t)
	w.outside.Hold(func(fake.Call) bool { return true })
	w.create()
	w.settle()
	w.outside.Hold(nil)
	w.run(false)
	w.settle()
	w.expectAtRest()
	w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonStopped)
	w.run(true)
	w.settle()
	w.expectWhole()

	w.outside.Fail(func(call fake.Call) error {
		if call.Method == "Apply" {
			return errors.New("the processes do not end")
		}
		return nil
	})
	w.run(false)
	w.reconcile()
	w.expect(v1alpha1.ConditionReady, "False", v1alpha1.ReasonStopping)
	if last := w.get().Status.LastOperation; last.Type != v1alpha1.OperationStop || last.State != v1alpha1.OperationFailed {
		t.Errorf("the last operation is %+v", last)
	}
	w.outside.Fail(nil)
	w.pass(11 * time.Second)
	w.settle()
	w.expectAtRest()
	w.delete()
	w.settle()
	w.expectNothing()
}

func TestAClusterThatNeverRan(t *testing.T) {
	w := newWorld(t)
	w.create(func(c *v1alpha1.Cluster) { c.Spec.Running = ptr.To(false) })
	w.settle()
	w.expectAtRest()
	if calls := w.outside.Calls(); len(calls) > 0 {
		t.Errorf("calls of the engine: %v", calls)
	}
}

func TestExpiry(t *testing.T) {
	w := newWorld(t)
	w.made(func(c *v1alpha1.Cluster) { c.Spec.ExpiresAfter = &metav1.Duration{Duration: time.Hour} })
	w.expect(v1alpha1.ConditionExpiring, "False", v1alpha1.ReasonNotExpiring)
	created := w.get().CreationTimestamp.Time
	if got := w.get().Status.ExpiresAt; got == nil || !got.Time.Equal(created.Add(time.Hour)) {
		t.Errorf("status.expiresAt is %v; created at %s", got, created)
	}
	at := func(age time.Duration) { w.clock.SetTime(created.Add(age)) }

	at(55 * time.Minute)
	w.reconcile()
	w.expect(v1alpha1.ConditionExpiring, "True", v1alpha1.ReasonExpiring)
	if events := w.events(); strings.Count(events, "Warning "+v1alpha1.ReasonExpiring) != 1 {
		t.Errorf("events:\n%s", events)
	}
	if result := w.reconcile(); result.RequeueAfter <= 0 || result.RequeueAfter > 5*time.Minute {
		t.Errorf("the next reconcile is after %s", result.RequeueAfter)
	}

	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionProtection = true })
	at(2 * time.Hour)
	w.settle()
	w.expect(v1alpha1.ConditionExpiring, "False", v1alpha1.ReasonDeletionProtected)
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionProtection, c.Spec.Paused = false, true })
	w.settle()
	w.expect(v1alpha1.ConditionExpiring, "False", v1alpha1.ReasonPaused)
	w.expectWhole()

	w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused, c.Spec.ExpiresAfter = false, nil })
	w.settle()
	if c := w.get(); c.Status.ExpiresAt != nil {
		t.Errorf("status.expiresAt is %s", c.Status.ExpiresAt)
	}
	w.expectWhole()

	w.events()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.ExpiresAfter = &metav1.Duration{Duration: time.Hour} })
	w.settle()
	w.expect(v1alpha1.ConditionExpiring, "True", v1alpha1.ReasonExpiring)
	w.expectWhole() // it was not announced before
	w.pass(v1alpha1.ExpiryNotice)
	w.settle()
	w.expectNothing()
	if events := w.events(); strings.Count(events, "Normal "+v1alpha1.ReasonExpired) != 1 {
		t.Errorf("events:\n%s", events)
	}
}

// A Cluster that was changed since the cache has read it is not deleted: the change may keep it.
func TestExpiryOfAStaleCluster(t *testing.T) {
	w := newWorld(t)
	w.made(func(c *v1alpha1.Cluster) { c.Spec.ExpiresAfter = &metav1.Duration{Duration: time.Hour} })
	w.pass(time.Hour)
	w.reconcile()
	w.expect(v1alpha1.ConditionExpiring, "True", v1alpha1.ReasonExpiring)
	stale := w.get()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.ExpiresAfter.Duration = 10 * time.Hour })
	w.pass(2 * time.Hour)
	if _, err := w.Reconcile(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.expectWhole()
}
