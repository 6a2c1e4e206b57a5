package virtualmachine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/image"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func named(name string) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Spec.Image = &v1alpha1.Image{Name: name} }
}

// image creates a VirtualMachineImage with a name that is unique in the API server.
func (w *fixture) image(name string) *v1alpha1.VirtualMachineImage {
	w.Helper()
	agent := false
	image := &v1alpha1.VirtualMachineImage{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{URL: "https://example.com/it", Sha256: strings.Repeat("0", 64)}, Agent: &agent},
	}
	w.Do(w.Client.Create(w.Context(), image))
	return image
}

// setReady sets Ready of an image, as its controller does.
func (w *fixture) setReady(image *v1alpha1.VirtualMachineImage, status metav1.ConditionStatus, reason, driver string) {
	w.Helper()
	image.Status.Host = &v1alpha1.Host{Driver: driver, ID: "1"}
	image.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: "It says so", LastTransitionTime: metav1.Now(),
	}}
	w.Do(w.Client.Status().Update(w.Context(), image))
}

// The tiny image is the default guest: the driver gets none.
func TestTinyIsTheDefaultGuest(t *testing.T) {
	for _, vm := range []*v1alpha1.VirtualMachine{newVM(), newVM(named(v1alpha1.ImageTiny))} {
		if got := newMachine(vm, backend.Identity{}).Image; got != nil {
			t.Errorf("image: %+v", got)
		}
	}
}

func TestMachineWaitsForItsImage(t *testing.T) {
	w := newFixture(t)
	name := w.Namespace + "-it"
	w.create(named(name))
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, metav1.ConditionFalse, v1alpha1.ReasonImageMissing)
	if got := w.Object(); !strings.Contains(got.Status.Reason, name) || len(got.Finalizers) > 0 {
		t.Errorf("finalizers %v, reason %s", got.Finalizers, got.Status.Reason)
	}
	image := w.image(name)
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseCreating, metav1.ConditionFalse, v1alpha1.ReasonImageNotReady)
	w.setReady(image, metav1.ConditionFalse, v1alpha1.ReasonImportFailed, fake.Name)
	w.reconcileUntilStable()
	if got := w.Object().Status.Reason; !strings.Contains(got, "ImportFailed: It says so") {
		t.Errorf("the reason of the image is missing: %s", got)
	}
	w.setReady(image, metav1.ConditionTrue, v1alpha1.ReasonImported, "other")
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseFailed, metav1.ConditionFalse, v1alpha1.ReasonInvalidSpec)
	w.expectCalls()
	w.setReady(image, metav1.ConditionTrue, v1alpha1.ReasonImported, fake.Name)
	w.reconcileUntilStable()
	// The image has no agent, so it is ready at once.
	w.expect(v1alpha1.PhaseActive, metav1.ConditionTrue, v1alpha1.ReasonRunning)
	w.expectCalls("Create", "Start")
	if diff := cmp.Diff([]string{"Warning ImageMissing", "Warning InvalidSpec"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}

	// A machine that exists does not depend on the object.
	w.Do(w.Client.Delete(t.Context(), image))
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Action = v1alpha1.ActionStopped })
	w.reconcileUntilStable()
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Action = v1alpha1.ActionActive })
	w.reconcileUntilStable()
	w.expect(v1alpha1.PhaseActive, metav1.ConditionTrue, v1alpha1.ReasonRunning)
}

// An image that changes wakes up only the machines that wait for it. (internal/manager tests the whole.)
func TestImageWakesMachinesThatWait(t *testing.T) {
	w := newFixture(t)
	name := w.Namespace + "-it"
	w.create(named(name))
	w.reconcileUntilStable()
	indexed := harness.Client(t, env.Config(t), w.Client.Scheme(), image.Indexes...)
	wakes := func(name string) int {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer queue.ShutDown()
		object := &v1alpha1.VirtualMachineImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
		watchImages(indexed).Create(t.Context(), event.CreateEvent{Object: object}, queue)
		return queue.Len()
	}
	if got := wakes(name); got != 1 {
		t.Errorf("%d machines, want that which waits", got)
	}
	if got := wakes("other"); got != 0 {
		t.Errorf("%d machines wait for another image", got)
	}
	w.setReady(w.image(name), metav1.ConditionTrue, v1alpha1.ReasonImported, fake.Name)
	w.reconcileUntilStable()
	if got := wakes(name); got != 0 {
		t.Errorf("%d machines, but it runs", got)
	}
}
