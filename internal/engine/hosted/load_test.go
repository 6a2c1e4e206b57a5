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

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

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
func (e *etcd) load(objects io.Reader, flags ...string) *exec.Cmd {
	load := exec.CommandContext(e.Context(), e.binary, append([]string{"etcd-load", "--endpoint=" + e.url}, flags...)...)
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
	if err := snapshotfile.ReadObjects(t.Context(), path, func(stream io.Reader) error {
		_, err := objects.ReadFrom(stream)
		return err
	}); err != nil {
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

// The objects of another cluster come without its nodes and the tokens that it has signed.
func TestLoadForeignObjects(t *testing.T) {
	e := startEtcd(t)
	encode := func(kind corev1.SecretType) string {
		secret := &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Name: "s"}, Type: kind,
			Data: map[string][]byte{"token": []byte("signed"), "namespace": []byte("default")},
		}
		var encoded bytes.Buffer
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(secret, &encoded); err != nil {
			t.Fatal(err)
		}
		return encoded.String()
	}
	own := encode(corev1.SecretTypeOpaque)
	objects := objectsOf(t,
		etcdfile.Write{Revision: 2, Key: "/registry/minions/node-0", Value: "node"},
		etcdfile.Write{Revision: 3, Key: "/registry/leases/kube-node-lease/node-0", Value: "lease"},
		etcdfile.Write{Revision: 4, Key: "/registry/secrets/default/own", Value: own},
		etcdfile.Write{Revision: 5, Key: "/registry/secrets/default/unknown", Value: "encrypted"},
		etcdfile.Write{Revision: 6, Key: "/registry/secrets/default/token", Value: encode(corev1.SecretTypeServiceAccountToken)},
	)
	if output, err := e.load(bytes.NewReader(objects), "--foreign").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if got := strings.Fields(e.ctl("get", "--prefix", "/registry/", "--keys-only")); len(got) != 3 {
		t.Errorf("etcd has %q", got)
	}
	if e.ctl("get", "/registry/secrets/default/own", "--print-value-only") != strings.TrimSpace(own) || e.ctl("get", "/registry/secrets/default/unknown", "--print-value-only") != "encrypted" {
		t.Error("other Secrets are changed")
	}
	if token := e.ctl("get", "/registry/secrets/default/token", "--print-value-only"); strings.Contains(token, "signed") || !strings.Contains(token, "namespace") {
		t.Errorf("the Secret of the token is %q", token)
	}
}
