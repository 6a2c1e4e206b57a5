package snapshot

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/external"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// store is a driver with one snapshot.
type store struct {
	state *backend.SnapshotState
	calls []string
	err   error // of TakeSnapshot and DeleteSnapshot
	// memoryErr is that of TakeSnapshot with memory.
	memoryErr error
}

func (s *store) SnapshotStore(string) (backend.SnapshotStore, v1alpha1.Host, error) {
	return s, here, nil
}
func (s *store) WatchSnapshots(func(backend.SnapshotIdentity)) {}

func (s *store) ObserveSnapshot(context.Context, backend.SnapshotIdentity) (backend.SnapshotState, error) {
	if s.state == nil {
		return backend.SnapshotState{}, backend.ErrNotFound
	}
	return *s.state, nil
}

func (s *store) TakeSnapshot(_ context.Context, id backend.SnapshotIdentity, of backend.Source) error {
	call, err := "take "+id.Name+" of "+of.Server.Name, s.err
	if of.Memory {
		call += " with its memory"
		err = cmp.Or(s.memoryErr, err)
	}
	s.calls = append(s.calls, call)
	if err != nil {
		return err
	}
	s.state = &backend.SnapshotState{Taken: true, TakenAt: time.Now(), AllocatedBytes: 1 << 20, Quiesced: !of.Memory}
	if of.Memory {
		s.state.MemoryBytes = 1 << 19
	}
	return nil
}

func (s *store) RestoreServer(context.Context, backend.Identity, backend.Restore) error { return nil }

func (s *store) DeleteSnapshot(context.Context, backend.SnapshotIdentity) error {
	s.calls = append(s.calls, "delete")
	if s.err == nil {
		s.state = nil
	}
	return s.err
}

// fixture has a VirtualMachineSnapshot and a Reconciler that the test calls.
type fixture struct {
	*stories.World[*v1alpha1.VirtualMachineSnapshot]
	*Reconciler
	store store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	options := stories.Options{Name: "before", AddToScheme: v1alpha1.AddToScheme, Now: time.Now(), Pause: external.WaitInterval - time.Second}
	f := &fixture{World: stories.New[*v1alpha1.VirtualMachineSnapshot](t, stories.Server, options)}
	f.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.VirtualMachineSnapshot] {
		f.Reconciler = newReconciler(kube.NewBase(kind, cached, live, f.Recorder, f.Clock), &f.store)
		return f.Reconciler
	}
	f.Restart()
	f.create(v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web"}, nil)
	return f
}

// create creates the VirtualMachineSnapshot.
func (f *fixture) create(spec v1alpha1.VirtualMachineSnapshotSpec, labels map[string]string) {
	f.Helper()
	f.Do(f.Client.Create(f.Context(), &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Key.Name, Labels: labels}, Spec: spec,
	}))
}

// expect reconciles until nothing more is written, and checks the reason of Ready; gone means that there is no object.
func (f *fixture) expect(want string) {
	f.Helper()
	f.Settle()
	if got := f.Reasons(v1alpha1.ConditionReady); got != want {
		f.Errorf("got %s, want %s", got, want)
	}
}

// machine creates the VirtualMachine, or records its host.
func (f *fixture) machine(host *v1alpha1.Host) {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.Key.Namespace, Name: "web"}}
	if host == nil {
		f.Do(f.Client.Create(f.Context(), vm))
		return
	}
	f.Do(f.Client.Get(f.Context(), client.ObjectKeyFromObject(vm), vm))
	vm.Status.Host = host
	f.Do(f.Client.Status().Update(f.Context(), vm))
}

// A snapshot with memory waits until the machine runs, and says how large its memory is. Whether it has memory cannot be changed.
func TestSnapshotWithMemory(t *testing.T) {
	f := newFixture(t)
	s := f.Object()
	s.Spec.Memory = true
	if err := f.Client.Update(t.Context(), s); !apierrors.IsInvalid(err) {
		t.Errorf("a change of spec.memory: %v", err)
	}
	f.World.Delete()
	f.create(v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web", Memory: true}, nil)
	f.machine(nil)
	f.machine(&here)
	f.store.err = backend.ErrNotRunning
	f.expect(v1alpha1.ReasonMachineNotRunning)
	f.store.err, f.store.calls = nil, nil
	f.expect(v1alpha1.ReasonSnapshotTaken)
	if s := f.Object(); !slices.Contains(f.store.calls, "take before of web with its memory") || s.Status.MemorySize == nil || s.Status.MemorySize.String() != "512Ki" {
		t.Errorf("calls: %v, status: %+v", f.store.calls, s.Status)
	}
}

// A snapshot of a schedule with memory is taken of a machine that is off, too, if that has disks.
func TestScheduledSnapshotOfAMachineThatIsOff(t *testing.T) {
	f := newFixture(t)
	f.World.Delete()
	f.create(v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web", Memory: true}, map[string]string{v1alpha1.LabelScheduledBy: "uid"})
	f.machine(nil)
	f.machine(&here)
	f.store.memoryErr, f.store.err = backend.ErrNotRunning, backend.ErrNoDisks
	f.expect(v1alpha1.ReasonMachineNotRunning)
	f.store.err, f.store.calls = nil, nil
	f.expect(v1alpha1.ReasonSnapshotTaken)
	if want := []string{"take before of web with its memory", "take before of web"}; !slices.Equal(f.store.calls, want) || f.Object().Status.MemorySize != nil {
		t.Errorf("calls: %v, want %v; status: %+v", f.store.calls, want, f.Object().Status)
	}
}

// A snapshot waits for its machine, is taken once, outlives the machine, and is deleted when the driver can.
func TestLifeOfASnapshot(t *testing.T) {
	f := newFixture(t)
	f.expect(v1alpha1.ReasonMachineMissing)
	f.machine(nil)
	f.expect(v1alpha1.ReasonMachineNotCreated)
	if finalizers := f.Object().Finalizers; len(finalizers) != 0 || len(f.store.calls) != 0 {
		t.Errorf("before there is a machine: %v, %v", finalizers, f.store.calls)
	}
	f.machine(&here)
	f.store.err = backend.ErrNotCreated
	f.expect(v1alpha1.ReasonMachineNotCreated)
	f.store.err, f.store.calls = nil, nil
	f.expect(v1alpha1.ReasonSnapshotTaken)
	s := f.Object()
	if !slices.Contains(s.Finalizers, v1alpha1.SnapshotFinalizer) || s.Status.Host == nil || s.Status.TakenAt == nil || s.Status.Size.String() != "1Mi" || !s.Status.Quiesced {
		t.Errorf("the snapshot is %+v", s)
	}
	f.Do(f.Client.Delete(t.Context(), &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.Key.Namespace, Name: "web"}}))
	f.expect(v1alpha1.ReasonSnapshotTaken)
	f.store.state = nil
	f.expect(v1alpha1.ReasonSnapshotLost)
	f.store.state = &backend.SnapshotState{Taken: true, TakenAt: s.Status.TakenAt.Time, AllocatedBytes: 1 << 20}
	f.expect(v1alpha1.ReasonSnapshotTaken)

	f.World.Delete()
	f.store.err = backend.ErrInProgress
	f.expect(v1alpha1.ReasonTerminating)
	f.store.err = nil
	f.expect("gone")
	if want := []string{"take before of web"}; !slices.Equal(f.store.calls[:1], want) || slices.Contains(f.store.calls[1:], want[0]) || f.store.state != nil {
		t.Errorf("calls: %v", f.store.calls)
	}
	if told, want := f.EventReasons(), []string{"Warning MachineMissing", "Normal SnapshotTaken", "Warning SnapshotLost", "Normal SnapshotTaken"}; !slices.Equal(told, want) {
		t.Errorf("events: %v, want %v", told, want)
	}
}

// A stale object in the cache takes no snapshot that nobody would delete.
func TestDeletedSnapshotIsNotTaken(t *testing.T) {
	f := newFixture(t)
	f.machine(nil)
	f.machine(&here)
	stale := f.Object()
	_, err := f.Reconcile(t.Context(), stale.DeepCopy())
	f.Do(err)
	stale = f.Object()
	f.World.Delete()
	f.expect("gone")
	f.store.calls = nil
	_, _ = f.Reconcile(t.Context(), stale.DeepCopy()) // it is retried
	if len(f.store.calls) > 0 {
		t.Errorf("calls: %v", f.store.calls)
	}
}
