package controlplane_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// writer creates ConfigMaps all the time and remembers those that the API said it has.
type writer struct {
	prefix string
	cancel context.CancelFunc
	done   chan struct{}

	mu           sync.Mutex
	acknowledged []string
}

func startWriter(t *testing.T, c kubernetes.Interface, prefix string) *writer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &writer{prefix: prefix, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for i := 0; ctx.Err() == nil; i++ {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%06d", prefix, i)}}
			// After an error nobody knows whether it is there; the next has another name.
			if _, err := c.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{}); err == nil {
				w.mu.Lock()
				w.acknowledged = append(w.acknowledged, object.Name)
				w.mu.Unlock()
			}
		}
	}()
	t.Cleanup(w.stop)
	return w
}

// stop may be called again.
func (w *writer) stop() {
	w.cancel()
	<-w.done
}

func (w *writer) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged)
}

// awaitProgress waits until some more writes have succeeded.
func (w *writer) awaitProgress(t *testing.T) {
	t.Helper()
	before := w.count()
	eventually(t, "writes to succeed", func() bool { return w.count() >= before+20 })
}

// requireAll fails the test unless every object that was acknowledged is there.
func (w *writer) requireAll(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	w.stop()
	list, err := c.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for _, object := range list.Items {
		there[object.Name] = true
	}
	lost := slices.DeleteFunc(slices.Clone(w.acknowledged), func(name string) bool { return there[name] })
	if len(lost) > 0 {
		t.Errorf("%d of %d acknowledged objects are lost, the first is %s", len(lost), len(w.acknowledged), lost[0])
	}
	t.Logf("%d acknowledged objects are all there", len(w.acknowledged)-len(lost))
}
