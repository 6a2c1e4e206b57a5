// Package stories tests how reconcilers survive faults: a World is one object and a reconciler that
// the test calls directly, and a Table has what may happen to the object while requests fail.
package stories

import (
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// API is where the objects of a World are.
type API string

const (
	// Server is the API server of the tests. Each World has a new namespace there.
	Server API = "server"
	// Memory is an API in memory for each World, see harness.Memory.
	Memory API = "memory"
)

// World is an object in an API, and a reconciler that the test calls directly. The API runs no
// controllers: the test plays them.
type World[O client.Object] struct {
	*testing.T
	Namespace string
	// Key is the key of the object.
	Key client.ObjectKey
	// Client has the indexes of the reconciler's cache, but reads from the API server.
	Client   client.WithWatch
	Clock    *clocktesting.FakeClock
	Recorder *events.FakeRecorder
	// Writes are the write requests of the reconciler since the last call of Wrote.
	Writes []harness.Request
	// Start returns the reconciler of a new process. cached reads from its cache, live from the API
	// server.
	Start func(cached, live client.WithWatch) reconcile.ObjectReconciler[O]

	options    Options
	cached     client.WithWatch
	reconciler reconcile.ObjectReconciler[O]
}

// Options are what differs between the worlds of kinds.
type Options struct {
	// Name is the name of the object.
	Name string
	// AddToScheme adds the types of the object.
	AddToScheme func(*runtime.Scheme) error
	// Indexes are the indexes of the reconciler.
	Indexes []kube.Index
	// Cached are lists of the types that the reconciler reads from its cache.
	Cached []client.ObjectList
	// Now is the time at first.
	Now time.Time
	// Pause is the longest pause that Settle lets pass; zero means five seconds.
	Pause time.Duration
}

// New returns a World. The caller sets its Start, and calls Restart.
func New[O client.Object](t *testing.T, api API, options Options) *World[O] {
	t.Helper()
	if options.Pause == 0 {
		options.Pause = 5 * time.Second
	}
	namespace, c := "memory", client.WithWatch(nil)
	if scheme := schemeOf[O](t, options); api == Memory {
		c = harness.Memory(t, scheme, options.Indexes...)
		// Its UID identifies an API.
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}); err != nil {
			t.Fatal(err)
		}
	} else {
		namespace, c = env.Namespace(t), clientOf[O](t, scheme, options)
	}
	return &World[O]{
		T:         t,
		Namespace: namespace,
		Key:       client.ObjectKey{Namespace: namespace, Name: options.Name},
		Client:    c,
		Clock:     clocktesting.NewFakeClock(options.Now),
		Recorder:  events.NewFakeRecorder(1000),
		options:   options,
	}
}

// schemes has a scheme for each kind, and clients has a client: a new one asks the API server for all its
// resources.
var schemes, clients sync.Map

func schemeOf[O client.Object](t *testing.T, options Options) *runtime.Scheme {
	t.Helper()
	kind := reflect.TypeFor[O]()
	if scheme, found := schemes.Load(kind); found {
		return scheme.(*runtime.Scheme)
	}
	scheme := harness.Scheme(t, options.AddToScheme)
	schemes.Store(kind, scheme)
	return scheme
}

func clientOf[O client.Object](t *testing.T, scheme *runtime.Scheme, options Options) client.WithWatch {
	t.Helper()
	kind := reflect.TypeFor[O]()
	if c, found := clients.Load(kind); found {
		return c.(client.WithWatch)
	}
	c := harness.Client(t, env.Config(t), scheme, options.Indexes...)
	clients.Store(kind, c)
	return c
}

// Restart replaces the process with a new one without state.
func (w *World[O]) Restart() { w.UseClient(w.Client) }

// UseClient is Restart with another client for the cache.
func (w *World[O]) UseClient(cached client.WithWatch) { w.useClients(cached, w.Client) }

func (w *World[O]) useClients(cached, live client.WithWatch) {
	w.cached = harness.Observe(cached, func(request harness.Request) error {
		if request.IsWrite() {
			w.Writes = append(w.Writes, request)
		}
		return nil
	}, func(harness.Request) error { return nil })
	w.reconciler = w.Start(w.cached, live)
}

// Cached returns the client of the process, which reads from its cache.
func (w *World[O]) Cached() client.WithWatch { return w.cached }

// Freeze restarts the process with a cache that keeps what there is now.
func (w *World[O]) Freeze() {
	w.Helper()
	w.UseClient(w.frozen(w.Client))
}

func (w *World[O]) frozen(c client.WithWatch) client.WithWatch {
	w.Helper()
	var lists []client.ObjectList
	for _, list := range w.options.Cached {
		lists = append(lists, list.DeepCopyObject().(client.ObjectList))
	}
	return harness.Frozen(w, c, w.Namespace, w.options.Indexes, lists...)
}

// Meanwhile restarts the process, and calls something before its next request with that verb.
func (w *World[O]) Meanwhile(verb string, something func()) {
	done := false
	w.UseClient(harness.Observe(w.Client, func(request harness.Request) error {
		if request.Verb == verb && !done {
			done = true
			something()
		}
		return nil
	}, func(harness.Request) error { return nil }))
}

// Do fails the test if there is an error.
func (w *World[O]) Do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// read returns the object as a client has it, and whether it exists.
func (w *World[O]) read(c client.Reader) (object O, found bool) {
	w.Helper()
	object = reflect.New(reflect.TypeFor[O]().Elem()).Interface().(O)
	err := c.Get(w.Context(), w.Key, object)
	w.Do(client.IgnoreNotFound(err))
	return object, err == nil
}

// Object returns the object. The test fails if it does not exist.
func (w *World[O]) Object() O {
	w.Helper()
	object, found := w.read(w.Client)
	if !found {
		w.Fatalf("%T %s does not exist", object, w.Key)
	}
	return object
}

// IsGone reports whether the object does not exist.
func (w *World[O]) IsGone() bool {
	w.Helper()
	_, found := w.read(w.Client)
	return !found
}

// Change updates the object.
func (w *World[O]) Change(change func(O)) {
	w.Helper()
	w.Do(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		object := w.Object()
		change(object)
		return w.Client.Update(w.Context(), object)
	}))
}

// Delete deletes the object.
func (w *World[O]) Delete() {
	w.Helper()
	w.Do(w.Client.Delete(w.Context(), w.Object()))
}

// ReconcileOnce reconciles the object. The test fails if that returns an error.
func (w *World[O]) ReconcileOnce() reconcile.Result {
	w.Helper()
	result, err := w.reconciler.Reconcile(w.Context(), w.Object())
	if err != nil {
		w.Fatalf("Reconcile: %v", err)
	}
	return result
}

// Step reconciles the object as the cache has it, if it has it, and lets the pause pass, unless it is
// a long one. Kinds override it to play other controllers as well.
func (w *World[O]) Step() (reconcile.Result, error) {
	w.Helper()
	object, found := w.read(w.cached)
	if !found {
		return reconcile.Result{}, nil
	}
	result, err := w.reconciler.Reconcile(w.Context(), object)
	w.Pass(min(result.RequeueAfter, w.options.Pause))
	return result, err
}

// Settle reconciles the object, and lets short pauses pass, until there is nothing more to do.
func (w *World[O]) Settle() {
	w.Helper()
	for range 40 {
		before := len(w.Writes)
		if w.IsGone() {
			return
		}
		pause := w.ReconcileOnce().RequeueAfter
		isShort := pause <= w.options.Pause
		if len(w.Writes) == before && (pause == 0 || !isShort) {
			return
		}
		if isShort {
			w.Pass(pause)
		}
	}
	w.Fatalf("Still busy after 40 reconciles: %v", w.Writes)
}

// Pass lets time pass.
func (w *World[O]) Pass(duration time.Duration) { w.Clock.SetTime(w.Clock.Now().Add(duration)) }

// Wrote returns the write requests since the last call.
func (w *World[O]) Wrote() []harness.Request {
	writes := w.Writes
	w.Writes = nil
	return writes
}

// Events returns the events since the last call.
func (w *World[O]) Events() []string { return harness.Events(w.Recorder) }

// EventReasons returns the types and reasons of the events since the last call, such as "Normal Created".
func (w *World[O]) EventReasons() []string {
	var all []string
	for _, event := range w.Events() {
		all = append(all, strings.Join(strings.Fields(event)[:2], " "))
	}
	return all
}

// Reasons returns the reasons of conditions of the object, after a check of the status; "gone" if it does not exist.
func (w *World[O]) Reasons(conditions ...string) string {
	w.Helper()
	if w.IsGone() {
		return "gone"
	}
	var reasons []string
	for _, condition := range conditions {
		reasons = append(reasons, w.Condition(condition).Reason)
	}
	return strings.Join(reasons, " ")
}

// Ready returns the condition Ready of the object without its time, after a check of the status.
func (w *World[O]) Ready() metav1.Condition {
	w.Helper()
	return w.Condition("Ready")
}

// Condition returns a condition of the object without its time, after a check of the status.
func (w *World[O]) Condition(name string) metav1.Condition {
	w.Helper()
	object := w.Object()
	statuscheck.Verify(w, object)
	return w.conditionOf(object, name)
}

func (w *World[O]) conditionOf(object O, name string) metav1.Condition {
	w.Helper()
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	w.Do(err)
	var has struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	w.Do(runtime.DefaultUnstructuredConverter.FromUnstructured(raw, &has))
	is := meta.FindStatusCondition(has.Status.Conditions, name)
	if is == nil {
		return metav1.Condition{}
	}
	is.LastTransitionTime = metav1.Time{}
	return *is
}

// HasReason reports whether the condition Ready of the object has this reason for the present spec.
func (w *World[O]) HasReason(reason string) bool {
	w.Helper()
	object := w.Object()
	is := w.conditionOf(object, "Ready")
	return is.Reason == reason && is.ObservedGeneration == object.GetGeneration()
}

// Eventually waits until check is true.
func (w *World[O]) Eventually(what string, check func() bool) {
	w.Helper()
	harness.Eventually(w, what, check)
}

// ExpectReady fails the test unless the condition Ready of the object has this status and reason.
func (w *World[O]) ExpectReady(status metav1.ConditionStatus, reason string) {
	w.Helper()
	if got := w.Ready(); got.Status != status || got.Reason != reason {
		w.Errorf("Ready is %s, %s: %s; want %s, %s", got.Status, got.Reason, got.Message, status, reason)
	}
}
