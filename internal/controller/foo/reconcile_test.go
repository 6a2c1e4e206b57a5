package foo

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestTwoWritesUntilSteady(t *testing.T) {
	w := newWorld(t)
	w.create()
	if wait := w.ReconcileOnce().RequeueAfter; wait < 2*kube.Holdback {
		t.Errorf("it looks again after %v, though the Deployment will tell", wait)
	}
	if wait := w.ReconcileOnce().RequeueAfter; wait != kube.Holdback {
		t.Errorf("the first status waits %v, not %v", wait, kube.Holdback)
	}
	for range 3 { // what the controller of Deployments reports meanwhile
		w.Pass(kube.Holdback / 10)
		w.ReconcileOnce()
	}
	w.rollOut("web")
	w.Settle()
	if diff := cmp.Diff([]harness.Request{{Verb: "create"}, {Verb: "update", Subresource: "status"}}, w.Wrote()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	w.ExpectReady("True", v1alpha1.ReasonAvailable)
	if events := w.Events(); len(events) > 0 {
		t.Errorf("there are events, each of which is a write: %q", events)
	}
	foo := w.Object()
	if foo.Status.AvailableReplicas != 3 || foo.Status.Selector != selectorText(foo) {
		t.Errorf("status is %s", asJSON(foo.Status))
	}
}

// What holds up a Pod is in Ready long before the progress deadline of the Deployment, and until it is solved.
func TestAPodThatDoesNotBecomeReady(t *testing.T) {
	w := newWorld(t)
	foo := w.create()
	w.Settle()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "web-1", Labels: newSelector(w.Object())},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "nope"}}},
	}
	w.Do(w.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "default"}}))
	w.Do(w.Client.Create(t.Context(), pod))
	report := func(state corev1.ContainerState) {
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", Image: "nope", State: state}}
		w.Do(w.Client.Status().Update(t.Context(), pod))
		w.Pass(podCheckInterval)
		w.Settle()
	}
	report(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ErrImagePull"}})
	w.ExpectReady("False", v1alpha1.ReasonRolloutStuck)
	if message := w.Object().Status.Conditions[0].Message; !strings.Contains(message, `Container "app" of Pod "web-1" waits: ImagePullBackOff`) {
		t.Errorf("the message is %q", message)
	}
	report(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	w.ExpectReady("False", v1alpha1.ReasonProgressing)
	w.rollOut(foo.Spec.DeploymentName)
	w.Settle()
	w.ExpectReady("True", v1alpha1.ReasonAvailable)
	w.Wrote()
	w.Pass(time.Hour)
	if wait := w.ReconcileOnce().RequeueAfter; wait != 0 {
		t.Errorf("an available Deployment is looked at again after %v", wait)
	}
}

func TestLongAStatusThatIsNotUrgentIsWrittenOnceASecond(t *testing.T) {
	w := newWorld(t)
	w.create(func(f *v1alpha1.Foo) { f.Spec.Replicas = ptr.To[int32](1000) })
	w.Settle()
	w.Wrote()
	const steps = 100
	for n := range steps { // 5 seconds in all
		deployment := w.deployment("web")
		deployment.Status = appsv1.DeploymentStatus{
			ObservedGeneration: 1, Replicas: 1000, UpdatedReplicas: 1000, ReadyReplicas: int32(n), AvailableReplicas: int32(n),
		}
		w.Do(w.Client.Status().Update(t.Context(), deployment))
		w.ReconcileOnce()
		w.Pass(5 * kube.Holdback / steps)
	}
	if writes := len(w.Wrote()); writes < 3 || writes > 5 {
		t.Errorf("%d writes of the status in 5 seconds", writes)
	}
}

func TestDriftIsRepaired(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*appsv1.Deployment)
		event  string
	}{
		{"scaled", scaled(5), `Normal DeploymentRepaired Repaired Deployment "web", which had replicas 5 instead of 3`},
		{
			"of a version that did not confine its pods", unconfined,
			`Normal DeploymentRepaired Repaired Deployment "web", which had another security context, a service account token for its pods`,
		},
		{
			"image changed", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "other" },
			`Normal DeploymentRepaired Repaired Deployment "web", which had image "other" instead of "nginx:1.29"`,
		},
		{
			"labels removed", func(d *appsv1.Deployment) { d.Labels = nil },
			`Normal DeploymentRepaired Repaired Deployment "web", which had other labels`,
		},
		{
			"container renamed", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Name = "main" },
			`Normal DeploymentRepaired Repaired Deployment "web", which had no container "foo"`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			foo := w.create()
			w.Settle()
			uid := w.deployment("web").UID
			w.edit("web", test.change)
			w.Wrote()
			w.ReconcileOnce()
			if diff := cmp.Diff([]harness.Request{{Verb: "apply"}}, w.Wrote()); diff != "" {
				t.Errorf("writes (-want +got):\n%s", diff)
			}
			repaired := w.deployment("web")
			if found := differences(foo, repaired); len(found) > 0 || repaired.UID != uid {
				t.Errorf("the Deployment still has %v, or is another one", found)
			}
			if diff := cmp.Diff([]string{test.event}, w.Events()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			w.Settle()
			w.Wrote()
			w.ReconcileOnce()
			if writes := w.Wrote(); len(writes) > 0 {
				t.Errorf("nothing differs, and there are writes: %v", writes)
			}
		})
	}
}

// An edit of the Foo is not reported as a repair of the Deployment.
func TestEditsAreNotRepairs(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	for _, edit := range []struct {
		change func(*v1alpha1.Foo)
		event  string
	}{
		{func(f *v1alpha1.Foo) { f.Spec.Replicas = ptr.To[int32](5) }, `Normal DeploymentScaled Scaled Deployment "web" from 3 to 5 replicas`},
		{func(f *v1alpha1.Foo) { f.Spec.Image = "nginx:1.30" },
			`Normal DeploymentUpdated Updated Deployment "web", which had image "nginx:1.29" instead of "nginx:1.30"`},
	} {
		w.Change(edit.change)
		w.ReconcileOnce()
		if diff := cmp.Diff([]string{edit.event}, w.Events()); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		w.Settle()
	}
}

// A mutating webhook that undoes each repair leaves the Deployment as it was: nothing happened that an event could tell of.
func TestARepairThatIsUndoneIsNoEvent(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.edit("web", unconfined)
	w.UseClient(interceptor.NewClient(w.Client, interceptor.Funcs{
		Apply: func(_ context.Context, _ client.WithWatch, applied runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
			applied.(*appsv1ac.DeploymentApplyConfiguration).WithResourceVersion(w.deployment("web").ResourceVersion)
			return nil
		},
	}))
	w.ReconcileOnce()
	if events := w.Events(); len(events) > 0 {
		t.Errorf("there are events: %q", events)
	}
}

func TestWhatOthersAddStays(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.edit("web", func(d *appsv1.Deployment) {
		d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
		d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: "proxy"})
		d.Spec.RevisionHistoryLimit = ptr.To[int32](3)
		scaled(8)(d)
	})
	w.Settle()
	got := w.deployment("web")
	if *got.Spec.Replicas != 3 {
		t.Errorf("replicas are %d", *got.Spec.Replicas)
	}
	if got.Spec.Template.Annotations == nil || len(got.Spec.Template.Spec.Containers) != 2 || *got.Spec.RevisionHistoryLimit != 3 {
		t.Errorf("what others added is gone: %s", asJSON(got.Spec))
	}
}

func TestASelectorThatDiffersLeadsToANewDeployment(t *testing.T) {
	w := newWorld(t)
	foo := w.create()
	old := ownedBy(foo, func(d *appsv1.Deployment) {
		d.ObjectMeta = metav1.ObjectMeta{Name: d.Name, Namespace: d.Namespace, OwnerReferences: d.OwnerReferences}
		d.Spec.Selector.MatchLabels[labelName] = "foo"
	})
	w.Do(w.Client.Create(t.Context(), old))
	w.Settle()
	got := w.deployment("web")
	if got == nil || got.UID == old.UID || !hasSelector(foo, got) {
		t.Errorf("the Deployment is %s", asJSON(got))
	}
	if diff := cmp.Diff([]string{
		`Normal DeploymentDeleted Deleted Deployment "web": its selector differs, which cannot be changed`,
	}, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestADeletedDeploymentComesBack(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.Events()
	w.Do(w.Client.Delete(t.Context(), w.deployment("web")))
	w.ReconcileOnce()
	if w.deployment("web") == nil {
		t.Error("there is no Deployment")
	}
	if diff := cmp.Diff([]string{`Normal DeploymentCreated Created Deployment "web"`}, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestADeploymentThatIsBeingDeletedIsWaitedFor(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	uid := w.deployment("web").UID
	// Nobody plays the garbage collector, so this takes as long as the test wants.
	w.Do(w.Client.Delete(t.Context(), w.deployment("web"), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	w.Settle()
	if got := w.Ready(); !strings.Contains(got.Message, "is being deleted") {
		t.Errorf("Ready says %q", got.Message)
	}
	w.edit("web", func(d *appsv1.Deployment) { d.Finalizers = nil })
	w.Settle()
	if got := w.deployment("web"); got == nil || got.UID == uid {
		t.Error("there is no new Deployment")
	}
}

func TestSpecChangesReachTheDeployment(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.Change(func(f *v1alpha1.Foo) { f.Spec.Replicas, f.Spec.Image = ptr.To[int32](0), "nginx:1.30" })
	w.Settle()
	got := w.deployment("web")
	if *got.Spec.Replicas != 0 || containerOf(&got.Spec.Template.Spec).Image != "nginx:1.30" {
		t.Errorf("the Deployment is %s", asJSON(got.Spec))
	}
	w.rollOut("web")
	w.Settle()
	w.ExpectReady("True", v1alpha1.ReasonAvailable)
}

func TestRename(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.Change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
	w.Wrote()
	w.Settle()
	w.ExpectReady("False", v1alpha1.ReasonProgressing)
	if diff := cmp.Diff([]string{"web", "web2"}, w.names()); diff != "" {
		t.Errorf("the old Deployment serves until the new one is available (-want +got):\n%s", diff)
	}
	w.rollOut("web2")
	w.Settle()
	if diff := cmp.Diff([]string{"web2"}, w.names()); diff != "" {
		t.Errorf("Deployments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		`Normal DeploymentCreated Created Deployment "web2"`,
		`Normal DeploymentDeleted Deleted Deployment "web": the Foo asks for "web2"`,
	}, w.Events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.ExpectReady("True", v1alpha1.ReasonAvailable)
}

func TestRenameToATakenName(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	foreign := w.foreign("web2")
	w.Change(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
	w.Settle()
	w.ExpectReady("False", v1alpha1.ReasonErrResourceExists)
	if diff := cmp.Diff([]string{"web", "web2"}, w.names()); diff != "" {
		t.Errorf("the old Deployment serves until there is a new one (-want +got):\n%s", diff)
	}
	w.Do(w.Client.Delete(t.Context(), foreign))
	w.Settle()
	w.rollOut("web2")
	w.Settle()
	if diff := cmp.Diff([]string{"web2"}, w.names()); diff != "" {
		t.Errorf("Deployments (-want +got):\n%s", diff)
	}
}

func TestTwoFoosOfOneDeploymentName(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	uid := w.deployment("web").UID
	second := w.create(func(f *v1alpha1.Foo) { f.Name = "stall" })
	if _, err := w.Reconcile(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	w.Do(w.Client.Get(t.Context(), client.ObjectKeyFromObject(second), second))
	if got := second.Status.Conditions[0].Reason; got != v1alpha1.ReasonErrResourceExists {
		t.Errorf("Ready of the second Foo has reason %s", got)
	}
	if got := w.deployment("web").UID; got != uid {
		t.Error("the Deployment of the first Foo was replaced")
	}
}

func TestADeletedFooDoesNothing(t *testing.T) {
	w := newWorld(t)
	w.create(func(f *v1alpha1.Foo) {})
	w.Change(func(f *v1alpha1.Foo) { f.Finalizers = []string{"example.com/wait"} })
	w.Do(w.Client.Delete(t.Context(), w.Object()))
	w.Settle()
	if writes := w.Wrote(); len(writes) > 0 {
		t.Errorf("writes for a Foo that is being deleted: %v", writes)
	}
	w.Change(func(f *v1alpha1.Foo) { f.Finalizers = nil })
}

func TestARejectedDeploymentIsTriedAgainSlowly(t *testing.T) {
	w := newWorld(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "few"}}
	quota.Spec.Hard = corev1.ResourceList{"count/deployments.apps": *ptr.To(resource.MustParse("0"))}
	w.Do(w.Client.Create(t.Context(), quota))
	quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
	w.Do(w.Client.Status().Update(t.Context(), quota))
	w.create()
	var pauses []float64
	for range 7 {
		pause := w.ReconcileOnce().RequeueAfter
		pauses = append(pauses, pause.Seconds())
		w.Pass(pause)
	}
	if diff := cmp.Diff([]float64{10, 10, 20, 40, 80, 160, 300}, pauses); diff != "" {
		t.Errorf("pauses in seconds (-want +got):\n%s", diff)
	}
	w.ExpectReady("False", v1alpha1.ReasonDeploymentRejected)
	if message := w.Ready().Message; !strings.Contains(message, "exceeded quota: few") {
		t.Errorf("Ready does not say why: %q", message)
	}
	if events := w.Events(); len(events) != 1 || !strings.HasPrefix(events[0], "Warning DeploymentRejected") {
		t.Errorf("events are %q", events)
	}
	w.Do(w.Client.Delete(t.Context(), quota))
	w.Settle()
	w.ExpectReady("False", v1alpha1.ReasonProgressing)
}

// The fields that the controller owns are exactly those of newDeployment, so that
// everybody else can have the others.
func TestOwnedFields(t *testing.T) {
	w := newWorld(t)
	w.create()
	w.Settle()
	w.edit("web", scaled(4))
	w.Settle()
	owners := sets.New[string]()
	for _, entry := range w.deployment("web").ManagedFields {
		if strings.Contains(entry.FieldsV1.GetRawString(), "f:replicas") && entry.Subresource == "" {
			owners.Insert(entry.Manager + " by " + string(entry.Operation))
		}
	}
	if diff := cmp.Diff([]string{"keelson by Apply"}, sets.List(owners)); diff != "" {
		t.Errorf("owners of replicas (-want +got):\n%s", diff)
	}
}
