// Package writer tests that an API loses nothing: it writes all the time, and remembers what was acknowledged.
package writer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/keelson-dev/keelson/internal/testing/await"
)

const (
	// retry is the pause after an error.
	retry = 10 * time.Millisecond
	// progressTimeout is the longest time without writes.
	progressTimeout = 3 * time.Minute
)

// Writer creates ConfigMaps all the time and remembers those that the API said it has.
type Writer struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu           sync.Mutex
	acknowledged []string
	// last is when the last write was acknowledged, or the writer has started.
	last    time.Time
	longest time.Duration
}

// Start starts a writer in the namespace default, which stops at the end of the test. connect returns a client: it is called again after
// each error, so that a new connection can reach another server.
func Start(t *testing.T, connect func() kubernetes.Interface, prefix string) *Writer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := &Writer{cancel: cancel, done: make(chan struct{}), last: time.Now()}
	go func() {
		defer close(w.done)
		api := connect()
		for i := 0; ctx.Err() == nil; i++ {
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%06d", prefix, i)}}
			// After an error nobody knows whether it is there; the next has another name.
			if _, err := api.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{}); err != nil {
				<-time.After(retry)
				api = connect()
				continue
			}
			w.acknowledge(object.Name)
		}
	}()
	t.Cleanup(w.Stop)
	return w
}

func (w *Writer) acknowledge(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	w.acknowledged = append(w.acknowledged, name)
	w.longest, w.last = max(w.longest, now.Sub(w.last)), now
}

// Stop stops the writer. It may be called again.
func (w *Writer) Stop() {
	w.cancel()
	<-w.done
}

// Count returns the number of acknowledged writes.
func (w *Writer) Count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acknowledged)
}

// LongestPause returns the longest time between two acknowledged writes since its last call.
func (w *Writer) LongestPause() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	longest := w.longest
	w.longest = 0
	return longest
}

// AwaitProgress waits until some more writes have succeeded.
func (w *Writer) AwaitProgress(t *testing.T) {
	t.Helper()
	before := w.Count()
	await.Until(t, progressTimeout, "writes succeed", func() bool { return w.Count() >= before+20 })
}

// RequireAll stops the writer, and fails the test unless every object that was acknowledged is there.
func (w *Writer) RequireAll(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	w.Stop()
	var list *corev1.ConfigMapList
	await.Until(t, progressTimeout, "the objects are read", func() bool { // one of several servers may be lost
		var err error
		list, err = c.CoreV1().ConfigMaps(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
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
