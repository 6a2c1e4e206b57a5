package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
)

// An old object that is already being deleted goes, with its old finalizer.
func TestAnOldObjectIsDeleted(t *testing.T) {
	w := newWorld(t)
	w.create(func(c *v1alpha1.Cluster) {
		c.Spec.LegacyConfigPath = "/etc/keelson/rke/cluster.yml"
		c.Finalizers = []string{v1alpha1.LegacyFinalizer}
	})
	w.outside.Change(w.get().UID, func(*fake.Cluster) *fake.Cluster { return &fake.Cluster{Name: w.name} })
	w.delete()
	w.settle()
	w.expectNothing()
}

func TestDeletion(t *testing.T) {
	for _, tt := range []struct {
		name   string
		before func(*world)
	}{
		{"of a cluster that is well", func(*world) {}},
		{"of one whose API is away", func(w *world) { w.answer(cluster.Probe{Failing: "no answer"}) }},
		{"everything outside was removed by hand", func(w *world) {
			w.outside.Change(w.get().UID, func(*fake.Cluster) *fake.Cluster { return nil })
		}},
		{"the Secret and the Kubeconfig were removed by hand", func(w *world) {
			w.do(w.client.Delete(w.Context(), w.secret()))
			w.do(w.client.Delete(w.Context(), w.kubeconfig()))
		}},
		{"by a manager that was started again", func(w *world) { w.restart() }},
		{"while it is being changed", func(w *world) {
			w.outside.Hold(func(c fake.Call) bool { return c.Method == "Apply" })
			w.change(func(c *v1alpha1.Cluster) { c.Spec.Version = "v1.37.0" })
			w.settle()
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.made()
			tt.before(w)
			w.delete()
			w.settle()
			w.expectNothing()
			if events := w.events(); !strings.Contains(events, "Normal "+v1alpha1.ReasonDeleted) {
				t.Errorf("events:\n%s", events)
			}
		})
	}
}

func TestADeletionThatFailsSaysWhatItWaitsFor(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.outside.Hold(func(c fake.Call) bool { return c.Method == "Delete" })
	w.delete()
	w.settle()
	since := w.get().DeletionTimestamp.UTC().Format(time.RFC3339)
	if removing := w.expect(v1alpha1.ConditionDeleting, "True", v1alpha1.ReasonRemoving); removing.Message != "Waiting for the fake cluster "+w.name+" since "+since {
		t.Errorf("message %q", removing.Message)
	}
	w.outside.End(w.get().UID, errors.New("the host does not answer"))
	w.reconcile()
	failed := w.expect(v1alpha1.ConditionDeleting, "True", v1alpha1.ReasonDeleteFailed)
	for _, want := range []string{"since " + since, "the fake cluster", v1alpha1.AnnotationForceDelete} {
		if !strings.Contains(failed.Message, want) {
			t.Errorf("message %q, without %q", failed.Message, want)
		}
	}
	if o := w.get().Status.LastOperation; o.Type != v1alpha1.OperationDelete || o.State != v1alpha1.OperationFailed || o.Description != "the host does not answer" {
		t.Errorf("operation %+v", o)
	}
	w.outside.Hold(nil)
	w.pass(10 * time.Second)
	w.settle()
	w.expectNothing()
}

func TestForceDelete(t *testing.T) {
	for _, tt := range []struct {
		value string
		after time.Duration
	}{{"5m", 5 * time.Minute}, {"true", time.Minute}, {"", time.Minute}} {
		t.Run("value "+tt.value, func(t *testing.T) {
			w := newWorld(t)
			w.made()
			w.outside.Fail(func(c fake.Call) error {
				if c.Method == "Delete" {
					return fmt.Errorf("%w: the program is gone", cluster.ErrUnavailable)
				}
				return nil
			})
			w.delete()
			w.change(func(c *v1alpha1.Cluster) {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, v1alpha1.AnnotationForceDelete, tt.value)
			})
			w.clock.SetTime(w.get().DeletionTimestamp.Add(tt.after - time.Second))
			if result := w.reconcile(); result.RequeueAfter == 0 || result.RequeueAfter > time.Second {
				t.Errorf("a second before the deadline it looks again in %v", result.RequeueAfter)
			}
			if w.get() == nil {
				t.Fatal("it was let go before the deadline")
			}
			w.pass(time.Second)
			w.settle()
			if w.get() != nil || w.secret() != nil || w.kubeconfig() != nil {
				t.Error("the Cluster, the Secret or the Kubeconfig is still there")
			}
			if events := w.events(); !strings.Contains(events, "Warning "+v1alpha1.ReasonLeftBehind) || !strings.Contains(events, "the fake cluster "+w.name) {
				t.Errorf("events:\n%s", events)
			}
			if len(w.outside.Names()) != 1 {
				t.Error("what was left behind is gone")
			}
		})
	}
}

// The admission policy refuses the deletion; where there is none, the controller does.
func TestDeletionProtection(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.delete()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionProtection = true })
	w.settle()
	w.expect(v1alpha1.ConditionDeleting, "False", v1alpha1.ReasonDeletionProtected)
	if len(w.outside.Names()) != 1 {
		t.Error("it was removed")
	}
	w.change(func(c *v1alpha1.Cluster) { c.Spec.DeletionProtection = false })
	w.settle()
	w.expectNothing()
}
