package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
)

func TestAClusterIsMade(t *testing.T) {
	w := newWorld(t)
	w.outside.Hold(func(fake.Call) bool { return true })
	w.create()
	w.settle()
	w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonProvisioning)
	w.expect(v1alpha1.ConditionReady, "Unknown", v1alpha1.ReasonNotProbed)
	w.expect(v1alpha1.ConditionKubeconfigAvailable, "False", v1alpha1.ReasonNoKubeconfig)
	w.expect(v1alpha1.ConditionDeleting, "False", v1alpha1.ReasonNotDeleting)
	w.expect(v1alpha1.ConditionPaused, "False", v1alpha1.ReasonNotPaused)
	if status := w.get().Status; status.Phase != v1alpha1.PhaseProvisioning || status.LastOperation.Type != v1alpha1.OperationProvision || status.LastOperation.State != v1alpha1.OperationProcessing {
		t.Errorf("status %+v, operation %+v", status, status.LastOperation)
	}

	w.outside.End(w.get().UID, nil)
	w.settle()
	w.expectWhole()
	w.expect(v1alpha1.ConditionReady, "Unknown", v1alpha1.ReasonNotProbed)

	w.answer(well())
	w.settle()
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
	w.expect(v1alpha1.ConditionControlPlaneAvailable, "True", v1alpha1.ReasonAvailable)
	w.expect(v1alpha1.ConditionEtcdHealthy, "True", v1alpha1.ReasonAvailable)
	c := w.get()
	if c.Status.Version != "v1.36.3" || c.Status.Phase != v1alpha1.PhaseProvisioned {
		t.Errorf("version %q, phase %s", c.Status.Version, c.Status.Phase)
	}
	want := &v1alpha1.KubeconfigReference{Name: w.name, SecretRef: &v1alpha1.SecretReference{Namespace: w.namespace, Name: w.name + "-kubeconfig", Key: "value"}}
	if diff := cmp.Diff(want, c.Status.KubeconfigRef); diff != "" {
		t.Errorf("kubeconfigRef (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]fake.Call{{Method: "Apply", Cluster: w.name}}, w.outside.Calls()); diff != "" {
		t.Errorf("calls of the engine (-want +got):\n%s", diff)
	}
}

func TestAnOutageIsNotAnotherProvisioning(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.outside.Calls()
	w.answer(cluster.Probe{Failing: "connection refused", Version: "v1.36.3"})
	w.settle()
	w.expect(v1alpha1.ConditionReady, "False", v1alpha1.ReasonProbeFailed)
	w.expect(v1alpha1.ConditionProvisioned, "True", v1alpha1.ReasonApplied)
	w.answer(well())
	w.settle()
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)

	// The process dies: at once, whatever the last answer was.
	w.outside.Change(w.get().UID, func(c *fake.Cluster) *fake.Cluster {
		c.Components[1].Up, c.Components[1].Detail = false, "it was ended by SIGKILL"
		return c
	})
	w.reconcile()
	if ready := w.expect(v1alpha1.ConditionReady, "False", v1alpha1.ReasonComponentDown); !strings.Contains(ready.Message, "SIGKILL") {
		t.Errorf("message %q", ready.Message)
	}
	if events := w.events(); strings.Count(events, "Warning "+v1alpha1.ReasonComponentDown) != 1 || strings.Count(events, "Warning "+v1alpha1.ReasonProbeFailed) != 1 {
		t.Errorf("events:\n%s", events)
	}
	if calls := w.outside.Calls(); len(calls) > 0 {
		t.Errorf("calls of the engine: %v", calls)
	}
}

// A manager that is started again finds the cluster: no condition changes, nothing is written.
func TestARestartDoesNotFlap(t *testing.T) {
	w := newWorld(t)
	w.made()
	before := w.get()
	w.outside.Calls()
	for range 3 {
		w.prober.answers = map[types.UID]*cluster.Probe{}
		w.restart()
		w.Writes = nil
		w.settle()
		if len(w.Writes) > 0 {
			t.Errorf("it wrote %v", w.Writes)
		}
	}
	if diff := cmp.Diff(before, w.get()); diff != "" {
		t.Errorf("the Cluster changed (-before +after):\n%s", diff)
	}
	if calls := w.outside.Calls(); len(calls) != 3 {
		t.Errorf("calls of the engine: %v; want one Apply for each restart, to look after it", calls)
	}
}

func TestAFailureIsToldAndTriedAgainLater(t *testing.T) {
	w := newWorld(t)
	w.outside.Hold(func(fake.Call) bool { return true })
	w.create()
	for attempt, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		w.settle()
		w.outside.Calls()
		w.outside.End(w.get().UID, errors.New("kube-apiserver has ended with exit code 1; its last words: bad flag"))
		w.reconcile()
		failed := w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonProvisioningFailed)
		if !strings.Contains(failed.Message, "exit code 1") {
			t.Errorf("message %q", failed.Message)
		}
		if o := w.get().Status.LastOperation; o.State != v1alpha1.OperationFailed || o.Attempts != int32(attempt+1) {
			t.Errorf("operation %+v, want attempt %d", o, attempt+1)
		}
		if w.get().Status.Phase != v1alpha1.PhaseFailed {
			t.Errorf("phase %s", w.get().Status.Phase)
		}
		if attempt == 1 {
			w.restart() // forgets nothing
		}
		w.pass(pause - time.Second)
		w.reconcile()
		if calls := w.outside.Calls(); len(calls) > 0 {
			t.Errorf("%v before the pause is over: %v", time.Second, calls)
		}
		w.pass(time.Second)
		w.reconcile()
		if calls := w.outside.Calls(); len(calls) != 1 {
			t.Errorf("after the pause of %v: %v", pause, calls)
		}
	}
	if got := strings.Count(w.events(), "Warning "+v1alpha1.ReasonProvisioningFailed); got != 3 {
		t.Errorf("%d warnings, want one for each failure", got)
	}

	// A change of the spec does not wait.
	w.outside.End(w.get().UID, errors.New("again"))
	w.reconcile()
	w.outside.Calls()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Version = "v1.36.4" })
	w.reconcile()
	if calls := w.outside.Calls(); len(calls) != 1 {
		t.Errorf("after a change of the spec: %v", calls)
	}
}

// A reconcile that is under way when the manager stops meets an engine that is closed. Nothing has failed: no status is
// written, and the next manager goes on.
func TestAnEngineThatIsClosedIsNoFailure(t *testing.T) {
	for _, method := range []string{"Observe", "Apply", "Delete"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			if method == "Apply" {
				w.create()
			} else {
				w.made()
			}
			if method == "Delete" {
				w.do(w.client.Delete(t.Context(), w.get()))
			}
			w.outside.Fail(func(c fake.Call) error {
				if c.Method == method {
					return cluster.ErrStopping
				}
				return nil
			})
			w.settle()
			after := w.get()
			if o := after.Status.LastOperation; o != nil && o.State == v1alpha1.OperationFailed {
				t.Errorf("the operation counts as failed: %+v", o)
			}
			for _, c := range after.Status.Conditions {
				if strings.Contains(c.Message, "stopping") {
					t.Errorf("the condition %s tells of the manager: %s", c.Type, c.Message)
				}
			}
			if told := w.events(); strings.Contains(told, "Warning") {
				t.Errorf("events: %s", told)
			}
			w.outside.Fail(nil)
			w.restart()
			w.settle()
			if method == "Delete" {
				if names := w.outside.Names(); len(names) > 0 {
					t.Errorf("the next manager has left %v", names)
				}
			} else {
				w.expect(v1alpha1.ConditionProvisioned, "True", v1alpha1.ReasonApplied)
			}
		})
	}
}

func TestWhatAPersonHasToPutRight(t *testing.T) {
	for reason, err := range map[string]error{
		v1alpha1.ReasonInvalidSpec:         cluster.ErrInvalid,
		v1alpha1.ReasonVersionNotAvailable: cluster.ErrVersion,
		v1alpha1.ReasonConfigNotFound:      cluster.ErrConfig,
		v1alpha1.ReasonStateFileMissing:    cluster.ErrStateMissing,
		v1alpha1.ReasonEngineNotAvailable:  cluster.ErrUnavailable,
		v1alpha1.ReasonWaiting:             cluster.ErrBusy,
	} {
		for _, method := range []string{"Observe", "Apply"} {
			t.Run(method+" "+reason, func(t *testing.T) {
				w := newWorld(t)
				w.outside.Fail(func(c fake.Call) error {
					if c.Method == method {
						return fmt.Errorf("%w: do this", err)
					}
					return nil
				})
				w.create()
				w.settle()
				told := w.expect(v1alpha1.ConditionProvisioned, "False", reason)
				if told.Message != "do this" {
					t.Errorf("message %q, want the words of the engine", told.Message)
				}
				if status := w.get().Status; status.Reason != reason || status.Message != told.Message {
					t.Errorf("phase %s is explained by %s: %q", status.Phase, status.Reason, status.Message)
				}
				if again := w.reconcile().RequeueAfter; again == 0 || again > 15*time.Second {
					t.Errorf("looks again in %v", again)
				}
				statusOf := w.get().Status
				w.outside.Fail(nil)
				w.pass(15 * time.Second)
				w.settle()
				w.expectWhole()
				if diff := cmp.Diff(statusOf.Conditions, w.get().Status.Conditions); diff == "" {
					t.Error("nothing changed")
				}
			})
		}
	}
}

// A cluster that the engine cannot observe is probed all the same: a dead one does not stay ready.
func TestWhatTheEngineCannotObserveIsProbed(t *testing.T) {
	for reason, err := range map[string]error{
		v1alpha1.ReasonVersionNotAvailable: cluster.ErrVersion,
		v1alpha1.ReasonStateFileMissing:    cluster.ErrStateMissing,
		v1alpha1.ReasonEngineNotAvailable:  cluster.ErrUnavailable,
	} {
		t.Run(reason, func(t *testing.T) {
			w := newWorld(t)
			w.made()
			w.outside.Fail(func(c fake.Call) error {
				if c.Method == "Observe" {
					return fmt.Errorf("%w: do this", err)
				}
				return nil
			})
			w.settle()
			w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable) // it still responds
			w.answer(cluster.Probe{Failing: "connection refused"})
			w.settle()
			w.expect(v1alpha1.ConditionReady, "False", v1alpha1.ReasonProbeFailed)
			w.expect(v1alpha1.ConditionEtcdHealthy, "Unknown", v1alpha1.ReasonNotObserved)
		})
	}
}

func TestUpgradeAndUpdate(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.events()
	w.outside.Hold(func(fake.Call) bool { return true })
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Version = "v1.37.0" })
	w.settle()
	w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonUpdating)
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
	if o := w.get().Status.LastOperation; o.Type != v1alpha1.OperationUpgrade {
		t.Errorf("operation %+v", o)
	}
	w.outside.End(w.get().UID, nil)
	w.answer(cluster.Probe{OK: true, Version: "v1.37.0"})
	w.settle()
	w.expectWhole()
	if got := w.get().Status.Version; got != "v1.37.0" {
		t.Errorf("version %q", got)
	}
	if events := w.events(); !strings.Contains(events, "Normal "+v1alpha1.ReasonUpgraded) || !strings.Contains(events, "v1.36.3") {
		t.Errorf("events:\n%s", events)
	}

	// An API that does not tell its version does not blank what is known.
	w.answer(cluster.Probe{OK: true})
	w.settle()
	if got := w.get().Status.Version; got != "v1.37.0" {
		t.Errorf("version %q", got)
	}

	w.change(func(c *v1alpha1.Cluster) { c.Spec.APIServer = &v1alpha1.APIServer{Port: 12345} })
	w.settle()
	if o := w.get().Status.LastOperation; o.Type != v1alpha1.OperationUpdate {
		t.Errorf("operation %+v", o)
	}
}

func TestPaused(t *testing.T) {
	w := newWorld(t)
	w.made()
	w.outside.Calls()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused, c.Spec.Version = true, "v1.37.0" })
	w.settle()
	w.do(w.client.Delete(t.Context(), w.secret()))
	w.settle()
	w.expect(v1alpha1.ConditionPaused, "True", v1alpha1.ReasonPaused)
	w.expectPhase(v1alpha1.PhaseProvisioned, v1alpha1.ReasonPaused)
	if calls := w.outside.Calls(); len(calls) > 0 || w.secret() != nil {
		t.Errorf("it is paused, and the engine was called: %v, or the Secret is back: %v", calls, w.secret() != nil)
	}
	statusOf := w.get()
	w.events()
	w.delete()
	w.settle()
	w.expect(v1alpha1.ConditionDeleting, "False", v1alpha1.ReasonPaused)
	w.expectPhase(v1alpha1.PhaseDeleting, v1alpha1.ReasonPaused)
	if got := w.events(); !strings.HasPrefix(got, "Warning Paused Waiting for spec.paused to be false since ") {
		t.Errorf("events: %q", got)
	}
	if statusOf.UID != w.get().UID || len(w.outside.Names()) != 1 {
		t.Error("it was deleted")
	}
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Paused = false })
	w.settle()
	w.expectNothing()
}

func TestThePresentKubeconfigIsKept(t *testing.T) {
	foreignSecret := func(w *world) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.name + "-kubeconfig"}, Data: map[string][]byte{"mine": []byte("x")}}
	}
	for _, tt := range []struct {
		name  string
		spoil func(*world)
	}{
		{"the Secret was deleted", func(w *world) { w.do(w.client.Delete(w.Context(), w.secret())) }},
		{"its data was removed", func(w *world) { s := w.secret(); s.Data = nil; w.do(w.client.Update(w.Context(), s)) }},
		{"its data was damaged", func(w *world) { s := w.secret(); s.Data["value"] = []byte("x"); w.do(w.client.Update(w.Context(), s)) }},
		{"its label was removed", func(w *world) { s := w.secret(); s.Labels = nil; w.do(w.client.Update(w.Context(), s)) }},
		{"it is immutable and damaged", func(w *world) {
			s := w.secret()
			yes := true
			s.Data["value"], s.Immutable = []byte("x"), &yes
			w.do(w.client.Update(w.Context(), s))
		}},
		{"it has another type", func(w *world) {
			s := w.secret()
			w.do(w.client.Delete(w.Context(), s))
			s.Type, s.ResourceVersion, s.UID = corev1.SecretTypeOpaque, "", ""
			w.do(w.client.Create(w.Context(), s))
		}},
		{"the Kubeconfig was deleted", func(w *world) { w.do(w.client.Delete(w.Context(), w.kubeconfig())) }},
		{"the Kubeconfig leads elsewhere", func(w *world) {
			k := w.kubeconfig()
			k.Spec.SecretRef.Name = "other"
			w.do(w.client.Update(w.Context(), k))
		}},
		{"the owner of the Kubeconfig was written without a group", func(w *world) {
			k := w.kubeconfig()
			k.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1alpha1", Kind: "Cluster", Name: w.name, UID: w.get().UID}}
			w.do(w.client.Update(w.Context(), k))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.made()
			tt.spoil(w)
			w.settle()
			w.expectWhole()
		})
	}
	t.Run("a Secret of somebody else is left alone", func(t *testing.T) {
		w := newWorld(t)
		w.do(w.client.Create(t.Context(), foreignSecret(w)))
		w.create()
		w.settle()
		w.expect(v1alpha1.ConditionKubeconfigAvailable, "False", v1alpha1.ReasonErrResourceExists)
		w.expect(v1alpha1.ConditionProvisioned, "True", v1alpha1.ReasonApplied)
		if s := w.secret(); string(s.Data["mine"]) != "x" || len(s.Data) != 1 || len(s.OwnerReferences) > 0 {
			t.Errorf("the foreign Secret was changed: %+v", s)
		}
		w.do(w.client.Delete(t.Context(), w.secret()))
		w.settle()
		w.expectWhole()
	})
	t.Run("a foreign Secret stays when the Cluster goes", func(t *testing.T) {
		w := newWorld(t)
		w.do(w.client.Create(t.Context(), foreignSecret(w)))
		w.create()
		w.settle()
		w.delete()
		w.settle()
		if w.get() != nil || w.secret() == nil {
			t.Errorf("the Cluster is there: %v, the foreign Secret is there: %v", w.get() != nil, w.secret() != nil)
		}
	})
}

// What the original controller has stored, which our definition still takes.
func TestOldObjectsAreMigrated(t *testing.T) {
	w := newWorld(t)
	w.create(func(c *v1alpha1.Cluster) {
		c.Spec.LegacyConfigPath = "/etc/keelson/rke/cluster.yml"
		c.Finalizers = []string{v1alpha1.LegacyFinalizer}
	})
	uid := w.get().UID
	w.outside.Change(uid, func(*fake.Cluster) *fake.Cluster {
		return &fake.Cluster{Name: w.name, Kubeconfig: fake.Kubeconfig("https://10.0.0.1:6443"), KubeconfigPath: "/etc/keelson/rke/kube_config_cluster.yml"}
	})
	w.do(w.client.Create(t.Context(), &v1alpha1.Kubeconfig{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1alpha1", Kind: "Cluster", Name: w.name, UID: uid}}},
		Spec:       v1alpha1.KubeconfigSpec{LegacyConfigPath: "/etc/keelson/rke/kube_config_cluster.yml"},
	}))
	w.answer(well())
	w.settle()
	w.expectWhole()
	c, k := w.get(), w.kubeconfig()
	if c.Spec.ConfigPath != "/etc/keelson/rke/cluster.yml" || c.Spec.LegacyConfigPath != "" || !cmp.Equal(c.Finalizers, []string{v1alpha1.Finalizer}) {
		t.Errorf("spec %+v, finalizers %v", c.Spec, c.Finalizers)
	}
	if k.Spec.ConfigPath != "/etc/keelson/rke/kube_config_cluster.yml" || k.Spec.LegacyConfigPath != "" {
		t.Errorf("Kubeconfig %+v", k.Spec)
	}
	if events := w.events(); !strings.Contains(events, v1alpha1.ReasonMigrated) {
		t.Errorf("events:\n%s", events)
	}
}

func TestAnEngineThatTheManagerLacks(t *testing.T) {
	w := newWorld(t)
	w.Engines = nil
	w.create()
	w.settle()
	told := w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonEngineNotAvailable)
	if told.Message != "this manager runs without the engine local" {
		t.Errorf("message %q", told.Message)
	}
	w.delete()
	w.settle()
	w.expect(v1alpha1.ConditionDeleting, "True", v1alpha1.ReasonDeleteFailed)
}
