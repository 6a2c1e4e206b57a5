package console_test

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The API server is really stopped, and started again with its data: the page says so, keeps what it has, and goes on by itself
// with what has changed since.
func TestLongRestartedAPI(t *testing.T) {
	dir := t.TempDir()
	cp, stop, err := env.StartControlPlane(t.Context(), controlplane.Options{Dir: dir, APIOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = stop()
		}
	})
	env.Define(t, cp.Config())
	create := func(cp *controlplane.ControlPlane, name string) {
		t.Helper()
		clients, err := kubernetes.NewForConfig(cp.Config())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := clients.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(cp, "before")
	b := openPage(t, cp.Config(), "/configmaps?namespace=default")
	b.Sees("before")
	b.Expect("502") // of what the page asks meanwhile
	b.Expect("503") // of a server that starts
	b.Expect("403") // of a server whose roles are not there yet
	if err := cp.Stop(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	b.Sees("Connection lost", "does not answer", "before")
	again, stopAgain, err := env.StartControlPlane(t.Context(), controlplane.Options{Dir: dir, APIOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	stopped = true
	t.Cleanup(func() {
		if err := stopAgain(); err != nil {
			t.Error(err)
		}
	})
	if again.Config().Host != cp.Config().Host {
		t.Fatalf("the API is now at %s, not %s", again.Config().Host, cp.Config().Host)
	}
	create(again, "after")
	b.Sees("before", "after")
	b.Until(`!document.body.innerText.includes("Connection lost")`)
}
