package local_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// TestLongRotationWithoutAGap lets half a year and more go by for a cluster that runs, while somebody uses it who reads the
// Secret again before each request. The clock begins in the past, because the components have no other than the
// machine's.
func TestLongRotationWithoutAGap(t *testing.T) {
	t.Parallel()
	const step = 200 * 24 * time.Hour
	fakeClock := clocktesting.NewFakeClock(time.Now().Add(-step))
	opts := newOptions(t)
	opts.Clock = fakeClock
	m := startManaged(t, "rotation-", opts)

	user := m.user()
	before, err := user.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	work := user.start(t)
	work.awaitRequests(t, 10)
	harness.Eventually(t, "the renewal waits for its time", fakeClock.HasWaiters)
	fakeClock.Step(step)
	harness.Eventually(t, "the Secret has a new certificate", func() bool {
		after, err := user.read(t.Context())
		return err == nil && !bytes.Equal(after, before)
	})
	work.awaitRequests(t, 30)
	if made, refused := work.end(); len(refused) > 0 {
		t.Errorf("%d of %d requests were refused: %v", len(refused), made, refused[0])
	}
	if err := request(t.Context(), before); err != nil {
		t.Errorf("a copy of the old kubeconfig, whose certificate is still valid: %v", err)
	}
	harness.Eventually(t, "the rotation is told", func() bool {
		return strings.Contains(strings.Join(harness.Events(m.recorder), "\n"), v1alpha1.ReasonKubeconfigRotated)
	})

	m.end(t)
}

// user is somebody who has the right to read a Secret with a kubeconfig.
type user struct {
	api client.Client
	key client.ObjectKey
}

func (u *user) read(ctx context.Context) ([]byte, error) {
	var secret corev1.Secret
	err := u.api.Get(ctx, u.key, &secret)
	return secret.Data[v1alpha1.SecretKey], err
}

// request makes a request with a kubeconfig, on a connection of its own.
func request(ctx context.Context, data []byte) error {
	access, err := kubeconfig.Parse(data)
	if err != nil {
		return err
	}
	httpClient, err := rest.HTTPClientFor(access.Config)
	if err != nil {
		return err
	}
	defer httpClient.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, access.Server+"/api/v1/namespaces", nil)
	if err != nil {
		return err
	}
	r.Close = true
	response, err := httpClient.Do(r)
	if err != nil {
		return err
	}
	if err := response.Body.Close(); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", response.Status)
	}
	return nil
}

// work is what a user does all the time.
type work struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu      sync.Mutex
	made    int
	refused []error
}

// start makes one request after the other, each with what is in the Secret then.
func (u *user) start(t *testing.T) *work {
	w := &work{}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(t.Context())
	t.Cleanup(w.cancel)
	w.running.Go(func() {
		for ctx.Err() == nil {
			data, err := u.read(ctx)
			if err == nil {
				err = request(ctx, data)
			}
			if ctx.Err() != nil {
				return
			}
			w.mu.Lock()
			w.made++
			if err != nil {
				w.refused = append(w.refused, err)
			}
			w.mu.Unlock()
		}
	})
	return w
}

// awaitRequests waits for so many more requests.
func (w *work) awaitRequests(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.made
	}
	want := count() + n
	harness.Eventually(t, "requests are made", func() bool { return count() >= want })
}

// end returns how many requests were made, and why some were refused.
func (w *work) end() (made int, refused []error) {
	w.cancel()
	w.running.Wait()
	return w.made, w.refused
}

// TestLongRevokedKubeconfig asks for new credentials for a cluster that runs: the old kubeconfig works until the overlap is over,
// and the new one from the moment on at which it is in the Secret.
func TestLongRevokedKubeconfig(t *testing.T) {
	t.Parallel()
	fakeClock := clocktesting.NewFakeClock(time.Now())
	opts := newOptions(t)
	opts.Clock = fakeClock
	m := startManaged(t, "revoked-", opts)
	user, c := m.user(), m.cluster
	leaked, err := user.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	const patch = `{"spec": {"rotateRequestedAt": "2026-11-25T18:00:00Z"}}`
	if err := m.api.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the Secret has other credentials", func() bool {
		after, err := user.read(t.Context())
		return err == nil && !bytes.Equal(after, leaked)
	})
	work := user.start(t)
	work.awaitRequests(t, 10)
	if err := request(t.Context(), leaked); err != nil {
		t.Errorf("in the overlap, the old kubeconfig: %v", err)
	}
	harness.Eventually(t, "the status says what was done", func() bool {
		err := m.api.Get(t.Context(), client.ObjectKeyFromObject(c), c)
		return err == nil && c.Status.LastRotateRequestedAt != nil && c.Status.LastOperation.State == v1alpha1.OperationSucceeded
	})
	if c.Status.LastOperation.Type != v1alpha1.OperationRotate {
		t.Errorf("the last operation is %s", c.Status.LastOperation.Type)
	}
	m.awaitReady(t)
	fakeClock.Step(v1alpha1.DefaultCredentialsOverlap)
	harness.Eventually(t, "the old kubeconfig is refused", func() bool {
		err := request(t.Context(), leaked)
		return err != nil && strings.HasPrefix(err.Error(), "401 ")
	})
	work.awaitRequests(t, 10)
	if made, refused := work.end(); len(refused) > 0 {
		t.Errorf("with the new kubeconfig, %d of %d requests were refused: %v", len(refused), made, refused[0])
	}

	m.end(t)
}
