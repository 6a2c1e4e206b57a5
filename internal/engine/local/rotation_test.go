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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// TestRotationWithoutAGap lets half a year and more go by for a cluster that runs, while somebody uses it who reads the
// Secret again before each request. The clock begins in the past, because the components have no other than the
// machine's.
func TestRotationWithoutAGap(t *testing.T) {
	t.Parallel()
	const step = 200 * 24 * time.Hour
	fakeClock := clocktesting.NewFakeClock(time.Now().Add(-step))
	opts := newOptions(t)
	opts.Clock = fakeClock
	engine := local.New(opts)
	api := harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme))
	namespace := env.Namespace(t)
	name := strings.Replace(namespace, "test-", "rotation-", 1)
	recorder := events.NewFakeRecorder(100)
	stop := reconcileUntilStopped(t, api, name, cluster.NewReconciler(api, api, recorder, cluster.Options{
		Engines:         map[v1alpha1.Engine]cluster.Engine{v1alpha1.EngineLocal: engine},
		SecretNamespace: namespace, Prober: cluster.NewProber(clock.RealClock{}), Clock: fakeClock,
	}))
	defer stop()
	if err := api.Create(t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, api, name)

	user := &user{api: api, key: client.ObjectKey{Namespace: namespace, Name: name + "-kubeconfig"}}
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
		return strings.Contains(strings.Join(harness.Events(recorder), "\n"), v1alpha1.ReasonKubeconfigRotated)
	})

	if err := api.Delete(t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the Cluster is gone", func() bool {
		return apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.Cluster{}))
	})
	stop()
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}

// reconcileUntilStopped reconciles one Cluster again and again. The function that it returns ends that, and may be called
// again.
func reconcileUntilStopped(t *testing.T, api client.Client, name string, r *cluster.Reconciler) func() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			c := &v1alpha1.Cluster{}
			if api.Get(ctx, client.ObjectKey{Name: name}, c) != nil {
				continue // there is none yet, or not any more
			}
			if _, err := r.Reconcile(ctx, c); err != nil && ctx.Err() == nil {
				t.Errorf("Reconcile: %v", err)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
		r.Prober.Close()
	}
}

func awaitReady(t *testing.T, api client.Client, name string) {
	t.Helper()
	harness.Eventually(t, "the Cluster is ready", func() bool {
		c := &v1alpha1.Cluster{}
		return api.Get(t.Context(), client.ObjectKey{Name: name}, c) == nil &&
			meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
	})
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

// TestRevokedKubeconfig asks for new credentials for a cluster that runs: the old kubeconfig works until the overlap is over,
// and the new one from the moment on at which it is in the Secret.
func TestRevokedKubeconfig(t *testing.T) {
	t.Parallel()
	fakeClock := clocktesting.NewFakeClock(time.Now())
	opts := newOptions(t)
	opts.Clock = fakeClock
	engine := local.New(opts)
	api := harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme))
	namespace := env.Namespace(t)
	name := strings.Replace(namespace, "test-", "revoked-", 1)
	stop := reconcileUntilStopped(t, api, name, cluster.NewReconciler(api, api, events.NewFakeRecorder(100), cluster.Options{
		Engines:         map[v1alpha1.Engine]cluster.Engine{v1alpha1.EngineLocal: engine},
		SecretNamespace: namespace, Prober: cluster.NewProber(clock.RealClock{}), Clock: fakeClock,
	}))
	defer stop()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := api.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, api, name)
	user := &user{api: api, key: client.ObjectKey{Namespace: namespace, Name: name + "-kubeconfig"}}
	leaked, err := user.read(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "1"}}}`, v1alpha1.AnnotationRotateCredentials)
	if err := api.Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
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
		err := api.Get(t.Context(), client.ObjectKey{Name: name}, c)
		return err == nil && c.Status.RotatedCredentials == "1" && c.Status.LastOperation.State == v1alpha1.OperationSucceeded
	})
	if c.Status.LastOperation.Type != v1alpha1.OperationRotate {
		t.Errorf("the last operation is %s", c.Status.LastOperation.Type)
	}
	awaitReady(t, api, name)
	fakeClock.Step(v1alpha1.DefaultCredentialsOverlap)
	harness.Eventually(t, "the old kubeconfig is refused", func() bool {
		err := request(t.Context(), leaked)
		return err != nil && strings.HasPrefix(err.Error(), "401 ")
	})
	work.awaitRequests(t, 10)
	if made, refused := work.end(); len(refused) > 0 {
		t.Errorf("with the new kubeconfig, %d of %d requests were refused: %v", len(refused), made, refused[0])
	}

	if err := api.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the Cluster is gone", func() bool {
		return apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.Cluster{}))
	})
	stop()
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}
