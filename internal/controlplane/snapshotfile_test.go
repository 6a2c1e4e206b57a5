package controlplane

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
)

// newSnapshotFile makes a snapshot with one write for each revision, in a bucket.
func newSnapshotFile(t *testing.T, bucket string, revisions ...uint64) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucket([]byte(bucket))
		for _, revision := range revisions {
			name := append(binary.BigEndian.AppendUint64(nil, revision), "_\x00\x00\x00\x00\x00\x00\x00\x00"...)
			err = errors.Join(err, b.Put(name, []byte("value")))
		}
		return err
	})
	content, readErr := os.ReadFile(path)
	if err := errors.Join(err, readErr, db.Close()); err != nil {
		t.Fatal(err)
	}
	return withSum(content)
}

func withSum(content []byte) []byte {
	sum := sha256.Sum256(content)
	return append(content, sum[:]...)
}

func TestInspectSnapshot(t *testing.T) {
	good := newSnapshotFile(t, "key", 2, 300, 70000)
	damaged := append([]byte(nil), good...)
	damaged[len(damaged)/2] ^= 1
	for _, tt := range []struct {
		name     string
		content  []byte
		revision int64
		problem  string
	}{
		{name: "complete", content: good, revision: 70000},
		{name: "without writes", content: newSnapshotFile(t, "key")},
		{name: "cut off", content: good[:len(good)-100], problem: "cut off"},
		{name: "empty", problem: "cut off"},
		{name: "damaged", content: damaged, problem: "the sum"},
		{name: "of another program", content: newSnapshotFile(t, "other", 1), problem: "no database of etcd"},
		{name: "no database", content: withSum(make([]byte, 4096)), problem: "open the snapshot"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "snapshot")
			if err := os.WriteFile(path, tt.content, 0o600); err != nil {
				t.Fatal(err)
			}
			revision, err := InspectSnapshot(path)
			if revision != tt.revision || (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("revision %d, %v", revision, err)
			}
		})
	}
}
