package objectstore

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/s3server"
)

// says checks that each method fails with a message that has all parts, is the same again, and does not mean that there is no object.
func says(t *testing.T, s *s3, parts ...string) {
	t.Helper()
	for what, do := range map[string]func() error{
		"read":   func() error { _, err := s.Get(t.Context(), "demo/data"); return err },
		"write":  func() error { return put(t.Context(), s, "demo/data", "x") },
		"delete": func() error { return s.Delete(t.Context(), "demo/data") },
	} {
		first, second := do(), do()
		if first == nil || second == nil || errors.Is(first, ErrNotFound) {
			t.Errorf("%s: %v, %v", what, first, second)
			continue
		}
		if first.Error() != second.Error() {
			t.Errorf("%s: the message changes: %v; %v", what, first, second)
		}
		for _, part := range parts {
			if !strings.Contains(first.Error(), part) {
				t.Errorf("%s: %v lacks %q", what, first, part)
			}
		}
	}
}

// Every fault has a message with what to do, and the store works when the fault is over, without a restart of the manager.
func TestFaultsOfBucket(t *testing.T) {
	server := s3server.Start(t)
	s := openBucket(t, server, "faults")
	works := func(after string) {
		t.Helper()
		if err := put(t.Context(), s, "demo/data", after); err != nil {
			t.Fatalf("after %s: %v", after, err)
		}
		if got := get(t, s, "demo/data"); got != after {
			t.Errorf("after %s: %q", after, got)
		}
	}
	works("the start")

	server.SetSecret("wrong")
	s = openBucket(t, server, "faults")
	says(t, s, "denies access to the bucket "+s3server.Bucket, "SignatureDoesNotMatch", server.Credentials)
	server.SetSecret(server.Secret())
	works("a wrong secret")

	server.Stop()
	says(t, s, "no connection to the S3 server https://"+server.Address, "connection refused", "snapshotStore.location")
	server.Restart()
	works("a server that was away")

	other := *s
	other.name = "missing"
	says(t, &other, "has no bucket missing", "create it")

	untrusted, err := Options{Location: server.Location(s3server.Bucket, ""), Credentials: server.Credentials}.Open()
	if err != nil {
		t.Fatal(err)
	}
	says(t, untrusted.(*s3), "is not trusted", "snapshotStore.ca")
	plain, err := Options{Location: strings.Replace(server.Location(s3server.Bucket, ""), "https:", "http:", 1), Credentials: server.Credentials}.Open()
	if err != nil {
		t.Fatal(err)
	}
	says(t, plain.(*s3), server.Address)
}

// An error of a file with credentials says what it must have, and not what it has.
func TestFileOfCredentials(t *testing.T) {
	file := filepath.Join(t.TempDir(), "credentials")
	s, err := Options{Location: "s3://backups?region=a&endpoint=https://127.0.0.1:1", Credentials: file}.Open()
	if err != nil {
		t.Fatal(err)
	}
	says(t, s.(*s3), file, "no such file")
	for _, content := range []string{
		"", "topsecret", "[default]\naws_secret_access_key = topsecret\n", "[default]\naws_access_key_id = topsecret\n",
		"[other]\naws_access_key_id = id\naws_secret_access_key = topsecret\n",
	} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		says(t, s.(*s3), file, "aws_access_key_id = ID")
		if err := put(t.Context(), s, "a", "a"); strings.Contains(err.Error(), "topsecret") {
			t.Error(err)
		}
	}
}

func TestFileOfAuthorities(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.pem")
	o := Options{Location: "s3://backups", Credentials: "/credentials", CA: file}
	if _, err := o.Open(); err == nil || !strings.Contains(err.Error(), "snapshotStore.ca") || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Open(); err == nil || !strings.Contains(err.Error(), "contains no certificate") {
		t.Error(err)
	}
}

// A connection that is cut between two parts leaves the object before, and parts that the next write or a deletion removes.
func TestConnectionIsCut(t *testing.T) {
	server := s3server.Start(t)
	s := openBucket(t, server, "cut")
	for _, next := range []func() error{
		func() error { return put(t.Context(), s, "demo/data", "complete") },
		func() error { return s.Delete(t.Context(), "demo/data") },
	} {
		if err := put(t.Context(), s, "demo/data", "before"); err != nil {
			t.Fatal(err)
		}
		cutting := io.MultiReader(bytes.NewReader(make([]byte, partSize)), readFunc(func([]byte) (int, error) { server.Stop(); return 0, io.EOF }),
			bytes.NewReader(make([]byte, partSize)))
		if err := s.Put(t.Context(), "demo/data", cutting, 2*partSize); err == nil || !strings.Contains(err.Error(), "no connection") {
			t.Errorf("the write: %v", err)
		}
		server.Restart()
		if got := get(t, s, "demo/data"); got != "before" {
			t.Errorf("the object: %d bytes", len(got))
		}
		if got := server.Incomplete(); got != 1 {
			t.Errorf("%d incomplete uploads, want 1", got)
		}
		if err := next(); err != nil {
			t.Fatal(err)
		}
		if got := server.Incomplete(); got != 0 {
			t.Errorf("%d incomplete uploads are left", got)
		}
	}
}

// A request that is cut off leaves the object before.
func TestRequestIsCut(t *testing.T) {
	server := s3server.Start(t)
	if err := put(t.Context(), openBucket(t, server, "cut"), "demo/data", "before"); err != nil {
		t.Fatal(err)
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = proxy.Close() }()
	const most = 300 << 10
	go func() {
		for {
			conn, err := proxy.Accept()
			if err != nil {
				return
			}
			behind, err := net.Dial("tcp", server.Address)
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, behind) }()
			go func() {
				_, _ = io.CopyN(behind, conn, most)
				_, _ = conn.Close(), behind.Close()
			}()
		}
	}()
	location := strings.ReplaceAll(server.Location(s3server.Bucket, "cut"), server.Address, proxy.Addr().String())
	s, err := Options{Location: location, Credentials: server.Credentials, CA: server.CA}.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), s, "demo/data", strings.Repeat("new", most)); err == nil {
		t.Error("the write is not reported as failed")
	}
	if got := get(t, openBucket(t, server, "cut"), "demo/data"); got != "before" {
		t.Errorf("the object: %d bytes", len(got))
	}
}

// A server that accepts connections and says nothing does not hold a worker.
func TestServerHangs(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	keys := filepath.Join(t.TempDir(), "credentials")
	if err := os.WriteFile(keys, []byte("[default]\naws_access_key_id = a\naws_secret_access_key = b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := newS3(Options{Location: "s3://backups?endpoint=http://" + silent.Addr().String(), Credentials: keys}, 50*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	says(t, s, "no connection to the S3 server http://"+silent.Addr().String(), "i/o timeout")
}

// A write needs memory for one part, whatever the size. The race detector makes the client allocate more.
func TestMemoryOfWrite(t *testing.T) {
	s := openBucket(t, s3server.Start(t), "memory")
	const size = 16 * partSize
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := s.Put(t.Context(), "demo/data", io.LimitReader(readFunc(func(p []byte) (int, error) { return len(p), nil }), size), size); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > size/2 {
		t.Errorf("a write of %d MiB has allocated %d MiB", size>>20, allocated>>20)
	}
}
