package snapshotfile_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/snapshotfile"
	"github.com/keelson-dev/keelson/internal/testing/etcdfile"
)

func TestInspect(t *testing.T) {
	good := etcdfile.New(t, "key", etcdfile.Write{Revision: 2}, etcdfile.Write{Revision: 300}, etcdfile.Write{Revision: 70000, Deleted: true})
	damaged := append([]byte(nil), good...)
	damaged[len(damaged)/2] ^= 1
	// The pages of the database point beyond its end.
	hostile := append([]byte(nil), good[:len(good)-sha256.Size]...)
	for i := 2 * os.Getpagesize(); i < len(hostile); i++ {
		hostile[i] = 0xff
	}
	for _, tt := range []struct {
		name     string
		content  []byte
		revision int64
		problem  string
	}{
		{name: "complete", content: good, revision: 70000},
		{name: "without writes", content: etcdfile.New(t, "key")},
		{name: "cut off", content: good[:len(good)-100], problem: "cut off"},
		{name: "empty", problem: "cut off"},
		{name: "damaged", content: damaged, problem: "the sum"},
		{name: "of another program", content: etcdfile.New(t, "other"), problem: "no database of etcd"},
		{name: "no database", content: etcdfile.WithSum(make([]byte, 4096)), problem: "open the snapshot"},
		{name: "hostile", content: etcdfile.WithSum(hostile), problem: "the snapshot cannot be read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			revision, err := snapshotfile.Inspect(t.Context(), newSnapshotFile(t, tt.content))
			if revision != tt.revision || (err == nil) != (tt.problem == "") || err != nil && !strings.Contains(err.Error(), tt.problem) {
				t.Errorf("revision %d, %v", revision, err)
			}
		})
	}
}

func newSnapshotFile(t *testing.T, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadObjects(t *testing.T) {
	path := newSnapshotFile(t, etcdfile.New(t, "key",
		etcdfile.Write{Revision: 2, Key: "/registry/kept", Value: "old"},
		etcdfile.Write{Revision: 3, Key: "/registry/deleted", Value: "value"},
		etcdfile.Write{Revision: 4, Key: "/registry/event", Value: "value", Lease: true},
		etcdfile.Write{Revision: 5, Key: "compact_rev_key", Value: "4"},
		etcdfile.Write{Revision: 6, Key: "/registry/deleted", Deleted: true},
		etcdfile.Write{Revision: 7, Key: "/registry/kept", Value: "new"},
		etcdfile.Write{Revision: 8, Key: "/registry/again", Deleted: true},
		etcdfile.Write{Revision: 9, Key: "/registry/again", Value: strings.Repeat("long", 1000)},
	))
	var stream bytes.Buffer
	if err := snapshotfile.ReadObjects(t.Context(), path, func(objects io.Reader) error {
		_, err := stream.ReadFrom(objects)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	got, from := map[string]string{}, bufio.NewReader(&stream)
	field := func() string {
		length, err := binary.ReadUvarint(from)
		if err != nil {
			t.Fatal(err)
		}
		content := make([]byte, length)
		if _, err := io.ReadFull(from, content); err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	for key := field(); key != ""; key = field() {
		got[key] = field()
	}
	want := map[string]string{"/registry/kept": "new", "/registry/again": strings.Repeat("long", 1000)}
	if diff := cmp.Diff(want, got); diff != "" || from.Buffered() > 0 {
		t.Errorf("%d bytes are left; objects (-want +got):\n%s", from.Buffered(), diff)
	}
}
