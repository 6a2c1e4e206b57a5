// Package kinds creates objects of all kinds, changes them at random, and compares the state with
// the objects. It serves tests of the whole manager.
package kinds

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterprovisionerv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	samplecontrollerv1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	virtualmachinev1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// Controllers are the controllers of these kinds, for --controllers.
const Controllers = "foo,sampleresource,crontab,virtualmachine,cluster,kubeconfig"

// World is a namespace with objects.
type World struct {
	client.WithWatch
	// Namespace is the namespace of the objects.
	Namespace string
	// History is the number of Jobs that a CronTab keeps. A manager deletes no surplus Jobs in its
	// first minute.
	History int32
	// Step is the time between two runs of a CronTab, give or take a half, in whole seconds.
	// Kubernetes' own controllers have to complete the runs as well: they manage some Jobs a
	// second.
	Step time.Duration

	random *rand.Rand
	// names are the names of the objects by kind, dropped those of the deleted objects.
	names   map[string][]string
	dropped map[string][]string
	// rescheduled counts the changes of CronTab schedules.
	rescheduled int
	// stateDir is the state directory of the managers on this machine.
	stateDir string

	mu sync.Mutex
	// clusters are the UIDs of all Clusters ever created.
	clusters []types.UID
}

// New returns a world without objects. The namespace must exist.
func New(t testing.TB, config *rest.Config, namespace string, seed uint64) *World {
	t.Helper()
	scheme := harness.Scheme(t, samplev1.AddToScheme, samplecontrollerv1alpha1.AddToScheme, stablev1.AddToScheme, virtualmachinev1alpha1.AddToScheme,
		clusterprovisionerv1alpha1.AddToScheme)
	config = rest.CopyConfig(config)
	config.QPS = -1
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &World{
		WithWatch: c, Namespace: namespace, History: 1000, Step: 2 * time.Second, random: rand.New(rand.NewPCG(seed, 2)),
		names: map[string][]string{}, dropped: map[string][]string{},
	}
}

const (
	foo     = "foo"
	sample  = "sample"
	cronTab = "crontab"
	machine = "machine"
	cluster = "cluster"
)

// cheap are the kinds with many objects.
var cheap = []string{foo, sample, cronTab, machine}

// Create creates n objects of each kind except Cluster.
func (w *World) Create(t testing.TB, n int) {
	t.Helper()
	w.create(t, n, cheap...)
}

func (w *World) create(t testing.TB, n int, kinds ...string) {
	t.Helper()
	harness.Parallel(t, n*len(kinds), func(i int) error {
		return w.createOne(t.Context(), kinds[i%len(kinds)], fmt.Sprint(i/len(kinds)))
	})
	for _, kind := range kinds {
		for i := range n {
			w.names[kind] = append(w.names[kind], kind+"-"+fmt.Sprint(i))
		}
	}
}

func (w *World) createOne(ctx context.Context, kind, number string) error {
	object := w.newObject(kind, kind+"-"+number)
	if err := w.WithWatch.Create(ctx, object); err != nil {
		return fmt.Errorf("create %s %s: %w", kind, number, err)
	}
	if kind == cluster {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clusters = append(w.clusters, object.GetUID())
	}
	return nil
}

func (w *World) newObject(kind, name string) client.Object {
	about := metav1.ObjectMeta{Namespace: w.Namespace, Name: name}
	switch kind {
	case foo:
		return &samplecontrollerv1alpha1.Foo{ObjectMeta: about, Spec: samplecontrollerv1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](1)}}
	case sample:
		return &samplev1.SampleResource{ObjectMeta: about, Spec: samplev1.SampleResourceSpec{PodImage: "nginx:1"}}
	case machine:
		return &virtualmachinev1alpha1.VirtualMachine{ObjectMeta: about, Spec: virtualmachinev1alpha1.VirtualMachineSpec{Driver: "fake"}}
	case cluster:
		return &clusterprovisionerv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	return &stablev1.CronTab{ObjectMeta: about, Spec: stablev1.CronTabSpec{
		Schedule: stablev1.Schedule("@every " + w.Step.String()), SuccessfulJobsHistoryLimit: ptr.To(w.History),
		JobTemplate: &stablev1.JobTemplate{PodSpec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "busybox"}},
		}},
	}}
}

// ChangeOne changes the spec of one object, or replaces it with a new object.
func (w *World) ChangeOne(ctx context.Context) error {
	kind := cheap[w.random.IntN(len(cheap))]
	if len(w.names[cluster]) > 0 && w.random.IntN(20) == 0 {
		kind = cluster
	}
	i := w.random.IntN(len(w.names[kind]))
	name := w.names[kind][i]
	object := w.newObject(kind, name)
	if w.random.IntN(8) == 0 {
		if err := w.Delete(ctx, object); err != nil {
			return err
		}
		w.dropped[kind] = append(w.dropped[kind], name)
		number := fmt.Sprint(len(w.names[kind]) + len(w.dropped[kind]))
		w.names[kind][i] = kind + "-" + number
		return w.createOne(ctx, kind, number)
	}
	patch := map[string]string{
		foo:     fmt.Sprintf(`{"replicas":%d}`, w.random.IntN(3)),
		sample:  fmt.Sprintf(`{"podImage":"nginx:%d"}`, w.random.IntN(3)),
		cronTab: fmt.Sprintf(`{"schedule":"@every %s"}`, w.Step/2*time.Duration(1+w.random.IntN(3))),
		machine: fmt.Sprintf(`{"action":"%s"}`, []string{"active", "stopped"}[w.random.IntN(2)]),
		cluster: fmt.Sprintf(`{"apiServer":{"certSANs":["api-%d%s"]}}`, w.random.IntN(3), sanSuffix),
	}[kind]
	err := w.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"spec":`+patch+`}`)))
	if err == nil && kind == cronTab {
		w.rescheduled++
	}
	return err
}

// MostCreated returns the maximum number of children to create within a duration for all objects
// ever created, by URL path.
func (w *World) MostCreated(in time.Duration) map[string]int {
	ever := func(kind string) int { return len(w.names[kind]) + len(w.dropped[kind]) }
	return map[string]int{
		"/apis/apps/v1/namespaces/" + w.Namespace + "/deployments": ever(foo),
		"/api/v1/namespaces/" + w.Namespace + "/pods":              ever(sample),
		// The number of CronTabs is constant, with at least half a step between two runs. Each
		// starts with a run, and a new schedule may have one immediately.
		"/apis/batch/v1/namespaces/" + w.Namespace + "/jobs":   len(w.names[cronTab])*int(in/(w.Step/2)) + ever(cronTab) + w.rescheduled,
		"/apis/clusterprovisioner.rke.io/v1alpha1/kubeconfigs": ever(cluster),
		"/api/v1/namespaces/" + secretNamespace + "/secrets":   ever(cluster),
	}
}

// Suspend suspends all CronTabs, so that the state can settle.
func (w *World) Suspend(t testing.TB) {
	t.Helper()
	harness.Parallel(t, len(w.names[cronTab]), func(i int) error {
		return w.Patch(t.Context(), w.newObject(cronTab, w.names[cronTab][i]), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":true}}`)))
	})
}

// Differences returns the differences between the state and the objects; none if everything is as
// specified.
func (w *World) Differences(t testing.TB) []string {
	t.Helper()
	var all []string
	differs := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	objects, owned := w.list(t), w.children(t)
	for _, object := range objects {
		name := object.GetName()
		for _, problem := range statuscheck.Problems(object) {
			differs("%T %s: %s", object, name, problem)
		}
		children := owned[object.GetUID()]
		delete(owned, object.GetUID())
		reason := ""
		switch object := object.(type) {
		case *samplecontrollerv1alpha1.Foo:
			reason = isReady(object.Status.Conditions, "")
			compareFoo(object, children, differs)
		case *samplev1.SampleResource:
			reason = isReady(object.Status.Conditions, "")
			compareSample(object, children, differs)
		case *stablev1.CronTab:
			reason = isReady(object.Status.Conditions, "")
			if ptr.Deref(object.Spec.Suspend, false) {
				compareCronTab(object, children, differs)
			}
		case *virtualmachinev1alpha1.VirtualMachine:
			if object.Spec.Action == virtualmachinev1alpha1.ActionStopped {
				reason = isReady(object.Status.Conditions, virtualmachinev1alpha1.ReasonStopped)
			} else {
				reason = isReady(object.Status.Conditions, "")
			}
		case *clusterprovisionerv1alpha1.Cluster:
			reason = isReady(object.Status.Conditions, "")
			w.compareCluster(t, object, children, differs)
		case *clusterprovisionerv1alpha1.Kubeconfig:
			reason = isReady(object.Status.Conditions, "")
		}
		if reason != "" {
			differs("%T %s: %s", object, name, reason)
		}
	}
	if len(w.names[cluster]) > 0 {
		w.compareHost(t, objects, differs)
	}
	for uid, children := range owned {
		differs("%s and %d more belong to a deleted owner, %s", children[0].GetName(), len(children)-1, uid)
	}
	return all
}

// isReady returns why an object is not ready, or, with a reason, why it is not unready for that
// reason; "" if it is.
func isReady(conditions []metav1.Condition, unreadyFor string) string {
	ready := meta.FindStatusCondition(conditions, "Ready")
	switch {
	case ready == nil:
		return "condition Ready is missing"
	case unreadyFor == "" && ready.Status != metav1.ConditionTrue, unreadyFor != "" && ready.Reason != unreadyFor:
		return fmt.Sprintf("Ready is %s, %s: %s", ready.Status, ready.Reason, ready.Message)
	}
	return ""
}

func compareFoo(object *samplecontrollerv1alpha1.Foo, children []client.Object, differs func(string, ...any)) {
	if len(children) != 1 {
		differs("Foo %s has %d Deployments", object.Name, len(children))
		return
	}
	deployment, ok := children[0].(*appsv1.Deployment)
	if !ok || deployment.Name != object.Spec.DeploymentName || *deployment.Spec.Replicas != *object.Spec.Replicas ||
		deployment.Spec.Template.Spec.Containers[0].Image != object.Spec.Image {
		differs("Foo %s has a Deployment that differs from its spec", object.Name)
	}
}

func compareSample(object *samplev1.SampleResource, children []client.Object, differs func(string, ...any)) {
	if len(children) != 1 {
		differs("SampleResource %s has %d Pods", object.Name, len(children))
		return
	}
	if pod, ok := children[0].(*corev1.Pod); !ok || pod.Spec.Containers[0].Image != object.Spec.PodImage {
		differs("SampleResource %s has a Pod that differs from its spec", object.Name)
	}
}

func compareCronTab(object *stablev1.CronTab, children []client.Object, differs func(string, ...any)) {
	finished := 0
	for _, child := range children {
		if job, ok := child.(*batchv1.Job); ok && job.Status.CompletionTime != nil {
			finished++
		}
	}
	if limit := int(*object.Spec.SuccessfulJobsHistoryLimit); finished > limit {
		differs("CronTab %s has %d finished Jobs, want at most %d", object.Name, finished, limit)
	}
	if active := len(children) - finished; active != len(object.Status.Active) {
		differs("CronTab %s reports %d active Jobs, but %d are active", object.Name, len(object.Status.Active), active)
	}
}

// list returns all objects.
func (w *World) list(t testing.TB) []client.Object {
	t.Helper()
	return w.listAll(t, &samplecontrollerv1alpha1.FooList{}, &samplev1.SampleResourceList{}, &stablev1.CronTabList{}, &virtualmachinev1alpha1.VirtualMachineList{},
		&clusterprovisionerv1alpha1.ClusterList{}, &clusterprovisionerv1alpha1.KubeconfigList{})
}

// children returns the children of all objects, by the UID of the owner.
func (w *World) children(t testing.TB) map[types.UID][]client.Object {
	t.Helper()
	all := w.listAll(t, &appsv1.DeploymentList{}, &corev1.PodList{}, &batchv1.JobList{}, &clusterprovisionerv1alpha1.KubeconfigList{})
	var secrets corev1.SecretList
	if err := w.List(t.Context(), &secrets, client.InNamespace(secretNamespace)); err != nil {
		t.Fatalf("list Secrets: %v", err)
	}
	for i := range secrets.Items {
		all = append(all, &secrets.Items[i])
	}
	owned := map[types.UID][]client.Object{}
	for _, child := range all {
		if owner := metav1.GetControllerOf(child); owner != nil && !strings.Contains(owner.APIVersion, "apps/") && !strings.Contains(owner.APIVersion, "batch/") {
			owned[owner.UID] = append(owned[owner.UID], child)
		}
	}
	return owned
}

func (w *World) listAll(t testing.TB, lists ...client.ObjectList) []client.Object {
	t.Helper()
	var all []client.Object
	for _, list := range lists {
		if err := w.List(t.Context(), list, client.InNamespace(w.Namespace)); err != nil {
			t.Fatalf("list %T: %v", list, err)
		}
		items, err := meta.ExtractList(list)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			all = append(all, item.(client.Object))
		}
	}
	return all
}

// CreateNamespace creates the namespace of the world.
func (w *World) CreateNamespace(t testing.TB) {
	t.Helper()
	err := w.WithWatch.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Namespace}})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}
