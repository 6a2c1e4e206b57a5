package harness

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/keelson-dev/keelson/internal/testing/await"
)

// Reconcilers that a test calls directly log nowhere. Without this, controller-runtime complains
// about a missing logger.
func init() { ctrl.SetLogger(logr.Discard()) }

// WaitTimeout is the timeout for events that take milliseconds on an idle machine.
const WaitTimeout = 3 * time.Minute

// RunManager runs a manager with one controller for one namespace until the end of the test. It
// returns once the caches are synced, with the counter of the manager's requests.
func RunManager(t *testing.T, config *rest.Config, scheme *runtime.Scheme, namespace string,
	add func(ctrl.Manager, controller.Options) error, reduce func(*cache.Options),
) *Requests {
	t.Helper()
	counted := &Requests{count: map[string]int{}}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.Wrap(counted.wrap)
	options := cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}}
	reduce(&options)
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Cache: options,
		// Log errors only; there should be none.
		Logger:  testr.NewWithOptions(t, testr.Options{Verbosity: -1}),
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
	})
	if err != nil {
		t.Fatalf("Build the manager: %v", err)
	}
	if err := add(mgr, controller.Options{MaxConcurrentReconciles: 16, SkipNameValidation: ptr.To(true)}); err != nil {
		t.Fatalf("Add the controller: %v", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := mgr.Start(ctx); err != nil {
			t.Errorf("Run the manager: %v", err)
		}
	})
	t.Cleanup(running.Wait)
	t.Cleanup(cancel)
	if !mgr.GetCache().WaitForCacheSync(ctx) {
		t.Fatal("The caches did not sync")
	}
	return counted
}

// Requests counts requests to the API server, except watches.
type Requests struct {
	mu    sync.Mutex
	count map[string]int
}

func (r *Requests) wrap(inner http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if !request.URL.Query().Has("watch") {
			r.mu.Lock()
			r.count[request.Method]++
			r.mu.Unlock()
		}
		return inner.RoundTrip(request)
	})
}

// Take returns the number of requests since the last call, by HTTP method.
func (r *Requests) Take() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.count
	r.count = map[string]int{}
	return taken
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Eventually waits until check is true, and fails the test after WaitTimeout.
func Eventually(t testing.TB, what string, check func() bool) {
	t.Helper()
	await.Until(t, WaitTimeout, what, check)
}

// Parallel calls do with the numbers from 0 to n-1, 16 at a time, and fails the test for each
// error.
func Parallel(t testing.TB, n int, do func(int) error) {
	t.Helper()
	numbers := make(chan int)
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for number := range numbers {
				if err := do(number); err != nil {
					t.Errorf("number %d: %v", number, err)
				}
			}
		})
	}
	for number := range n {
		numbers <- number
	}
	close(numbers)
	workers.Wait()
}

// Events returns the events recorded since the last call.
func Events(recorder *events.FakeRecorder) []string {
	var all []string
	for {
		select {
		case event := <-recorder.Events:
			all = append(all, event)
		default:
			return all
		}
	}
}
