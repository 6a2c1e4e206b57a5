package hosted

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/snapshotfile"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/etcdfile"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// etcd is a running etcd without certificates.
type etcd struct {
	*testing.T
	binary, url string
}

func startEtcd(t *testing.T) *etcd {
	t.Helper()
	binary, err := env.Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	e := &etcd{T: t, binary: binary, url: "http://" + harness.FreeAddress(t).String()}
	ctx, stop := context.WithCancel(t.Context())
	server := exec.CommandContext(ctx, binary, "etcd", "--data-dir="+t.TempDir(), "--log-level=error", "--listen-client-urls="+e.url,
		"--advertise-client-urls="+e.url, "--listen-peer-urls=http://127.0.0.1:0")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = server.Wait() // it was killed
	})
	harness.Eventually(t, "etcd answers", func() bool {
		return exec.CommandContext(t.Context(), binary, "etcdctl", "--endpoints="+e.url, "get", "any").Run() == nil
	})
	return e
}

func (e *etcd) ctl(args ...string) string {
	e.Helper()
	output, err := exec.CommandContext(e.Context(), e.binary, append([]string{"etcdctl", "--endpoints=" + e.url}, args...)...).CombinedOutput()
	if err != nil {
		e.Fatalf("%v: %s", err, output)
	}
	return strings.TrimSpace(string(output))
}

// load returns a process that replaces the objects.
func (e *etcd) load(objects io.Reader) *exec.Cmd {
	load := exec.CommandContext(e.Context(), e.binary, "etcd-load", "--endpoint="+e.url)
	load.Stdin = objects
	return load
}

// objectsOf returns the objects in a snapshot.
func objectsOf(t *testing.T, writes ...etcdfile.Write) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot")
	if err := os.WriteFile(path, etcdfile.New(t, "key", writes...), 0o600); err != nil {
		t.Fatal(err)
	}
	var objects bytes.Buffer
	if err := snapshotfile.WriteObjects(t.Context(), path, &objects); err != nil {
		t.Fatal(err)
	}
	return objects.Bytes()
}

func TestLoadReplacesAllObjects(t *testing.T) {
	e := startEtcd(t)
	e.ctl("put", "/registry/later", "gone")
	e.ctl("put", "compact_rev_key", "kept")
	var writes []etcdfile.Write
	for i := range uint64(250) { // several transactions
		writes = append(writes, etcdfile.Write{Revision: 2 + i, Key: "/registry/" + strings.Repeat("k", int(i)+1), Value: strings.Repeat("v", 10_000)})
	}
	objects := objectsOf(t, writes...)
	if output, err := e.load(bytes.NewReader(objects[:len(objects)/2])).CombinedOutput(); err == nil || !strings.Contains(string(output), "unexpected EOF") {
		t.Errorf("half of the objects: %v, %s", err, output)
	}
	for range 2 { // it may be repeated
		if output, err := e.load(bytes.NewReader(objects)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if got := strings.Fields(e.ctl("get", "--prefix", "/registry/", "--keys-only")); len(got) != len(writes) {
			t.Errorf("etcd has %d objects, want %d", len(got), len(writes))
		}
	}
	if got := e.ctl("get", "/registry/kkk", "--print-value-only"); got != writes[2].Value {
		t.Errorf("the value of an object has %d bytes, want %d", len(got), len(writes[2].Value))
	}
	if got := e.ctl("get", "--from-key", "a", "--keys-only"); got != "compact_rev_key" {
		t.Errorf("besides objects, etcd has %q", got)
	}
}

// A process whose manager was killed writes nothing after the next one has begun, nor after that has ended.
func TestOneLoads(t *testing.T) {
	e := startEtcd(t)
	objects := objectsOf(t, etcdfile.Write{Revision: 2, Key: "/registry/old", Value: "old"})
	stdin, send := io.Pipe()
	old := e.load(stdin)
	var said bytes.Buffer
	old.Stderr = &said
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := send.Write(objects[:len(objects)-1]); err != nil { // all but the end
		t.Fatal(err)
	}
	harness.Eventually(t, "the first one has begun", func() bool { return e.ctl("get", "keelson.dev/loader") != "" })
	if output, err := e.load(bytes.NewReader(objectsOf(t, etcdfile.Write{Revision: 2, Key: "/registry/new", Value: "new"}))).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if _, err := send.Write(objects[len(objects)-1:]); err != nil {
		t.Fatal(err)
	}
	_ = send.Close()
	if err := old.Wait(); err == nil || !strings.Contains(said.String(), "another process") {
		t.Errorf("the first one ends with %v: %s", err, said.String())
	}
	if got := e.ctl("get", "--prefix", "/registry/", "--keys-only"); got != "/registry/new" {
		t.Errorf("etcd has the objects %q", got)
	}
}
