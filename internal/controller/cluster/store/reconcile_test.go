package store

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
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
	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/objectstore"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/s3server"
)

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
	return atomicfile.Write(h.path(uid), []byte(all.String()), atomicfile.Volatile)
}

func (h host) RemoveSnapshot(uid types.UID) error {
	if err := os.Remove(h.path(uid)); !os.IsNotExist(err) {
		return err
	}
	return nil
}

// place is a store that a test can take away.
type place struct {
	options objectstore.Options
	// root is the directory with the objects.
	root       string
	away, back func()
	// saysAway is in the message while it is away.
	saysAway string
	// left returns the number of writes that were interrupted and still take space.
	left func() int
}

// places are the stores that there are.
var places = map[string]func(t *testing.T) place{
	"directory": func(t *testing.T) place {
		root := filepath.Join(t.TempDir(), "store")
		away := root + "-away"
		rename := func(from, to string) func() {
			return func() {
				if err := os.Rename(from, to); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Mkdir(root, 0o700); err != nil {
			t.Fatal(err)
		}
		left := func() int { return len(filesIn(t, root, ".partial-")) }
		return place{objectstore.Options{Location: root}, root, rename(root, away), rename(away, root), "there is no directory " + root, left}
	},
	"bucket": func(t *testing.T) place {
		server := s3server.Start(t)
		options := objectstore.Options{Location: server.Location(s3server.Bucket, "a/prefix"), Credentials: server.Credentials, CA: server.CA}
		return place{options, server.Path("a", "prefix"), server.Stop, server.Restart, "no connection to the S3 server", server.Incomplete}
	},
}

// filesIn returns the names of the files below a directory that contain a text.
func filesIn(t *testing.T, root, part string) []string {
	t.Helper()
	names := []string{}
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.Contains(entry.Name(), part) {
			names = append(names, filepath.Base(path))
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return names
}

// onEach runs a test with each store.
func onEach(t *testing.T, run func(*fixture)) {
	for name, open := range places {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(newFixture(t, open(t)))
		})
	}
}

// fixture has a Reconciler that the test calls, and a store.
type fixture struct {
	*testing.T
	*Reconciler
	place
	client   client.WithWatch
	clock    *clocktesting.FakeClock
	recorder *events.FakeRecorder
	name     string // of the first snapshot and of the Cluster
	content  string // of snapshots
	host     host
}

func newFixture(t *testing.T, p place) *fixture {
	t.Helper()
	f := &fixture{
		T: t, client: harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme)), name: env.Namespace(t), content: content, place: p,
		clock: clocktesting.NewFakeClock(time.Now()), recorder: events.NewFakeRecorder(100), host: host{t.TempDir()},
	}
	f.restart(f.options)
	return f
}

func (f *fixture) do(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// restart makes a new Reconciler with a store; none if the options are empty.
func (f *fixture) restart(options objectstore.Options) {
	f.Helper()
	store, err := options.Open()
	f.do(err)
	f.Reconciler = &Reconciler{kube.NewBase(kind, f.client, f.client, f.recorder, f.clock), f.host, store}
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
	f.save(s.UID)
	s.Status.TakenAt = &metav1.Time{Time: f.clock.Now().Truncate(time.Second)}
	f.do(f.client.Status().Update(f.Context(), s))
}

// save writes the files of a snapshot.
func (f *fixture) save(uid types.UID) {
	f.Helper()
	f.do(os.WriteFile(f.host.path(uid), []byte(f.content), 0o600))
}

// saved returns the data of a snapshot on this host; empty if there is none.
func (f *fixture) saved(uid types.UID) string {
	f.Helper()
	content, err := os.ReadFile(f.host.path(uid))
	if !errors.Is(err, fs.ErrNotExist) {
		f.do(err)
	}
	return string(content)
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
func (f *fixture) copies() []string { return filesIn(f.T, f.root, "") }

// A snapshot is copied once, read back where its files are missing, also under another name, and takes its copy along.
func TestLifeOfACopy(t *testing.T) { onEach(t, lifeOfACopy) }

func lifeOfACopy(f *fixture) {
	f.create(f.name, "")
	f.expect(f.name, v1alpha1.ReasonStored)
	s := f.get(f.name)
	if want := f.store.Location(nameOf(s)); s.Status.Location != want || !slices.Contains(s.Finalizers, v1alpha1.StoreFinalizer) {
		f.Errorf("location: %s, want %s; finalizers %v", s.Status.Location, want, s.Finalizers)
	}
	if got := f.copies(); !slices.Equal(got, []string{dataObject, recordObject}) {
		f.Errorf("the store has %v", got)
	}

	f.do(f.host.RemoveSnapshot(s.UID)) // a lost disk
	f.expect(f.name, v1alpha1.ReasonStored)
	if got := f.saved(s.UID); got != content {
		f.Errorf("read from the store: %q", got)
	}

	other := f.create(f.name+"-new", path.Base(nameOf(s)))
	f.expect(other.Name, v1alpha1.ReasonStored)
	if got := f.saved(other.UID); got != content {
		f.Errorf("read by another ClusterSnapshot: %q", got)
	}
	f.do(f.client.Delete(f.Context(), other))
	f.expect(other.Name, "gone")
	if got := f.copies(); len(got) != 2 {
		f.Errorf("the other ClusterSnapshot has deleted the copy: %v", got)
	}
	missing := f.create(f.name+"-missing", "missing")
	f.expect(missing.Name, v1alpha1.ReasonCopyMissing)
	f.do(f.client.Delete(f.Context(), missing))
	f.expect(missing.Name, "gone")

	f.do(f.client.Delete(f.Context(), s))
	f.expect(f.name, "gone")
	if got := f.copies(); len(got) > 0 {
		f.Errorf("after the deletion the store has %v", got)
	}
}

// A copy that was changed is not used.
func TestDamagedCopy(t *testing.T) { onEach(t, damagedCopy) }

func damagedCopy(f *fixture) {
	s := f.create(f.name, "")
	f.expect(f.name, v1alpha1.ReasonStored)
	f.do(f.host.RemoveSnapshot(s.UID))
	file := filepath.Join(f.root, nameOf(s), dataObject)
	for _, damaged := range []string{strings.ToUpper(content), content[1:], content + "x"} {
		f.do(os.WriteFile(file, []byte(damaged), 0o600))
		if message := f.expect(f.name, v1alpha1.ReasonStoreFailed); !strings.Contains(message, "damaged") {
			f.Errorf("%q: %s", damaged, message)
		}
		if got := f.saved(s.UID); got != "" {
			f.Fatalf("%q was used", got)
		}
	}
	f.do(os.WriteFile(file, []byte(content), 0o600))
	f.expect(f.name, v1alpha1.ReasonStored)
	f.do(f.client.Delete(f.Context(), f.get(f.name)))
	f.expect(f.name, "gone")
}

// A store that is away is a condition, and a deletion waits for it, unless the user or the administrator says otherwise.
func TestStoreIsAway(t *testing.T) { onEach(t, storeIsAway) }

func storeIsAway(f *fixture) {
	f.away()
	f.create(f.name, "")
	if message := f.expect(f.name, v1alpha1.ReasonStoreFailed); !strings.Contains(message, f.name) || !strings.Contains(message, f.saysAway) {
		f.Error(message)
	}
	f.back()
	f.expect(f.name, v1alpha1.ReasonStored)
	for i, release := range []func(){
		f.back,
		func() {
			s := f.get(f.name)
			s.Annotations = map[string]string{v1alpha1.AnnotationKeepCopy: "true"}
			f.do(f.client.Update(f.Context(), s))
		},
		func() { f.restart(objectstore.Options{}) },
	} {
		if i > 0 {
			f.create(f.name, "")
			f.expect(f.name, v1alpha1.ReasonStored)
		}
		f.away()
		f.do(f.client.Delete(f.Context(), f.get(f.name)))
		if message := f.expect(f.name, v1alpha1.ReasonSnapshotDeleting); !strings.Contains(message, v1alpha1.AnnotationKeepCopy) {
			f.Error(message)
		}
		release()
		f.expect(f.name, "gone")
		if i > 0 {
			f.back()
			if got := f.copies(); len(got) != 2*i {
				f.Errorf("the store has %v", got)
			}
		}
	}
	left := slices.DeleteFunc(harness.Events(f.recorder), func(e string) bool { return !strings.Contains(e, v1alpha1.ReasonCopyLeft) })
	if len(left) != 2 {
		f.Errorf("events about copies that are left: %v", left)
	}
}

// A manager that is killed between two writes leaves no copy of an object that is gone, and writes no copy twice.
func TestKilledBetweenWrites(t *testing.T) { onEach(t, killedBetweenWrites) }

func killedBetweenWrites(f *fixture) {
	s := f.create(f.name, "")
	for write := 1; write <= 3; write++ {
		failing, _ := harness.OnWrite(f.client, write, harness.Before, func() error { return errors.New("killed") })
		f.Reconciler = &Reconciler{kube.NewBase(kind, failing, f.client, f.recorder, f.clock), f.host, f.store}
		_, _ = f.Reconcile(f.Context(), f.get(f.name)) // it may be killed
		if len(f.copies()) > 0 && !slices.Contains(f.get(f.name).Finalizers, v1alpha1.StoreFinalizer) {
			f.Fatal("a copy without a finalizer")
		}
	}
	f.restart(f.options)
	f.expect(f.name, v1alpha1.ReasonStored)
	stale := f.get(f.name)
	f.do(f.client.Delete(f.Context(), stale.DeepCopy()))
	f.expect(f.name, "gone")
	f.save(s.UID)
	stale.Status.Conditions = nil
	if _, err := f.Reconcile(f.Context(), stale); err != nil { // the cache does not know yet that it is gone
		f.Error(err)
	}
	if got := f.copies(); len(got) > 0 {
		f.Errorf("a copy of an object that is gone: %v", got)
	}
}
