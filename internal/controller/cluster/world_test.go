package cluster_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

func TestMain(m *testing.M) { env.Main(m) }

// prober is a cluster.Prober that answers what a test sets.
type prober struct {
	answers map[types.UID]*cluster.Probe
	asked   map[types.UID]string
}

func (p *prober) Notify(func(string)) {}
func (p *prober) Probe(t cluster.Target) (*cluster.Probe, error) {
	if p.asked == nil {
		p.asked = map[types.UID]string{}
	}
	p.asked[t.UID] = t.Cluster
	answer := p.answers[t.UID]
	if answer == nil {
		return nil, nil
	}
	taken := *answer
	return &taken, nil
}
func (p *prober) Targets() map[types.UID]string { return maps.Clone(p.asked) }
func (p *prober) Forget(uid types.UID)          { delete(p.asked, uid) }
func (p *prober) Close()                        {}

// world is a Cluster, whose cluster is a fake one.
type world struct {
	*stories.World[*v1alpha1.Cluster]
	*cluster.Reconciler
	name, namespace string
	client          client.WithWatch
	clock           *clocktesting.FakeClock
	outside         *fake.World
	engine          cluster.Engine
	prober          *prober
	issued          map[string]string // to users, see issue
}

// newWorld returns a world of its own for each test; they run in parallel.
func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return startWorld(t, stories.Server)
}

func startWorld(t *testing.T, api stories.API) *world {
	t.Helper()
	w := emptyWorld(t, api)
	return w.start()
}

// newWorldOn returns a world on an API server and in a namespace of it.
func newWorldOn(t *testing.T, config *rest.Config, namespace string) *world {
	t.Helper()
	w := emptyWorld(t, stories.Server)
	w.Namespace, w.Client = namespace, harness.Client(t, config, harness.Scheme(t, v1alpha1.AddToScheme))
	return w.start()
}

func emptyWorld(t *testing.T, api stories.API) *world {
	t.Helper()
	return &world{World: stories.New[*v1alpha1.Cluster](t, api, stories.Options{
		AddToScheme: v1alpha1.AddToScheme, Now: time.Now().Truncate(time.Second), Pause: 2 * time.Second,
		Cached: []client.ObjectList{&v1alpha1.ClusterList{}, &v1alpha1.KubeconfigList{}, &v1alpha1.ClusterSnapshotList{}, &corev1.SecretList{}},
	})}
}

func (w *world) start() *world {
	w.Helper()
	w.namespace, w.client, w.clock = w.Namespace, w.Client, w.Clock
	w.name = "cluster-" + strings.TrimPrefix(w.namespace, "test-")
	w.Key = client.ObjectKey{Name: w.name}
	w.outside = fake.NewWorld(w.clock)
	w.prober = &prober{answers: map[types.UID]*cluster.Probe{}}
	w.Start = func(cached, live client.WithWatch) reconcile.ObjectReconciler[*v1alpha1.Cluster] {
		w.engine = fake.New(w.outside)
		w.Reconciler = cluster.NewReconciler(w.base(cached, live), cluster.Options{
			Engines:         map[v1alpha1.Engine]cluster.Engine{v1alpha1.EngineLocal: w.engine, v1alpha1.EngineRKE: w.engine},
			SecretNamespace: w.namespace, Prober: w.prober,
		})
		return w.Reconciler
	}
	w.restart()
	w.Cleanup(w.cleanUp)
	return w
}

func (w *world) base(c client.Client, live client.Reader) kube.Base {
	return kube.NewBase(v1alpha1.SchemeGroupVersion.WithKind("Cluster"), c, live, w.Recorder, w.Clock)
}

// cleanUp lets the Cluster go: other tests see it, too.
func (w *world) cleanUp() {
	found := &v1alpha1.Cluster{}
	w.Helper()
	ctx := context.WithoutCancel(w.Context())
	w.cleanUpSnapshots(ctx)
	err := w.client.Get(ctx, client.ObjectKey{Name: w.name}, found)
	if apierrors.IsNotFound(err) {
		return
	}
	if err == nil {
		found.Finalizers, found.Spec.DeletionProtection = nil, false
		err = w.client.Update(ctx, found)
	}
	if err == nil {
		err = client.IgnoreNotFound(w.client.Delete(ctx, found))
	}
	if client.IgnoreNotFound(err) != nil {
		w.Errorf("Clean up: %v", err)
	}
	_ = w.client.Delete(ctx, &v1alpha1.Kubeconfig{ObjectMeta: metav1.ObjectMeta{Name: w.name}}) // there may be none
}

func (w *world) cleanUpSnapshots(ctx context.Context) {
	var snapshots v1alpha1.ClusterSnapshotList
	_ = w.client.List(ctx, &snapshots)
	for i := range snapshots.Items {
		if s := &snapshots.Items[i]; s.Spec.ClusterName == w.name {
			_ = w.client.Delete(ctx, s)
		}
	}
}

// restart is a new process that remembers nothing.
func (w *world) restart() { w.Restart() }

func (w *world) do(err error) {
	w.Helper()
	w.Do(err)
}

// create creates the Cluster.
func (w *world) create(change ...func(*v1alpha1.Cluster)) {
	w.Helper()
	c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: w.name}}
	for _, change := range change {
		change(c)
	}
	status := c.Status
	w.do(w.client.Create(w.Context(), c))
	if status.Conditions != nil || status.AppliedConfig != "" {
		c.Status = status
		w.do(w.client.Status().Update(w.Context(), c))
	}
}

// get returns the Cluster as it is; nil if it is gone.
func (w *world) get() *v1alpha1.Cluster {
	w.Helper()
	if w.IsGone() {
		return nil
	}
	return w.Object()
}

// change changes the Cluster.
func (w *world) change(change func(*v1alpha1.Cluster)) { w.Change(change) }

// delete asks for the deletion of the Cluster.
func (w *world) delete() { w.Delete() }

// secret returns the Secret with the kubeconfig; nil if there is none.
func (w *world) secret() *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{}
	err := w.client.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: w.name + "-kubeconfig"}, s)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do(err)
	return s
}

// kubeconfig returns the Kubeconfig; nil if there is none.
func (w *world) kubeconfig() *v1alpha1.Kubeconfig {
	w.Helper()
	k := &v1alpha1.Kubeconfig{}
	err := w.client.Get(w.Context(), client.ObjectKey{Name: w.name}, k)
	if apierrors.IsNotFound(err) {
		return nil
	}
	w.do(err)
	return k
}

// answer sets how the API of the cluster answers from now on.
func (w *world) answer(probe cluster.Probe) { w.prober.answers[w.get().UID] = &probe }

// well is the answer of an API that is well.
func well() cluster.Probe { return cluster.Probe{OK: true, Version: "v1.36.3"} }

// reconcile reconciles once; nothing if the Cluster is gone.
func (w *world) reconcile() reconcile.Result {
	w.Helper()
	if w.IsGone() {
		return reconcile.Result{}
	}
	return w.ReconcileOnce()
}

// settle reconciles, and lets the time pass that Reconcile asks for, until nothing changes any more.
func (w *world) settle() {
	w.Helper()
	quiet := 0
	for range 30 {
		before := len(w.Writes)
		result := w.reconcile()
		if len(w.Writes) == before {
			if quiet++; result.RequeueAfter == 0 || quiet == 2 {
				return
			}
		} else {
			quiet = 0
		}
		w.clock.SetTime(w.clock.Now().Add(min(result.RequeueAfter, 2*time.Second)))
	}
	w.Fatalf("Still busy after 30 reconciles: %v", w.Writes[max(0, len(w.Writes)-10):])
}

// pass lets time pass.
func (w *world) pass(d time.Duration) { w.Pass(d) }

// events returns the events since the last call.
func (w *world) events() string { return strings.Join(w.Events(), "\n") }

// expect fails the test if a condition has not this status and reason.
func (w *world) expect(condition string, status metav1.ConditionStatus, reason string) metav1.Condition {
	w.Helper()
	found := meta.FindStatusCondition(w.get().Status.Conditions, condition)
	if found == nil {
		w.Errorf("%s is missing", condition)
		return metav1.Condition{}
	}
	if found.Status != status || found.Reason != reason {
		w.Errorf("%s is %s, %s: %s; want %s, %s", condition, found.Status, found.Reason, found.Message, status, reason)
	}
	return *found
}

// expectPhase fails the test if the phase is another, or the reason that explains it.
func (w *world) expectPhase(phase v1alpha1.ClusterPhase, reason string) {
	w.Helper()
	status := w.get().Status
	if status.Phase != phase || status.Reason != reason || status.Message == "" {
		w.Errorf("the phase is %s, %s: %q; want %s, %s", status.Phase, status.Reason, status.Message, phase, reason)
	}
}

// expectWhole fails the test unless the cluster is there with all that belongs to it.
func (w *world) expectWhole() {
	w.Helper()
	w.expect(v1alpha1.ConditionProvisioned, "True", v1alpha1.ReasonApplied)
	w.expect(v1alpha1.ConditionKubeconfigAvailable, "True", v1alpha1.ReasonKubeconfigWritten)
	c := w.get()
	statuscheck.Verify(w, c)
	secret, kubeconfig := w.secret(), w.kubeconfig()
	if secret == nil || kubeconfig == nil {
		w.Fatalf("Secret %v, Kubeconfig %v", secret, kubeconfig)
	}
	if len(secret.Data[v1alpha1.SecretKey]) == 0 || secret.Type != v1alpha1.SecretTypeKubeconfig || secret.Labels[v1alpha1.LabelClusterName] != w.name {
		w.Errorf("the Secret is of type %s with the labels %v and %d bytes", secret.Type, secret.Labels, len(secret.Data[v1alpha1.SecretKey]))
	}
	for _, child := range []client.Object{secret, kubeconfig} {
		if len(child.GetOwnerReferences()) != 1 || !metav1.IsControlledBy(child, c) || child.GetOwnerReferences()[0].APIVersion != v1alpha1.SchemeGroupVersion.String() {
			w.Errorf("%T has the owners %+v", child, child.GetOwnerReferences())
		}
	}
	users := map[string]string{}
	for _, u := range c.Spec.Users {
		if data := w.issued[u.Name]; data != "" {
			users[u.Name] = data
		}
	}
	w.expectUsers(users)
	if names := fmt.Sprint(w.outside.Names()); names != "["+w.name+"]" {
		w.Errorf("clusters outside: %s", names)
	}
}

// expectNothing fails the test if anything is left.
func (w *world) expectNothing() {
	w.Helper()
	if c := w.get(); c != nil {
		w.Errorf("the Cluster is still there: %+v", c.Status.Conditions)
	}
	if s, k := w.secret(), w.kubeconfig(); s != nil || k != nil {
		w.Errorf("left behind: Secret %v, Kubeconfig %v", s != nil, k != nil)
	}
	if names := w.outside.Names(); len(names) > 0 {
		w.Errorf("clusters outside: %v", names)
	}
}

// made creates the Cluster and lets it become whole and ready.
func (w *world) made(change ...func(*v1alpha1.Cluster)) {
	w.Helper()
	w.create(change...)
	w.answer(well())
	w.settle()
	w.expectWhole()
}
