package manager

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	samplecontrollerv1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/manager/election"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// soon is how long a test waits for what takes a moment on an idle machine.
const soon = harness.WaitTimeout

// running is a manager that was started.
type running struct {
	*Manager
	stop   context.CancelFunc
	result chan error
}

func start(t *testing.T, o Options, all ...Controller) *running {
	t.Helper()
	return startWith(t, env.Config(t), o, all...)
}

func startWith(t *testing.T, cfg *rest.Config, o Options, all ...Controller) *running {
	t.Helper()
	if err := prepare(&o, all); err != nil {
		t.Fatal(err)
	}
	m, err := newManager(cfg, o, all)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &running{Manager: m, stop: stop, result: make(chan error, 1)}
	go func() { r.result <- m.Start(ctx) }()
	t.Cleanup(stop)
	return r
}

// within waits for a value from a channel, or for its end.
func within[T any](t *testing.T, what string, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(soon):
		t.Fatalf("waited %v for %s", soon, what)
		panic("unreachable")
	}
}

func newFoo(t *testing.T, c client.Client, namespace, name string) *samplecontrollerv1alpha1.Foo {
	t.Helper()
	foo := &samplecontrollerv1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       samplecontrollerv1alpha1.FooSpec{DeploymentName: name},
	}
	if err := c.Create(t.Context(), foo); err != nil {
		t.Fatalf("create Foo %s/%s: %v", namespace, name, err)
	}
	return foo
}

// get returns the status code and the body of an endpoint.
func get(t *testing.T, address, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatalf("get %s: %v", path, err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return response.StatusCode, string(body)
}

// reporting is a controller that sends the name of each object that it is given.
func reporting(name string, seen chan<- types.NamespacedName) Controller {
	return newTestController(name, func(client.Client) reconcile.Func {
		return func(_ context.Context, request reconcile.Request) (reconcile.Result, error) {
			seen <- request.NamespacedName
			return reconcile.Result{}, nil
		}
	})
}

func TestManagerRunsAndServes(t *testing.T) {
	c := newTestClient(t, env.Config(t))
	other, namespace := env.Namespace(t), env.Namespace(t)
	newFoo(t, c, other, "not-ours")
	foo := newFoo(t, c, namespace, "ours")
	foo.ManagedFields = nil

	seen := make(chan types.NamespacedName, 10)
	o := newTestOptions(t, namespace)
	onReady := make(chan struct{})
	o.OnReady = func() { close(onReady) }
	m := start(t, o, reporting("serves", seen))
	within(t, "the manager to be ready", m.Ready())
	within(t, "OnReady", onReady)

	if got, want := within(t, "a reconcile", seen), client.ObjectKeyFromObject(foo); got != want {
		t.Errorf("reconciled %v, want %v and nothing of another namespace", got, want)
	}
	cached := &samplecontrollerv1alpha1.Foo{}
	if err := m.GetClient().Get(t.Context(), client.ObjectKeyFromObject(foo), cached); err != nil {
		t.Errorf("read from the cache: %v", err)
	}
	if len(cached.ManagedFields) > 0 {
		t.Errorf("the cache keeps managedFields: %v", cached.ManagedFields)
	}
	for _, path := range []string{"/healthz", "/readyz", "/readyz/caches"} {
		if code, body := get(t, m.HealthAddress(), path); code != http.StatusOK {
			t.Errorf("%s: got %d, %s", path, code, body)
		}
	}
	_, body := get(t, m.MetricsAddress(), "/metrics")
	for _, metric := range []string{"keelson_build_info{", `controller_runtime_max_concurrent_reconciles{controller="serves"} 16`} {
		if !strings.Contains(body, metric) {
			t.Errorf("/metrics has no %s", metric)
		}
	}

	m.stop()
	if err := within(t, "the manager to stop", m.result); err != nil {
		t.Errorf("Start after a stop: %v", err)
	}
	for _, address := range []string{m.HealthAddress(), m.MetricsAddress()} {
		if connection, err := net.Dial("tcp", address); err == nil {
			_ = connection.Close()
			t.Errorf("%s is still served after the stop", address)
		}
	}
}

// A reconcile that is under way when the manager is told to stop finishes, its writes
// included; only then the lease is given up.
func TestStopLetsReconcilesFinish(t *testing.T) {
	c := newTestClient(t, env.Config(t))
	namespace := env.Namespace(t)
	foo := newFoo(t, c, namespace, "slow")
	lease := client.ObjectKey{Namespace: namespace, Name: "keelson"}
	holder := func() string {
		object := &coordinationv1.Lease{}
		if err := c.Get(t.Context(), lease, object); err != nil {
			t.Fatalf("read the lease: %v", err)
		}
		return ptr.Deref(object.Spec.HolderIdentity, "")
	}

	begun, finish := make(chan struct{}), make(chan struct{})
	slow := newTestController("slow", func(c client.Client) reconcile.Func {
		return func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
			foo := &samplecontrollerv1alpha1.Foo{}
			if err := c.Get(ctx, request.NamespacedName, foo); err != nil || foo.Status.AvailableReplicas == 7 {
				return reconcile.Result{}, err
			}
			close(begun)
			<-finish
			foo.Status.AvailableReplicas = 7
			return reconcile.Result{}, c.Status().Update(ctx, foo)
		}
	})
	closed := make(chan struct{})
	slow.AddWith = func(mgr ctrl.Manager, options controller.Options, o *Options) error {
		o.closers = append(o.closers, func() error { close(closed); return nil })
		return slow.Add(mgr, options)
	}
	o := newTestOptions(t, namespace)
	o.LeaderElection.Enabled = ptr.To(true)
	o.LeaderElection.Identity = "first"
	m := start(t, o, slow)
	within(t, "the reconcile to begin", begun)
	m.stop()

	// The stop has begun when the manager says that it is not ready any more.
	deadline := time.Now().Add(soon)
	for code := http.StatusOK; code == http.StatusOK; code, _ = get(t, m.HealthAddress(), "/readyz") {
		if time.Now().After(deadline) {
			t.Fatal("the manager stays ready while it stops")
		}
	}
	select {
	case err := <-m.result:
		t.Fatalf("the manager stopped before the reconcile: %v", err)
	default:
	}
	if got := holder(); got != "first" {
		t.Errorf("holder of the lease while a reconcile runs: got %q, want first", got)
	}
	select {
	case <-closed:
		t.Error("drivers are closed while a reconcile runs")
	default:
	}
	close(finish)
	if err := within(t, "the manager to stop", m.result); err != nil {
		t.Errorf("Start after a stop: %v", err)
	}
	within(t, "the drivers to be closed", closed)
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(foo), foo); err != nil {
		t.Fatalf("read the Foo: %v", err)
	}
	if foo.Status.AvailableReplicas != 7 {
		t.Errorf("the reconcile did not finish: its last write is missing")
	}
	if got := holder(); got != "" {
		t.Errorf("holder of the lease after the stop: got %q, want none", got)
	}
}

// A second replica is ready with warm caches, does nothing while the first leads, and
// takes over when the first gives up its lease, long before that would run out.
func TestStandbyTakesOver(t *testing.T) {
	c := newTestClient(t, env.Config(t))
	namespace := env.Namespace(t)
	foo := newFoo(t, c, namespace, "foo")
	replica := func(identity string) (*running, chan types.NamespacedName) {
		seen := make(chan types.NamespacedName, 10)
		o := newTestOptions(t, namespace)
		o.LeaderElection = election.Options{
			Enabled: ptr.To(true), LockName: "lock", LockNamespace: namespace, Identity: identity,
			LeaseDuration: time.Hour, RenewDeadline: time.Minute, RetryPeriod: 50 * time.Millisecond,
		}
		return start(t, o, reporting(identity, seen)), seen
	}
	first, firstSeen := replica("first")
	within(t, "the first replica to lead", first.Ready())
	within(t, "the first replica to work", firstSeen)

	second, secondSeen := replica("second")
	within(t, "the second replica to fill its caches", second.readiness.synced)
	if code, body := get(t, second.HealthAddress(), "/readyz"); code != http.StatusOK {
		t.Errorf("/readyz of the second replica: got %d, %s", code, body)
	}
	cached := &samplecontrollerv1alpha1.Foo{}
	if err := second.GetClient().Get(t.Context(), client.ObjectKeyFromObject(foo), cached); err != nil {
		t.Errorf("read from the cache of the second replica: %v", err)
	}
	select {
	case <-second.Ready():
		t.Error("two replicas lead")
	case name := <-secondSeen:
		t.Errorf("the second replica reconciled %v while the first leads", name)
	default:
	}

	first.stop()
	if err := within(t, "the first replica to stop", first.result); err != nil {
		t.Errorf("Start of the first replica: %v", err)
	}
	within(t, "the second replica to lead", second.Ready())
	within(t, "the second replica to work", secondSeen)
	second.stop()
	if err := within(t, "the second replica to stop", second.result); err != nil {
		t.Errorf("Start of the second replica: %v", err)
	}
}

// A replica that never led stops as cleanly as one that did.
func TestStandbyStops(t *testing.T) {
	c := newTestClient(t, env.Config(t))
	namespace := env.Namespace(t)
	held := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "keelson"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("somebody"), LeaseDurationSeconds: ptr.To[int32](3600),
			RenewTime: ptr.To(metav1.NowMicro()), AcquireTime: ptr.To(metav1.NowMicro()),
		},
	}
	if err := c.Create(t.Context(), held); err != nil {
		t.Fatalf("create the lease: %v", err)
	}
	o := newTestOptions(t, namespace)
	o.LeaderElection.Enabled = ptr.To(true)
	m := start(t, o, idle("standby"))
	within(t, "the caches to sync", m.readiness.synced)
	m.stop()
	if err := within(t, "the manager to stop", m.result); err != nil {
		t.Errorf("Start after a stop: %v", err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(held), held); err != nil {
		t.Fatalf("read the lease: %v", err)
	}
	if got := ptr.Deref(held.Spec.HolderIdentity, ""); got != "somebody" {
		t.Errorf("holder of the lease: got %q, want somebody", got)
	}
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // nothing was accepted
	o := newTestOptions(t, "default")
	o.MetricsAddress = taken.Addr().String()
	all := []Controller{idle("port")}
	if err := prepare(&o, all); err != nil {
		t.Fatal(err)
	}
	_, err = newManager(env.Config(t), o, all)
	want := fmt.Sprintf("--metrics-bind-address=%s: ", taken.Addr())
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "choose another address, or 0") {
		t.Errorf("newManager: got %v, want %s... choose another address, or 0 for none", err, want)
	}
}

func TestRunEndsQuietlyWhenToldToStopDuringThePreflight(t *testing.T) {
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := newTestOptions(t, metav1.NamespaceDefault)
	time.AfterFunc(50*time.Millisecond, cancel)
	if err := run(ctx, &rest.Config{Host: closed.URL}, o, []Controller{idle("idle")}); err != nil {
		t.Errorf("run: %v", err)
	}
}
