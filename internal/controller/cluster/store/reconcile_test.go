package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/objectstore"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMain(m *testing.M) { env.Main(m) }

const content = "all objects of the cluster"

// host has the files of snapshots in a directory.
type host struct{ dir string }

func (h host) path(uid types.UID) string { return filepath.Join(h.dir, string(uid)) }

func (h host) OpenSnapshot(uid types.UID) ([]byte, *os.File, error) {
	data, err := os.Open(h.path(uid))
	if os.IsNotExist(err) {
		return nil, nil, nil
	}
	return []byte(`{"cluster":"demo"}`), data, err
}

func (h host) AddSnapshot(uid types.UID, _ []byte, write func(io.Writer) error) error {
	var all strings.Builder
	if err := write(&all); err != nil {
		return err
	}
	return os.WriteFile(h.path(uid), []byte(all.String()), 0o600)
}

func (h host) RemoveSnapshot(uid types.UID) error {
	if err := os.Remove(h.path(uid)); !os.IsNotExist(err) {
		return err
	}
	return nil
}

// fixture has a Reconciler that the test calls, and a store in a directory.
type fixture struct {
	*testing.T
	*Reconciler
	client   client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	name     string // of the first snapshot and of the Cluster
	host     host
	root     string // of the store
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	t.Parallel()
	f := &fixture{
		T: t, client: harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme)), name: env.Namespace(t),
		clock: clocktesting.NewFakeClock(time.Now()), recorder: events.NewFakeRecorder(100), host: host{t.TempDir()}, root: t.TempDir(),
	}
	f.restart(f.root)
	return f
}

func (f *fixture) do(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// restart makes a new Reconciler with the store in a directory; none if it is empty.
func (f *fixture) restart(root string) {
	f.Helper()
	var store objectstore.Store
	if root != "" {
		var err error
		store, err = objectstore.Options{Location: root}.Open()
		f.do(err)
	}
	f.Reconciler = NewReconciler(f.client, f.client, f.host, store, f.recorder, f.clock)
}

// create creates a ClusterSnapshot. One without a named copy is taken.
func (f *fixture) create(name, stored string) *v1alpha1.ClusterSnapshot {
	f.Helper()
	s := &v1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: f.name, Stored: stored}}
	f.do(f.client.Create(f.Context(), s))
	if stored == "" {
		f.take(s)
	}
	return s
}

// take does what the controller of ClusterSnapshots does.
func (f *fixture) take(s *v1alpha1.ClusterSnapshot) {
	f.Helper()
	f.do(os.WriteFile(f.host.path(s.UID), []byte(content), 0o600))
	s.Status.TakenAt = &metav1.Time{Time: f.clock.Now().Truncate(time.Second)}
	f.do(f.client.Status().Update(f.Context(), s))
}

// get returns the ClusterSnapshot, nil if it is gone.
func (f *fixture) get(name string) *v1alpha1.ClusterSnapshot {
	f.Helper()
	var s v1alpha1.ClusterSnapshot
	err := f.client.Get(f.Context(), client.ObjectKey{Name: name}, &s)
	f.do(client.IgnoreNotFound(err))
	if err != nil {
		return nil
	}
	return &s
}

// expect reconciles until nothing more is written, and checks the reason of Stored; "gone" if there is none. It returns the message.
func (f *fixture) expect(name, want string) string {
	f.Helper()
	for quiet := 0; quiet < 3; quiet++ {
		before := f.get(name)
		if before == nil {
			if want != "gone" {
				f.Fatalf("it is gone, want %s", want)
			}
			return ""
		}
		_, err := f.Reconcile(f.Context(), before.DeepCopy())
		f.do(err)
		f.clock.Step(2 * time.Second)
		if after := f.get(name); after == nil || after.ResourceVersion != before.ResourceVersion {
			quiet = -1
		}
	}
	s := f.get(name)
	is := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.ConditionStored)
	if is == nil || is.Reason != want || is.ObservedGeneration != s.Generation || is.Message == "" {
		f.Fatalf("got %+v, want %s", is, want)
	}
	return is.Message
}

// copies returns the names of the files in the store.
func (f *fixture) copies() []string {
	f.Helper()
	names := []string{}
	f.do(filepath.WalkDir(f.root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, filepath.Base(path))
		}
		return err
	}))
	return names
}

// A snapshot is copied once, read back where its files are missing, also under another name, and takes its copy along.
func TestLifeOfACopy(t *testing.T) {
	f := newFixture(t)
	f.create(f.name, "")
	f.expect(f.name, v1alpha1.ReasonStored)
	s := f.get(f.name)
	if want := filepath.Join(f.root, f.name, f.name+"-"+string(s.UID)); s.Status.Location != want || !slices.Contains(s.Finalizers, v1alpha1.StoreFinalizer) {
		t.Errorf("location: %s, want %s; finalizers %v", s.Status.Location, want, s.Finalizers)
	}
	if got := f.copies(); !slices.Equal(got, []string{dataObject, recordObject}) {
		t.Errorf("the store has %v", got)
	}

	f.do(f.host.RemoveSnapshot(s.UID)) // a lost disk
	f.expect(f.name, v1alpha1.ReasonStored)
	if got, err := os.ReadFile(f.host.path(s.UID)); err != nil || string(got) != content {
		t.Errorf("read from the store: %q, %v", got, err)
	}

	other := f.create(f.name+"-new", filepath.Base(s.Status.Location))
	f.expect(other.Name, v1alpha1.ReasonStored)
	if got, err := os.ReadFile(f.host.path(other.UID)); err != nil || string(got) != content {
		t.Errorf("read by another ClusterSnapshot: %q, %v", got, err)
	}
	f.do(f.client.Delete(t.Context(), other))
	f.expect(other.Name, "gone")
	if got := f.copies(); len(got) != 2 {
		t.Errorf("the other ClusterSnapshot has deleted the copy: %v", got)
	}
	missing := f.create(f.name+"-missing", "missing")
	f.expect(missing.Name, v1alpha1.ReasonCopyMissing)
	f.do(f.client.Delete(t.Context(), missing))
	f.expect(missing.Name, "gone")

	f.do(f.client.Delete(t.Context(), s))
	f.expect(f.name, "gone")
	entries, err := os.ReadDir(f.root)
	if err != nil || len(entries) > 0 {
		t.Errorf("after the deletion the store has %v, %v", entries, err)
	}
}

// A copy that was changed is not used.
func TestDamagedCopy(t *testing.T) {
	f := newFixture(t)
	s := f.create(f.name, "")
	f.expect(f.name, v1alpha1.ReasonStored)
	f.do(f.host.RemoveSnapshot(s.UID))
	file := filepath.Join(f.get(f.name).Status.Location, dataObject)
	for _, damaged := range []string{strings.ToUpper(content), content[1:], content + "x"} {
		f.do(os.WriteFile(file, []byte(damaged), 0o600))
		if message := f.expect(f.name, v1alpha1.ReasonStoreFailed); !strings.Contains(message, "damaged") {
			t.Errorf("%q: %s", damaged, message)
		}
		if _, data, _ := f.host.OpenSnapshot(s.UID); data != nil {
			t.Fatalf("%q was used", damaged)
		}
	}
	f.do(os.WriteFile(file, []byte(content), 0o600))
	f.expect(f.name, v1alpha1.ReasonStored)
	f.do(f.client.Delete(t.Context(), f.get(f.name)))
	f.expect(f.name, "gone")
}

// A store that is away is a condition, and a deletion waits for it, unless the user or the administrator says otherwise.
func TestStoreIsAway(t *testing.T) {
	f := newFixture(t)
	away := f.root + "-away"
	f.do(os.Rename(f.root, away))
	f.create(f.name, "")
	if message := f.expect(f.name, v1alpha1.ReasonStoreFailed); !strings.Contains(message, f.name) || !strings.Contains(message, "there is no directory "+f.root) {
		t.Error(message)
	}
	f.do(os.Rename(away, f.root))
	f.expect(f.name, v1alpha1.ReasonStored)
	for i, release := range []func(){
		func() { f.do(os.Rename(away, f.root)) },
		func() {
			s := f.get(f.name)
			s.Annotations = map[string]string{v1alpha1.AnnotationKeepCopy: "true"}
			f.do(f.client.Update(t.Context(), s))
		},
		func() { f.restart("") },
	} {
		if i > 0 {
			f.create(f.name, "")
			f.expect(f.name, v1alpha1.ReasonStored)
		}
		f.do(os.Rename(f.root, away))
		f.do(f.client.Delete(t.Context(), f.get(f.name)))
		if message := f.expect(f.name, v1alpha1.ReasonSnapshotDeleting); !strings.Contains(message, v1alpha1.AnnotationKeepCopy) {
			t.Error(message)
		}
		release()
		f.expect(f.name, "gone")
		if i > 0 {
			f.do(os.Rename(away, f.root))
			if got := f.copies(); len(got) != 2*i {
				t.Errorf("the store has %v", got)
			}
		}
	}
	left := slices.DeleteFunc(harness.Events(f.recorder), func(e string) bool { return !strings.Contains(e, v1alpha1.ReasonCopyLeft) })
	if len(left) != 2 {
		t.Errorf("events about copies that are left: %v", left)
	}
}

// A manager that is killed between two writes leaves no copy of an object that is gone, and writes no copy twice.
func TestKilledBetweenWrites(t *testing.T) {
	f := newFixture(t)
	s := f.create(f.name, "")
	for write := 1; write <= 3; write++ {
		failing, _ := harness.OnWrite(f.client, write, harness.Before, func() error { return errors.New("killed") })
		f.Reconciler = NewReconciler(failing, f.client, f.host, f.store, f.recorder, f.clock)
		_, _ = f.Reconcile(t.Context(), f.get(f.name)) // it may be killed
		if len(f.copies()) > 0 && !slices.Contains(f.get(f.name).Finalizers, v1alpha1.StoreFinalizer) {
			t.Fatal("a copy without a finalizer")
		}
	}
	f.restart(f.root)
	f.expect(f.name, v1alpha1.ReasonStored)
	stale := f.get(f.name)
	f.do(f.client.Delete(t.Context(), stale.DeepCopy()))
	f.expect(f.name, "gone")
	f.do(os.WriteFile(f.host.path(s.UID), []byte(content), 0o600))
	stale.Status.Conditions = nil
	if _, err := f.Reconcile(t.Context(), stale); err != nil { // the cache does not know yet that it is gone
		t.Error(err)
	}
	if got := f.copies(); len(got) > 0 {
		t.Errorf("a copy of an object that is gone: %v", got)
	}
}
