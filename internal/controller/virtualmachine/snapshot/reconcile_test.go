package snapshot

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	*testing.T
	client   client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	key      client.ObjectKey
	store    store
	*Reconciler
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	f := &fixture{
		T: t, client: harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme)),
		clock: clocktesting.NewFakeClock(time.Now()), recorder: events.NewFakeRecorder(100), key: client.ObjectKey{Namespace: env.Namespace(t), Name: "before"},
	}
	f.Reconciler = newReconciler(kube.NewBase(kind, f.client, f.client, f.recorder, f.clock), &f.store)
	f.do(f.client.Create(t.Context(), &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name}, Spec: v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web"},
	}))
	return f
}

func (f *fixture) do(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// current returns the VirtualMachineSnapshot, nil if it is gone.
func (f *fixture) current() *v1alpha1.VirtualMachineSnapshot {
	f.Helper()
	var s v1alpha1.VirtualMachineSnapshot
	err := f.client.Get(f.Context(), f.key, &s)
	f.do(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return &s
}

// expect reconciles until nothing more is written, and checks the reason of Ready; gone means that there is no object.
func (f *fixture) expect(want string) {
	f.Helper()
	got := "busy"
	for quiet := 0; quiet < 3; quiet++ {
		before := f.current()
		if before == nil {
			got = "gone"
			break
		}
		_, err := f.Reconcile(f.Context(), before.DeepCopy())
		f.do(err)
		f.clock.Step(2 * time.Second)
		after := f.current()
		if after == nil {
			got = "gone"
			break
		}
		if after.ResourceVersion != before.ResourceVersion {
			quiet = -1
		}
		statuscheck.Verify(f, after)
		got = meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionReady).Reason
	}
	if got != want {
		f.Errorf("got %s, want %s", got, want)
	}
}

// machine creates the VirtualMachine, or records its host.
func (f *fixture) machine(host *v1alpha1.Host) {
	f.Helper()
	vm := &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "web"}}
	if host == nil {
		f.do(f.client.Create(f.Context(), vm))
		return
	}
	f.do(f.client.Get(f.Context(), client.ObjectKeyFromObject(vm), vm))
	vm.Status.Host = host
	f.do(f.client.Status().Update(f.Context(), vm))
}

// A snapshot with memory waits until the machine runs, and says how large its memory is. Whether it has memory cannot be changed.
func TestSnapshotWithMemory(t *testing.T) {
	f := newFixture(t)
	s := f.current()
	s.Spec.Memory = true
	if err := f.client.Update(t.Context(), s); !apierrors.IsInvalid(err) {
		t.Errorf("a change of spec.memory: %v", err)
	}
	f.do(f.client.Delete(t.Context(), f.current()))
	f.do(f.client.Create(t.Context(), &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name},
		Spec:       v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web", Memory: true},
	}))
	f.machine(nil)
	f.machine(&here)
	f.store.err = backend.ErrNotRunning
	f.expect(v1alpha1.ReasonMachineNotRunning)
	f.store.err, f.store.calls = nil, nil
	f.expect(v1alpha1.ReasonSnapshotTaken)
	if s := f.current(); !slices.Contains(f.store.calls, "take before of web with its memory") || s.Status.MemorySize == nil || s.Status.MemorySize.String() != "512Ki" {
		t.Errorf("calls: %v, status: %+v", f.store.calls, s.Status)
	}
}

// A snapshot of a schedule with memory is taken of a machine that is off, too, if that has disks.
func TestScheduledSnapshotOfAMachineThatIsOff(t *testing.T) {
	f := newFixture(t)
	f.do(f.client.Delete(t.Context(), f.current()))
	f.do(f.client.Create(t.Context(), &v1alpha1.VirtualMachineSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: f.key.Name, Labels: map[string]string{v1alpha1.LabelScheduledBy: "uid"}},
		Spec:       v1alpha1.VirtualMachineSnapshotSpec{VirtualMachineName: "web", Memory: true},
	}))
	f.machine(nil)
	f.machine(&here)
	f.store.memoryErr, f.store.err = backend.ErrNotRunning, backend.ErrNoDisks
	f.expect(v1alpha1.ReasonMachineNotRunning)
	f.store.err, f.store.calls = nil, nil
	f.expect(v1alpha1.ReasonSnapshotTaken)
	if want := []string{"take before of web with its memory", "take before of web"}; !slices.Equal(f.store.calls, want) || f.current().Status.MemorySize != nil {
		t.Errorf("calls: %v, want %v; status: %+v", f.store.calls, want, f.current().Status)
	}
}

// A snapshot waits for its machine, is taken once, outlives the machine, and is deleted when the driver can.
func TestLifeOfASnapshot(t *testing.T) {
	f := newFixture(t)
	f.expect(v1alpha1.ReasonMachineMissing)
	f.machine(nil)
	f.expect(v1alpha1.ReasonMachineNotCreated)
	if finalizers := f.current().Finalizers; len(finalizers) != 0 || len(f.store.calls) != 0 {
		t.Errorf("before there is a machine: %v, %v", finalizers, f.store.calls)
	}
	f.machine(&here)
	f.store.err = backend.ErrNotCreated
	f.expect(v1alpha1.ReasonMachineNotCreated)
	f.store.err, f.store.calls = nil, nil
	f.expect(v1alpha1.ReasonSnapshotTaken)
	s := f.current()
	if !slices.Contains(s.Finalizers, v1alpha1.SnapshotFinalizer) || s.Status.Host == nil || s.Status.TakenAt == nil || s.Status.Size.String() != "1Mi" || !s.Status.Quiesced {
		t.Errorf("the snapshot is %+v", s)
	}
	f.do(f.client.Delete(t.Context(), &v1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: f.key.Namespace, Name: "web"}}))
	f.expect(v1alpha1.ReasonSnapshotTaken)
	f.store.state = nil
	f.expect(v1alpha1.ReasonSnapshotLost)
	f.store.state = &backend.SnapshotState{Taken: true, TakenAt: s.Status.TakenAt.Time, AllocatedBytes: 1 << 20}
	f.expect(v1alpha1.ReasonSnapshotTaken)

	f.do(f.client.Delete(t.Context(), f.current()))
	f.store.err = backend.ErrInProgress
	f.expect(v1alpha1.ReasonTerminating)
	f.store.err = nil
	f.expect("gone")
	if want := []string{"take before of web"}; !slices.Equal(f.store.calls[:1], want) || slices.Contains(f.store.calls[1:], want[0]) || f.store.state != nil {
		t.Errorf("calls: %v", f.store.calls)
	}
	var told []string
	for len(f.recorder.Events) > 0 {
		told = append(told, strings.Fields(<-f.recorder.Events)[1])
	}
	if want := []string{"MachineMissing", "SnapshotTaken", "SnapshotLost", "SnapshotTaken"}; !slices.Equal(told, want) {
		t.Errorf("events: %v, want %v", told, want)
	}
}

// A stale object in the cache takes no snapshot that nobody would delete.
func TestDeletedSnapshotIsNotTaken(t *testing.T) {
	f := newFixture(t)
	f.machine(nil)
	f.machine(&here)
	stale := f.current()
	_, err := f.Reconcile(t.Context(), stale.DeepCopy())
	f.do(err)
	stale = f.current()
	f.do(f.client.Delete(t.Context(), f.current()))
	f.expect("gone")
	f.store.calls = nil
	_, _ = f.Reconcile(t.Context(), stale.DeepCopy()) // it is retried
	if len(f.store.calls) > 0 {
		t.Errorf("calls: %v", f.store.calls)
	}
}
