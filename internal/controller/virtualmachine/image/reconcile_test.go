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
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
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
	*testing.T
	client   client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	name     string
	store    store
	*Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	f := &fixture{
		T: t, client: harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme), Indexes...),
		clock: clocktesting.NewFakeClock(time.Now()), recorder: events.NewFakeRecorder(100), name: strings.ToLower(t.Name()),
	}
	f.Reconciler = &Reconciler{kube.NewBase(kind, f.client, f.client, f.recorder, f.clock), &f.store}
	image := &v1alpha1.VirtualMachineImage{
		ObjectMeta: metav1.ObjectMeta{Name: f.name},
		Spec:       v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{URL: "http://example.com/image", Sha256: strings.Repeat("0", 64)}},
	}
	f.do(f.client.Create(t.Context(), image))
	return f
}

// image returns the VirtualMachineImage, nil if it is gone.
func (f *fixture) image() *v1alpha1.VirtualMachineImage {
	f.Helper()
	var image v1alpha1.VirtualMachineImage
	err := f.client.Get(f.Context(), client.ObjectKey{Name: f.name}, &image)
	f.do(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return &image
}

// reconcile reconciles until nothing more is written, and returns Ready and Deleting.
func (f *fixture) reconcile() string {
	f.Helper()
	for range 20 {
		before := f.image()
		if before == nil {
			return "gone"
		}
		_, err := f.Reconcile(f.Context(), before.DeepCopy())
		f.do(err)
		after := f.image()
		f.clock.Step(2 * time.Second)
		if after != nil && after.ResourceVersion == before.ResourceVersion && f.isStable() {
			statuscheck.Verify(f, after)
			return reasonOf(after, v1alpha1.ConditionReady) + " " + reasonOf(after, v1alpha1.ConditionDeleting)
		}
	}
	f.Fatal("still busy after 20 reconciles")
	return ""
}

// isStable reports whether one more reconcile would write nothing either: it may have delayed a status.
func (f *fixture) isStable() bool {
	f.Helper()
	before := f.image()
	_, err := f.Reconcile(f.Context(), before.DeepCopy())
	f.do(err)
	after := f.image()
	return after != nil && after.ResourceVersion == before.ResourceVersion
}

func reasonOf(image *v1alpha1.VirtualMachineImage, name string) string {
	if c := meta.FindStatusCondition(image.Status.Conditions, name); c != nil {
		return c.Reason
	}
	return ""
}

func (f *fixture) expect(want string) {
	f.Helper()
	if got := f.reconcile(); got != want {
		f.Errorf("got %s, want %s", got, want)
	}
}

func (f *fixture) do(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// events returns the types and reasons of the events.
func (f *fixture) events() []string {
	var all []string
	for _, event := range harness.Events(f.recorder) {
		all = append(all, strings.Join(strings.Fields(event)[:2], " "))
	}
	return all
}

func TestImageLife(t *testing.T) {
	f := newFixture(t)
	f.expect("Importing NotDeleting")
	if image := f.image(); !slices.Contains(image.Finalizers, v1alpha1.ImageFinalizer) {
		t.Errorf("finalizers: %v", image.Finalizers)
	}
	f.store.state = &backend.ImageState{Failure: errors.New("no route to host"), FailedAt: f.clock.Now()}
	f.expect("ImportFailed NotDeleting")
	f.clock.Step(time.Hour)
	f.expect("Importing NotDeleting")
	f.store.state = &backend.ImageState{Ready: true, Format: "qcow2", AllocatedBytes: 1 << 20, VirtualBytes: 2 << 20}
	f.expect("Imported NotDeleting")

	machine := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "user"},
		Spec:       v1alpha1.VirtualMachineSpec{Image: &v1alpha1.Image{Name: f.name}},
	}
	f.do(f.client.Create(t.Context(), machine))
	f.expect("Imported NotDeleting")
	if got := f.image().Status; got.Users != 1 || got.Format != "qcow2" || got.Size.String() != "1Mi" || *got.Host != here {
		t.Errorf("status: %+v", got)
	}

	f.do(f.client.Delete(t.Context(), f.image()))
	f.expect("Terminating InUse")
	if deleting := meta.FindStatusCondition(f.image().Status.Conditions, v1alpha1.ConditionDeleting); !strings.Contains(deleting.Message, machine.Namespace+"/user") {
		t.Errorf("does not name the user: %s", deleting.Message)
	}
	f.do(f.client.Delete(t.Context(), machine))
	f.expect("gone")
	if diff := cmp.Diff([]string{"import", "import", "release"}, f.store.calls); diff != "" {
		t.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"Warning ImportFailed", "Normal Imported", "Warning InUse"}, f.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// The object stays until the driver has removed the image, also if the manager is killed in between.
func TestImageIsReleasedBeforeItsObjectIsGone(t *testing.T) {
	f := newFixture(t)
	f.store.state = &backend.ImageState{Ready: true}
	f.expect("Imported NotDeleting")
	f.do(f.client.Delete(t.Context(), f.image()))
	failing, reached := harness.OnWrite(f.client, 0, harness.Before, func() error { return errors.New("killed") })
	f.Reconciler = &Reconciler{kube.NewBase(kind, failing, f.client, f.recorder, f.clock), &f.store}
	if _, err := f.Reconcile(t.Context(), f.image()); err == nil || !reached() {
		t.Fatalf("the write did not fail: %v", err)
	}
	if f.image() == nil {
		t.Fatal("the object is gone")
	}
	f.Reconciler = &Reconciler{kube.NewBase(kind, f.client, f.client, f.recorder, f.clock), &f.store}
	f.expect("gone")
	if diff := cmp.Diff([]string{"release", "release"}, f.store.calls); diff != "" {
		t.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
}
