package cluster_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
	"github.com/keelson-dev/keelson/internal/engine/fake"
	"github.com/keelson-dev/keelson/internal/requests"
)

// restores returns the tokens of the restores of the cluster.
func (w *world) restores() string {
	w.Helper()
	var all []string
	w.outside.Change(w.get().UID, func(c *fake.Cluster) *fake.Cluster {
		for _, r := range c.Restored {
			all = append(all, r.Token)
		}
		return c
	})
	return strings.Join(all, " ")
}

// snapshot creates a ClusterSnapshot with that name that is taken, later than the Cluster was created.
func (w *world) snapshot(name, of string) {
	w.Helper()
	w.pass(time.Minute)
	w.do(w.client.Create(w.Context(), &v1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: of}}))
	var s v1alpha1.ClusterSnapshot
	w.do(w.client.Get(w.Context(), client.ObjectKey{Name: name}, &s))
	w.setTaken(&s, metav1.ConditionTrue, v1alpha1.ReasonSnapshotTaken, "taken")
}

// The times of requests.
const (
	once  = "2026-11-25T18:00:01Z"
	twice = "2026-11-25T18:00:02Z"
)

// timeOf returns the time of a text.
func timeOf(text string) metav1.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return metav1.NewTime(at)
}

// restoring sets spec.restore.
func restoring(snapshot, requested string, keep bool) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		c.Spec.Restore = &commonv1.Restore{Snapshot: snapshot, RequestedAt: timeOf(requested), KeepCurrent: ptr.To(keep)}
	}
}

// previous returns the ClusterSnapshots of states before a restore.
func (w *world) previous() []v1alpha1.ClusterSnapshot {
	w.Helper()
	var all []v1alpha1.ClusterSnapshot
	for _, s := range w.snapshots() {
		if s.Labels[v1alpha1.LabelRestoreOf] != "" {
			all = append(all, s)
		}
	}
	return all
}

func TestRestore(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.change(restoring(w.name+"-a", once, true))
	w.settle()
	if c := w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonSnapshotNotAvailable); !strings.Contains(c.Message, "there is no ClusterSnapshot") {
		t.Errorf("the message is %q", c.Message)
	}
	w.expectWhole()
	if n := len(w.previous()); n != 0 {
		t.Errorf("%d snapshots before anything is restored", n)
	}
	w.snapshot(w.name+"-a", w.name)
	w.settle()
	if c := w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonSnapshotPending); !strings.Contains(c.Message, "keepCurrent") {
		t.Errorf("the message is %q", c.Message)
	}
	if w.restores() != "" || len(w.previous()) != 1 {
		t.Errorf("restores %q with %d snapshots", w.restores(), len(w.previous()))
	}
	w.outside.Hold(func(fake.Call) bool { return true })
	w.takeSnapshots()
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonRestoring)
	w.expect(v1alpha1.ConditionProvisioned, "True", v1alpha1.ReasonApplied)
	if last := w.get().Status.LastOperation; last.Type != v1alpha1.OperationRestore || last.State != v1alpha1.OperationProcessing {
		t.Errorf("the last operation is %+v", last)
	}
	w.events()
	w.outside.Change(w.get().UID, func(c *fake.Cluster) *fake.Cluster {
		for i := range c.Components {
			c.Components[i].Up = false
		}
		return c
	})
	w.settle()
	for _, name := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionControlPlaneAvailable, v1alpha1.ConditionEtcdHealthy, v1alpha1.ConditionNodesReady} {
		w.expect(name, "False", v1alpha1.ReasonRestoring)
	}
	w.pass(time.Hour) // it takes long
	w.settle()
	w.outside.Hold(nil)
	w.outside.End(w.get().UID, nil)
	w.settle()
	w.expectWhole()
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
	w.expect(v1alpha1.ConditionRestored, "True", v1alpha1.ReasonRestored)
	done := w.get().Status.Restore
	if done == nil || done.Result != commonv1.RestoreSucceeded || requests.Token(&done.RequestedAt) != once || done.Previous != w.previous()[0].Name || done.CompletedAt == nil {
		t.Errorf("the result is %+v", done)
	}
	if events := w.events(); strings.Contains(events, "Warning") || strings.Count(events, "Normal "+v1alpha1.ReasonRestored) != 1 {
		t.Errorf("events:\n%s", events)
	}
	if last := w.get().Status.LastOperation; last.Type != v1alpha1.OperationRestore || last.State != v1alpha1.OperationSucceeded {
		t.Errorf("the last operation is %+v", last)
	}
	w.restart() // the next manager does not restore it again, nor does a request without a new text
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Restore = nil })
	w.settle()
	w.change(restoring(w.name+"-a", once, true))
	w.settle()
	if w.restores() != once {
		t.Errorf("restores: %s", w.restores())
	}
	w.expect(v1alpha1.ConditionRestored, "True", v1alpha1.ReasonRestored)
}

// A failed restore is reported and not repeated; the cluster runs as before.
func TestRestoreThatFails(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.snapshot(w.name+"-a", w.name)
	w.outside.Hold(func(fake.Call) bool { return true })
	w.change(restoring(w.name+"-a", once, false))
	w.settle()
	w.outside.Hold(nil)
	w.outside.End(w.get().UID, errors.New("no space left"))
	w.outside.Calls()
	w.settle()
	if c := w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonRestoreFailed); !strings.Contains(c.Message, "no space left") {
		t.Errorf("the message is %q", c.Message)
	}
	w.pass(time.Hour)
	w.settle()
	w.expectWhole()
	if w.restores() != "" || len(w.previous()) > 0 {
		t.Errorf("restores: %s, %d snapshots", w.restores(), len(w.previous()))
	}
	if done := w.get().Status.Restore; done == nil || done.Result != commonv1.RestoreFailed || done.Message != "no space left" {
		t.Errorf("the result is %+v", done)
	}
	if events := w.events(); strings.Count(events, "Warning "+v1alpha1.ReasonRestoreFailed) != 1 {
		t.Errorf("events:\n%s", events)
	}
	w.change(restoring(w.name+"-a", twice, false))
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "True", v1alpha1.ReasonRestored)
	if w.restores() != twice {
		t.Errorf("restores: %s", w.restores())
	}
}

// A restore that the engine has begun goes on, and its failure is reported, however old the snapshot of the objects before is by then.
func TestRestoreThatFailsLate(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.snapshot(w.name+"-a", w.name)
	w.change(restoring(w.name+"-a", once, true))
	w.settle()
	w.outside.Hold(func(fake.Call) bool { return true })
	w.takeSnapshots()
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonRestoring)
	before := w.previous()[0].UID
	w.outside.Calls()
	w.pass(time.Hour)
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonRestoring)
	asked := 0
	w.outside.Fail(func(fake.Call) error { asked++; return nil })
	w.reconcile()
	if w.outside.Fail(nil); asked != 1 {
		t.Errorf("the engine is asked %d times in a reconcile", asked)
	}
	w.outside.Hold(nil)
	w.outside.End(w.get().UID, errors.New("no space left"))
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonRestoreFailed)
	w.pass(time.Hour)
	w.settle()
	if done := w.get().Status.Restore; done == nil || done.Result != commonv1.RestoreFailed || done.Message != "no space left" {
		t.Errorf("the result is %+v", done)
	}
	if all := w.previous(); w.restores() != "" || len(all) != 1 || all[0].UID != before {
		t.Errorf("restores: %s, snapshots %+v", w.restores(), all)
	}
	for _, call := range w.outside.Calls() {
		if call.Method != "Apply" { // which supervises the cluster again
			t.Errorf("the engine got the call %+v", call)
		}
	}
}

// What a restore waits for, and what it refuses.
func TestRestoreThatWaits(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.snapshot(w.name+"-foreign", w.name+"-other")
	t.Cleanup(func() {
		foreign := &v1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: w.name + "-foreign"}}
		w.do(w.client.Delete(context.WithoutCancel(t.Context()), foreign))
	})
	w.snapshot(w.name+"-a", w.name)
	w.change(restoring(w.name+"-foreign", once, true))
	w.settle()
	if c := w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonSnapshotNotAvailable); !strings.Contains(c.Message, "is of another Cluster") {
		t.Errorf("the message is %q", c.Message)
	}
	w.run(false)
	w.change(restoring(w.name+"-a", twice, true))
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonStopped)
	w.run(true)
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonSnapshotPending)
	first := w.previous()[0].UID
	w.takeSnapshots()
	w.pass(time.Hour) // no manager ran, and the cluster has changed since
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "False", v1alpha1.ReasonSnapshotPending)
	if all := w.previous(); len(all) != 1 || all[0].UID == first || w.restores() != "" {
		t.Errorf("snapshots %+v, restores: %s", all, w.restores())
	}
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Restore.KeepCurrent = ptr.To(false) })
	w.settle()
	w.expect(v1alpha1.ConditionRestored, "True", v1alpha1.ReasonRestored)
	if len(w.previous()) > 0 || w.restores() != twice {
		t.Errorf("snapshots %+v, restores: %s", w.previous(), w.restores())
	}
}
