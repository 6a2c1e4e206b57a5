package controlplane_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/controlplane"
)

// A database that has more than half of its quota, most of it free, shrinks while nobody works, and nothing is lost.
func TestLongIdleEtcdIsDefragmented(t *testing.T) {
	t.Parallel()
	dir, binary := realDir(t)
	const quota = 32 << 20
	cp := start(t, controlplane.Options{
		Dir: dir, Binary: binary, APIOnly: true, QuotaBytes: quota, StorageInterval: 200 * time.Millisecond, Log: testr.New(t),
	})
	if err := cp.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	maps := client(t, dir).CoreV1().ConfigMaps("default")
	size := func() int64 {
		info, err := os.Stat(filepath.Join(dir, "etcd", "member", "snap", "db"))
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	create := func(name string, bytes []byte) {
		t.Helper()
		_, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{"data": bytes},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	create("kept", []byte("data"))
	for i := 0; size() <= quota/4*3; i++ {
		name := fmt.Sprintf("filler-%d", i)
		create(name, bytes.Repeat([]byte("x"), 500_000))
		if err := maps.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the database is small", func() bool { return size() < quota/4 })
	if kept, err := maps.Get(t.Context(), "kept", metav1.GetOptions{}); err != nil || string(kept.BinaryData["data"]) != "data" {
		t.Errorf("%v, %v", kept, err)
	}
}
