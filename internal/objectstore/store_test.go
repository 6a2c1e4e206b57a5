package objectstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/s3server"
)

func TestMain(m *testing.M) { env.Main(m) }

func put(ctx context.Context, s Store, name, content string) error {
	return s.Put(ctx, name, strings.NewReader(content), int64(len(content)))
}

// get returns the content of an object.
func get(t *testing.T, s Store, name string) string {
	t.Helper()
	object, err := s.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(object)
	if err := errors.Join(err, object.Close()); err != nil {
		t.Fatal(err)
	}
	return string(content)
}

var errSource = errors.New("the disk of this host fails")

// failing has a number of bytes, then fails.
func failing(size int) io.Reader {
	return io.MultiReader(bytes.NewReader(make([]byte, size)), readFunc(func([]byte) (int, error) { return 0, errSource }))
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// openBucket returns the store in the bucket of a server.
func openBucket(t *testing.T, server *s3server.Server, prefix string) *s3 {
	t.Helper()
	s, err := Options{Location: server.Location(s3server.Bucket, prefix), Credentials: server.Credentials, CA: server.CA}.Open()
	if err != nil {
		t.Fatal(err)
	}
	return s.(*s3)
}

// Each store keeps the promises of the interface. A directory has no parts, and of the whole bucket only the keys are others: some
// buffers of a copy are enough for them.
func TestStores(t *testing.T) {
	server := s3server.Start(t)
	for name, tt := range map[string]struct {
		store Store
		part  int
	}{
		"directory":    {openDir(t, t.TempDir()), 64 << 10},
		"bucket":       {openBucket(t, server, "a/prefix"), partSize},
		"whole bucket": {openBucket(t, server, ""), 100},
	} {
		t.Run(name, func(t *testing.T) { testStore(t, tt.store, tt.part) })
	}
	if got := get(t, openBucket(t, server, ""), "a/prefix/demo/kept"); got != "kept" {
		t.Errorf("the object with the prefix: %q", got)
	}
}

func testStore(t *testing.T, s Store, part int) {
	const name = "demo/before-uid/data"
	if _, err := s.Get(t.Context(), name); !errors.Is(err, ErrNotFound) {
		t.Errorf("an object that was never written: %v", err)
	}
	large := make([]byte, part*2+part/2) // three parts
	_, _ = rand.NewChaCha8(sha256.Sum256(nil)).Read(large)
	for _, content := range []string{"first", "", string(large), "second one"} {
		if err := put(t.Context(), s, name, content); err != nil {
			t.Fatal(err)
		}
		if got := get(t, s, name); got != content {
			t.Errorf("got %d other bytes than the %d that were written", len(got), len(content))
		}
	}
	for _, size := range []int{100, 64 << 10, part + 100} { // some servers store 64 KiB of a request that is cut off
		if err := s.Put(t.Context(), name, failing(size), int64(2*size)); !errors.Is(err, errSource) {
			t.Errorf("a write whose source fails: %v", err)
		}
		if err := s.Put(t.Context(), name, bytes.NewReader(make([]byte, size)), int64(2*size)); err == nil {
			t.Error("a write of fewer bytes than announced is not reported")
		}
		ctx, cancel := context.WithCancel(t.Context())
		ending := io.MultiReader(bytes.NewReader(make([]byte, size)), readFunc(func([]byte) (int, error) { cancel(); return 0, ctx.Err() }))
		if err := s.Put(ctx, name, ending, int64(2*size)); !errors.Is(err, context.Canceled) {
			t.Errorf("a write that is cancelled: %v", err)
		}
	}
	if got := get(t, s, name); got != "second one" {
		t.Errorf("after writes that failed: %d bytes", len(got))
	}
	if err := put(t.Context(), s, "demo/kept", "kept"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Delete(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Get(t.Context(), name); !errors.Is(err, ErrNotFound) {
			t.Errorf("an object that was deleted: %v", err)
		}
	}
	if got := get(t, s, "demo/kept"); got != "kept" {
		t.Errorf("the object beside it: %q", got)
	}
}
