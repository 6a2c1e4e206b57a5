package etcdsnapshot_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
)

const uid = types.UID("snapshot")

// killedDir and killedAt make the test binary a manager that adds the snapshot to a directory, and kills itself at a step.
const (
	killedDir = "KEELSON_TEST_KILLED_DIR"
	killedAt  = "KEELSON_TEST_KILLED_AT"
)

func TestMain(m *testing.M) {
	if dir, ok := os.LookupEnv(killedDir); ok {
		etcdsnapshot.AtStep(func(name string) {
			if name == os.Getenv(killedAt) {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:forbidigo // this process
				select {}
			}
		})
		d := etcdsnapshot.Dir(dir)
		fmt.Println(addData(d), d.RemoveSnapshot(uid))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func addData(dir etcdsnapshot.Dir) error {
	return dir.AddSnapshot(uid, []byte(`{"cluster":"demo","version":"v1.36.3"}`), writeData)
}

func writeData(to io.Writer) error {
	_, err := io.WriteString(to, "data")
	return err
}

// names returns what is in a directory.
func names(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}

func TestSnapshotOfAnotherHost(t *testing.T) {
	path := t.TempDir()
	dir := &etcdsnapshot.Store{Dir: etcdsnapshot.Dir(path)}
	if _, data, err := dir.OpenSnapshot(uid); err != nil || data != nil {
		t.Errorf("a snapshot that does not exist: %v, %v", data, err)
	}
	record := []byte(`{"cluster":"demo","clusterUID":"other","version":"v1.36.3","revision":7,"size":4,"takenAt":"2026-03-04T12:00:00Z","services":"10.1.0.0/16"}`)
	broken := errors.New("no connection")
	err := dir.AddSnapshot(uid, record, func(to io.Writer) error { return errors.Join(writeData(to), broken) })
	if left := names(t, path); !errors.Is(err, broken) || len(left) > 0 {
		t.Errorf("a download that fails: %v; it has left %v", err, left)
	}
	for range 2 { // a manager that was killed may repeat it
		if err := dir.AddSnapshot(uid, record, writeData); err != nil {
			t.Fatal(err)
		}
	}
	found, err := dir.FindSnapshot(uid)
	if err != nil || found == nil {
		t.Fatal(found, err)
	}
	if diff := cmp.Diff(snapshot.Snapshot{Cluster: "demo", ClusterUID: "other", Version: "v1.36.3", Revision: 7, Size: 4, TakenAt: found.TakenAt}, *found); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	saved, data, err := dir.OpenSnapshot(uid)
	var compact bytes.Buffer
	if err := errors.Join(err, json.Compact(&compact, saved)); err != nil || compact.String() != string(record) {
		t.Fatalf("the record for a store: %s, %v", saved, err)
	}
	content, err := io.ReadAll(data)
	if err := errors.Join(err, data.Close()); err != nil || string(content) != "data" {
		t.Errorf("the data: %q, %v", content, err)
	}
	own := filepath.Join(path, string(uid))
	for path, want := range map[string]os.FileMode{own: 0o700, filepath.Join(own, "etcd.db"): 0o600, filepath.Join(own, "snapshot.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
}

// A manager that is killed while it adds or removes a snapshot leaves nothing that the next one, or the deletion, does not remove. Only a
// complete snapshot is one, also in a backup.
func TestKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"begun", "saved", "recorded", "renamed", "unrecorded"} {
		for _, next := range []struct {
			name string
			do   func(etcdsnapshot.Dir) error
			want []string // what is left after it
		}{
			{"added", addData, []string{string(uid)}},
			{"removed", func(d etcdsnapshot.Dir) error { return d.RemoveSnapshot(uid) }, nil},
		} {
			t.Run(at+", then "+next.name, func(t *testing.T) {
				path := t.TempDir()
				dir := etcdsnapshot.Dir(path)
				killed := exec.CommandContext(t.Context(), self)
				killed.Env = append(os.Environ(), killedDir+"="+path, killedAt+"="+at)
				if output, err := killed.CombinedOutput(); err == nil || killed.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
					t.Fatalf("it has ended by itself: %v: %s", err, output)
				}
				var saved []string
				err := dir.Save(func(name, _ string) error { saved = append(saved, name); return nil })
				found, findErr := dir.Read(uid)
				if complete := at == "renamed"; errors.Join(err, findErr) != nil || (found != nil) != complete || (len(saved) == 2) != complete {
					t.Errorf("found %v, a backup has %v: %v, %v", found, saved, findErr, err)
				}
				if left := names(t, path); len(left) == 0 {
					t.Error("it has left nothing")
				}
				if err := next.do(dir); err != nil {
					t.Fatal(err)
				}
				if left := names(t, path); !slices.Equal(left, next.want) {
					t.Errorf("left are %q, want %q", left, next.want)
				}
			})
		}
	}
}

// saver is an engine whose etcd has a database.
type saver struct{ err error }

func (s saver) SaveSnapshot(_ context.Context, _ snapshot.Source, file string) (etcdsnapshot.Saved, error) {
	return etcdsnapshot.Saved{Version: "v1.36.3", Revision: 7}, errors.Join(s.err, etcdsnapshot.WriteFile(file, writeData))
}

func TestTake(t *testing.T) {
	path, noon := t.TempDir(), time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)
	store := &etcdsnapshot.Store{Dir: etcdsnapshot.Dir(path), Clock: clocktesting.NewFakePassiveClock(noon), Engines: map[v1alpha1.Engine]etcdsnapshot.Saver{
		v1alpha1.EngineHosted: saver{}, v1alpha1.EngineLocal: saver{err: snapshot.ErrNotRunning},
	}}
	of := snapshot.Source{Name: "demo", UID: "demo"}
	if _, err := store.TakeSnapshot(t.Context(), uid, of); !errors.Is(err, snapshot.ErrNotRunning) {
		t.Errorf("of a cluster that does not run: %v", err)
	}
	if left := names(t, path); len(left) > 0 {
		t.Errorf("a snapshot that was not taken has left %v", left)
	}
	of.Spec.Engine = v1alpha1.EngineHosted
	taken, err := store.TakeSnapshot(t.Context(), uid, of)
	if err != nil {
		t.Fatal(err)
	}
	want := snapshot.Snapshot{Cluster: "demo", ClusterUID: "demo", Version: "v1.36.3", Revision: 7, Size: 4, TakenAt: noon}
	if found, err := store.FindSnapshot(uid); err != nil || found == nil || *found != want || *taken != want {
		t.Errorf("taken %+v, found %+v, %v; want %+v", taken, found, err, want)
	}
}
