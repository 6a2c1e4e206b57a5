package disk

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// store is a driver with one disk, whose state the test sets.
type store struct {
	state *backend.DiskState
	calls []string
	err   error
	host  v1alpha1.Host
	// ensured is the last disk that was wanted, refusal the error of EnsureDisk.
	ensured backend.VirtualDisk
	refusal error
}

func (s *store) DiskStore(string) (backend.DiskStore, v1alpha1.Host, error) { return s, s.host, s.err }
func (s *store) WatchDisks(func(backend.DiskIdentity))                      {}
func (s *store) Disks(context.Context) ([]backend.StoredDisk, error)        { return nil, nil }

func (s *store) ObserveDisk(context.Context, backend.DiskIdentity) (backend.DiskState, error) {
	if s.state == nil {
		return backend.DiskState{}, backend.ErrNotFound
	}
	return *s.state, nil
}

func (s *store) EnsureDisk(_ context.Context, disk backend.VirtualDisk) error {
	if s.refusal != nil {
		return s.refusal
	}
	s.ensured = disk
	s.calls = append(s.calls, "ensure "+resource.NewQuantity(disk.SizeBytes, resource.BinarySI).String())
	s.state = &backend.DiskState{Created: true, SizeBytes: disk.SizeBytes, AllocatedBytes: 1}
	return nil
}

func (s *store) DeleteDisk(_ context.Context, _ backend.DiskIdentity, retain bool) error {
	if s.state != nil && s.state.AttachedTo != nil {
		return backend.ErrDiskInUse
	}
	s.calls, s.state = append(s.calls, map[bool]string{true: "retain", false: "delete"}[retain]), nil
	return nil
}

// fixture has a VirtualDisk and a Reconciler that the test calls.
type fixture struct {
	*stories.World[*v1alpha1.VirtualDisk]
	*Reconciler
	store store
}

func newFixture(t *testing.T, spec v1alpha1.VirtualDiskSpec) *fixture {
	t.Helper()
	t.Parallel()
	options := stories.Options{Name: "data", AddToScheme: v1alpha1.AddToScheme, Now: time.Now(), Pause: external.WaitInterval - time.Second}
	f := &fixture{World: stories.New[*v1alpha1.VirtualDisk](t, stories.Server, options), store: store{host: here}}
	f.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.VirtualDisk] {
		f.Reconciler = newReconciler(kube.NewBase(kind, cached, live, f.Recorder, f.Clock), &f.store)
		return f.Reconciler
	}
	f.Restart()
	f.Do(f.Client.Create(t.Context(), &v1alpha1.VirtualDisk{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Key.Name}, Spec: spec}))
	return f
}

func ofSize(size string) v1alpha1.VirtualDiskSpec {
	return v1alpha1.VirtualDiskSpec{Size: ptr.To(resource.MustParse(size))}
}

// expect reconciles until nothing more is written, and checks the reasons of Ready and Deleting.
func (f *fixture) expect(want string) {
	f.Helper()
	f.Settle()
	f.Settle() // the driver has done what it was asked for
	if got := f.Reasons(v1alpha1.ConditionReady, v1alpha1.ConditionDeleting); got != want {
		f.Errorf("got %s, want %s", got, want)
	}
}

func (f *fixture) expectEvents(want ...string) {
	f.Helper()
	if diff := cmp.Diff(want, f.EventReasons()); diff != "" {
		f.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestDiskLife(t *testing.T) {
	f := newFixture(t, ofSize("1Gi"))
	f.expect("DiskAvailable NotDeleting")
	if disk := f.Object(); !slices.Contains(disk.Finalizers, v1alpha1.DiskFinalizer) || disk.Status.Size.String() != "1Gi" || *disk.Status.Host != here || disk.Status.AttachedTo != "" {
		t.Errorf("finalizers: %v, status: %+v", disk.Finalizers, disk.Status)
	}
	f.store.state.AttachedTo = &backend.Identity{Name: "web"}
	f.Change(func(disk *v1alpha1.VirtualDisk) { disk.Spec.Size = ptr.To(resource.MustParse("2Gi")) })
	f.store.refusal = errors.New("no space left")
	if _, err := f.Reconcile(t.Context(), f.Object()); err == nil {
		t.Error("a failure is not retried")
	}
	f.store.refusal = nil
	f.expect("DiskAvailable NotDeleting")
	f.store.state.AttachedTo = &backend.Identity{Name: "web"}
	f.expect("DiskAvailable NotDeleting")
	if disk := f.Object(); disk.Status.AttachedTo != "web" || disk.Status.Size.String() != "2Gi" {
		t.Errorf("status: %+v", disk.Status)
	}
	f.World.Delete()
	f.expect("Terminating InUse")
	if deleting := meta.FindStatusCondition(f.Object().Status.Conditions, v1alpha1.ConditionDeleting); !strings.Contains(deleting.Message, "the machine web") {
		t.Errorf("does not name the machine: %s", deleting.Message)
	}
	f.store.state.AttachedTo = nil
	f.expect("gone")
	if diff := cmp.Diff([]string{"ensure 1Gi", "ensure 2Gi", "delete"}, f.store.calls); diff != "" {
		t.Errorf("calls of the driver (-want +got):\n%s", diff)
	}
	f.expectEvents("Normal DiskAvailable", "Warning GrowFailed", "Normal DiskAvailable", "Warning InUse")
}

// A clone waits until it can be made, and says what it waits for.
func TestCloneWaits(t *testing.T) {
	f := newFixture(t, v1alpha1.VirtualDiskSpec{From: &v1alpha1.VirtualDiskSource{VirtualDisk: "golden"}, DeletePolicy: v1alpha1.DiskRetain})
	f.store.refusal = backend.ErrSourceInUse
	f.expect("SourceInUse NotDeleting")
	f.store.refusal = nil
	f.expect("DiskAvailable NotDeleting")
	if f.store.ensured.From != "golden" || f.store.ensured.Cluster == "" {
		t.Errorf("wanted: %+v", f.store.ensured)
	}
	f.World.Delete()
	f.expect("gone")
	if !slices.Contains(f.store.calls, "retain") {
		t.Errorf("calls: %v", f.store.calls)
	}
}

// The host is recorded before there is a disk, and another host touches nothing, until the user gives up the first one.
func TestDiskIsOnOneHost(t *testing.T) {
	f := newFixture(t, ofSize("1Gi"))
	failing, reached := harness.OnWrite(f.Client, 1, harness.Before, func() error { return errors.New("killed") })
	f.UseClient(failing)
	for range 3 {
		if reached() {
			break
		}
		_, _ = f.Reconcile(t.Context(), f.Object()) // one of them is killed at its second write, that of the status
	}
	if len(f.store.calls) > 0 {
		t.Errorf("calls before the host is recorded: %v", f.store.calls)
	}
	f.Restart()
	f.expect("DiskAvailable NotDeleting")
	f.store.host, f.store.state = v1alpha1.Host{Driver: "qemu", ID: "other", Name: "other"}, nil
	f.expect("OnAnotherHost NotDeleting")
	f.World.Delete()
	f.expect("Terminating Removing")
	f.Change(func(disk *v1alpha1.VirtualDisk) {
		disk.Annotations = map[string]string{v1alpha1.AnnotationForgetHost: here.ID}
	})
	f.expect("gone")
}

// A named image is resolved when the disk is created.
func TestDiskOfNamedImage(t *testing.T) {
	f := newFixture(t, v1alpha1.VirtualDiskSpec{Image: &v1alpha1.VirtualDiskImage{Name: "image-of-a-disk"}})
	f.expect("ImageMissing NotDeleting")
	named := &v1alpha1.VirtualMachineImage{ObjectMeta: metav1.ObjectMeta{Name: "image-of-a-disk"}, Spec: v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{Path: "/a"}}}
	f.Do(f.Client.Create(t.Context(), named))
	f.expect("ImageNotReady NotDeleting")
	named.Status.Conditions = []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Imported", LastTransitionTime: metav1.Now()}}
	f.Do(f.Client.Status().Update(t.Context(), named))
	f.expect("DiskAvailable NotDeleting")
	if f.store.ensured.Image == nil || f.store.ensured.Image.Path != "/a" {
		t.Errorf("wanted: %+v", f.store.ensured.Image)
	}
}

// An object that was deleted meanwhile gets no disk: nobody would remove it.
func TestStaleDiskIsNotCreated(t *testing.T) {
	f := newFixture(t, ofSize("1Gi"))
	f.Change(func(disk *v1alpha1.VirtualDisk) { disk.Finalizers = []string{v1alpha1.DiskFinalizer} })
	stale := f.Object()
	stale.Status.Host = &here
	f.Change(func(disk *v1alpha1.VirtualDisk) { disk.Finalizers = nil })
	f.World.Delete()
	_, err := f.Reconcile(t.Context(), stale)
	if err != nil && client.IgnoreNotFound(err) != nil {
		t.Logf("Reconcile: %v", err)
	}
	if len(f.store.calls) > 0 {
		t.Errorf("calls: %v", f.store.calls)
	}
}
