package local_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/cluster/snapshot"
	"github.com/keelson-dev/keelson/internal/engine/local"
)

// The files of a snapshot come to another host whole or not at all.
func TestSnapshotOfAnotherHost(t *testing.T) {
	dir := t.TempDir()
	engine := local.New(local.Options{Snapshots: dir})
	t.Cleanup(func() { _ = engine.Close() })
	const uid = types.UID("moved")
	if _, data, err := engine.OpenSnapshot(uid); err != nil || data != nil {
		t.Errorf("a snapshot that does not exist: %v, %v", data, err)
	}
	record := []byte(`{"cluster":"demo","clusterUID":"other","version":"v1.36.3","revision":7,"size":4,"takenAt":"2026-03-04T12:00:00Z","services":"10.1.0.0/16"}`)
	broken := errors.New("no connection")
	err := engine.AddSnapshot(uid, record, func(to io.Writer) error {
		_, err := to.Write([]byte("da"))
		return errors.Join(err, broken)
	})
	entries, readErr := os.ReadDir(dir)
	if !errors.Is(err, broken) || readErr != nil || len(entries) > 0 {
		t.Errorf("a download that fails: %v; it has left %v, %v", err, entries, readErr)
	}
	for range 2 { // a manager that was killed may repeat it
		if err := engine.AddSnapshot(uid, record, func(to io.Writer) error { _, err := to.Write([]byte("data")); return err }); err != nil {
			t.Fatal(err)
		}
	}
	found, err := engine.FindSnapshot(uid)
	if err != nil || found == nil {
		t.Fatal(found, err)
	}
	if diff := cmp.Diff(snapshot.Snapshot{Cluster: "demo", ClusterUID: "other", Version: "v1.36.3", Revision: 7, Size: 4, TakenAt: found.TakenAt}, *found); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
	saved, data, err := engine.OpenSnapshot(uid)
	var compact bytes.Buffer
	if err := errors.Join(err, json.Compact(&compact, saved)); err != nil || compact.String() != string(record) {
		t.Fatalf("the record for a store: %s, %v", saved, err)
	}
	content, err := io.ReadAll(data)
	if err := errors.Join(err, data.Close()); err != nil || string(content) != "data" {
		t.Errorf("the data: %q, %v", content, err)
	}
	own := filepath.Join(dir, string(uid))
	for path, want := range map[string]os.FileMode{own: 0o700, filepath.Join(own, "etcd.db"): 0o600, filepath.Join(own, "snapshot.json"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if err := engine.RemoveSnapshot(uid); err != nil {
		t.Fatal(err)
	}
}

func addSnapshot(engine *local.Engine, uid types.UID) error {
	record := []byte(`{"cluster":"demo","version":"v1.36.3"}`)
	return engine.AddSnapshot(uid, record, func(to io.Writer) error { _, err := to.Write([]byte("data")); return err })
}

// A manager that is killed while it reads a snapshot from a store leaves nothing that the next one, or the deletion, does not remove.
func TestKilledWhileReading(t *testing.T) {
	dir := t.TempDir()
	engine := local.New(local.Options{Snapshots: dir})
	t.Cleanup(func() { _ = engine.Close() })
	const uid = types.UID("moved")
	for _, test := range []struct {
		next func() error
		want []string // what is left after it
	}{
		{func() error { return addSnapshot(engine, uid) }, []string{string(uid)}},
		{func() error { return engine.RemoveSnapshot(uid) }, nil},
	} {
		for _, at := range []string{"begun", "saved", "recorded", "renamed"} {
			killedManager(t, helperArgs{Snapshots: dir, Take: uid, Add: true, At: at})
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) == 0 {
				t.Fatalf("killed at %s, it has left %v, %v", at, entries, err)
			}
			if err := test.next(); err != nil {
				t.Fatal(err)
			}
			left, err := filepath.Glob(filepath.Join(dir, "*"))
			for i := range left {
				left[i] = filepath.Base(left[i])
			}
			if diff := cmp.Diff(test.want, left); err != nil || diff != "" {
				t.Errorf("killed at %s, then completed: %v (-want +got):\n%s", at, err, diff)
			}
		}
		if err := engine.RemoveSnapshot(uid); err != nil {
			t.Fatal(err)
		}
	}
}
