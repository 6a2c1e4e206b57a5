package image

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// store is a driver with one image, whose state the test sets.
type store struct {
	state *backend.ImageState
	calls []string
	err   error
}

func (s *store) ImageStore() (backend.ImageStore, v1alpha1.Host, error) { return s, here, s.err }
func (s *store) WatchImages(func(string))                               {}

func (s *store) ObserveImage(context.Context, backend.ImageIdentity) (backend.ImageState, error) {
	if s.state == nil {
		return backend.ImageState{}, backend.ErrNotFound
	}
	return *s.state, nil
}

func (s *store) ImportImage(context.Context, backend.ImageIdentity, v1alpha1.VirtualMachineImageSpec) error {
	s.calls, s.state = append(s.calls, "import"), &backend.ImageState{}
	return nil
}

func (s *store) ReleaseImage(context.Context, backend.ImageIdentity) error {
	s.calls, s.state = append(s.calls, "release"), nil
	return nil
}

// fixture has a VirtualMachineImage and a Reconciler that the test calls.
type fixture struct {
	*stories.World[*v1alpha1.VirtualMachineImage]
	*Reconciler
	store store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	options := stories.Options{Name: strings.ToLower(t.Name()), AddToScheme: v1alpha1.AddToScheme, Indexes: Indexes, Now: time.Now()}
	f := &fixture{World: stories.New[*v1alpha1.VirtualMachineImage](t, stories.Server, options)}
	f.Key.Namespace = ""
	f.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.VirtualMachineImage] {
		f.Reconciler = &Reconciler{kube.NewBase(kind, cached, live, f.Recorder, f.Clock), &f.store}
		return f.Reconciler
	}
	f.Restart()
	image := &v1alpha1.VirtualMachineImage{
		ObjectMeta: metav1.ObjectMeta{Name: f.Key.Name},
		Spec:       v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{URL: "http://example.com/image", Sha256: strings.Repeat("0", 64)}},
	}
	f.Do(f.Client.Create(t.Context(), image))
	return f
}

// expect reconciles until nothing more is written, and checks the reasons of Ready and Deleting.
func (f *fixture) expect(want string) {
	f.Helper()
	f.Settle()
	if got := f.Reasons(v1alpha1.ConditionReady, v1alpha1.ConditionDeleting); got != want {
		f.Errorf("got %s, want %s", got, want)
	}
}

func TestImageLife(t *testing.T) {
	f := newFixture(t)
	f.expect("Importing NotDeleting")
	if image := f.Object(); !slices.Contains(image.Finalizers, v1alpha1.ImageFinalizer) {
		t.Errorf("finalizers: %v", image.Finalizers)
	}
	f.store.state = &backend.ImageState{Failure: errors.New("no route to host"), FailedAt: f.Clock.Now()}
	f.expect("ImportFailed NotDeleting")
	f.Clock.Step(time.Hour)
	f.expect("Importing NotDeleting")
	f.store.state = &backend.ImageState{Ready: true, Format: "qcow2", AllocatedBytes: 1 << 20, VirtualBytes: 2 << 20}
	f.expect("Imported NotDeleting")

	machine := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "user"},
		Spec:       v1alpha1.VirtualMachineSpec{Image: &v1alpha1.Image{Name: f.Key.Name}},
	}
	f.Do(f.Client.Create(t.Context(), machine))
	f.expect("Imported NotDeleting")
	if got := f.Object().Status; got.Users != 1 || got.Format != "qcow2" || got.Size.String() != "1Mi" || *got.Host != here {
		t.Errorf("status: %+v", got)
	}

	f.World.Delete()
	f.expect("Terminating InUse")
	if deleting := meta.FindStatusCondition(f.Object().Status.Conditions, v1alpha1.ConditionDeleting); !strings.Contains(deleting.Message, machine.Namespace+"/user") {
		t.Errorf("does not name the user: %s", deleting.Message)
	}
	f.Do(f.Client.Delete(t.Context(), machine))
	f.expect("gone")
	if diff := cmp.Diff([]string{"import", "import", "release"}, f.store.calls); diff != "" {
		t.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Warning ImportFailed", "Normal Imported", "Warning InUse"}, f.EventReasons()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The object stays until the driver has removed the image, also if the manager is killed in between.
func TestImageIsReleasedBeforeItsObjectIsGone(t *testing.T) {
	f := newFixture(t)
	f.store.state = &backend.ImageState{Ready: true}
	f.expect("Imported NotDeleting")
	f.World.Delete()
	failing, reached := harness.OnWrite(f.Client, 0, harness.Before, func() error { return errors.New("killed") })
	f.UseClient(failing)
	if _, err := f.Reconcile(t.Context(), f.Object()); err == nil || !reached() {
		t.Fatalf("the write did not fail: %v", err)
	}
	if f.IsGone() {
		t.Fatal("the object is gone")
	}
	f.Restart()
	f.expect("gone")
	if diff := cmp.Diff([]string{"release", "release"}, f.store.calls); diff != "" {
		t.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
}
