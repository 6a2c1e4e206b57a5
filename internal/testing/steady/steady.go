// Package steady compares objects before and after their controllers were replaced.
package steady

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// pause is the delay before a retry while a CRD is being replaced.
const pause = 20 * time.Millisecond

// Objects are the objects of one namespace and the cluster-scoped ones.
type Objects struct {
	// Config is the administrator's configuration.
	Config *rest.Config
	// Namespace is the namespace of namespaced objects.
	Namespace string
	// Kinds are Keelson's kinds, each with the condition Ready; Children are the kinds of their
	// children.
	Kinds, Children []schema.GroupVersionResource
}

func (o *Objects) client(t testing.TB) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// isHere reports whether an object is one of these.
func (o *Objects) isHere(object *unstructured.Unstructured) bool {
	return object.GetNamespace() == "" || object.GetNamespace() == o.Namespace
}

// AwaitSettled waits until each kind has objects and every object is ready, or stopped as
// specified.
func (o *Objects) AwaitSettled(t testing.TB) {
	t.Helper()
	o.awaitSettledAnd(t, func() bool { return true })
}

// AwaitStill waits until all objects have settled and nothing has changed for that long. It returns
// their state as Snapshot does.
func (o *Objects) AwaitStill(t testing.TB, long time.Duration) map[string]string {
	t.Helper()
	var last map[string]string
	var since time.Time
	o.awaitSettledAnd(t, func() bool {
		now := o.Snapshot(t)
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		return time.Since(since) > long
	})
	return last
}

func (o *Objects) awaitSettledAnd(t testing.TB, also func() bool) {
	t.Helper()
	var problems []string
	defer func() {
		if t.Failed() {
			t.Logf("not settled:\n%s", strings.Join(problems, "\n"))
		}
	}()
	harness.Eventually(t, "all objects have settled", func() bool {
		problems = nil
		for _, resource := range o.Kinds {
			list, err := o.client(t).Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for i := range list.Items {
				object := &list.Items[i]
				if !o.isHere(object) {
					continue
				}
				found = true
				problems = append(problems, statuscheck.Problems(object)...)
				if resource.Resource == "clusters" && conditionOf(object, "ControlPlaneAvailable") != "True" {
					problems = append(problems, "a component of a cluster is still starting") // Ready is about its API only
				}
				if conditionOf(object, "Ready") != "True" {
					problems = append(problems, fmt.Sprintf("%s %s: Ready is %s", resource.Resource, object.GetName(), conditionOf(object, "Ready")))
				}
			}
			if !found {
				problems = append(problems, "missing  "+resource.Resource)
			}
		}
		return also() && len(problems) == 0
	})
}

// conditionOf returns the status of a condition, and its reason unless it is True.
func conditionOf(object *unstructured.Unstructured, name string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // if malformed, it is not ready
	for _, condition := range conditions {
		if c, ok := condition.(map[string]any); ok && c["type"] == name {
			if c["status"] == "True" {
				return "True"
			}
			return fmt.Sprint(c["status"], " ", c["reason"])
		}
	}
	return "none"
}

// Snapshot returns the state that must stay the same, by resource and name: specs, identities, and
// conditions with their reasons and times. It omits fields that count elapsed time, the messages of
// conditions (which a later version may reword) and the Pods of Jobs.
func (o *Objects) Snapshot(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, resource := range slices.Concat(o.Kinds, o.Children) {
		list, err := o.client(t).Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if !o.isHere(object) || isOfJob(object) {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // there may be none
			for _, condition := range conditions {
				if c, ok := condition.(map[string]any); ok {
					delete(c, "message")
				}
			}
			spec, _, _ := unstructured.NestedMap(object.Object, "spec") // nil for a Secret
			restarts, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "restarts")
			raw, err := json.Marshal(map[string]any{
				"uid": object.GetUID(), "generation": object.GetGeneration(), "spec": spec, "data": object.Object["data"],
				"conditions": conditions, "restarts": restarts, "finalizers": object.GetFinalizers(), "owners": object.GetOwnerReferences(),
			})
			if err != nil {
				t.Fatal(err)
			}
			text, err := yaml.JSONToYAML(raw)
			if err != nil {
				t.Fatal(err)
			}
			all[resource.Resource+"/"+object.GetName()] = string(text)
		}
	}
	return all
}

// isOfJob reports whether an object is a Pod of a Job.
func isOfJob(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == "Job"
}

// WatchReady records every moment at which an object is not ready, until the returned function is
// called.
func (o *Objects) WatchReady(t testing.TB) (flaps func() []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var seen []string
	note := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, fmt.Sprintf(format, args...))
	}
	var running sync.WaitGroup
	for _, resource := range o.Kinds {
		client := o.client(t).Resource(resource)
		running.Go(func() {
			err := follow(ctx, client, func(object *unstructured.Unstructured, event watch.EventType) {
				if o.isHere(object) && (event == watch.Deleted || conditionOf(object, "Ready") != "True") {
					note("%s %s: %s, Ready is %s", resource.Resource, object.GetName(), event, conditionOf(object, "Ready"))
				}
			})
			if err != nil {
				note("%s: the watch ended: %v", resource.Resource, err)
			}
		})
	}
	return func() []string {
		cancel()
		running.Wait()
		return seen
	}
}

// follow passes all objects of a resource and every change to see, until the context ends. When a
// CRD is changed, the API server ends its watches and none can be resumed, so all objects are
// listed again. The transition times of conditions show what was missed; Snapshot has them.
func follow(ctx context.Context, objects dynamic.ResourceInterface, see func(*unstructured.Unstructured, watch.EventType)) error {
	for ctx.Err() == nil {
		var watcher watch.Interface
		err := wait.PollUntilContextTimeout(ctx, pause, harness.WaitTimeout, true, func(ctx context.Context) (bool, error) {
			list, err := objects.List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, nil // the API server is processing the new CRD
			}
			for i := range list.Items {
				see(&list.Items[i], watch.Added)
			}
			watcher, err = objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
			return err == nil, nil
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Bookmark {
				see(object, event.Type)
			}
		}
		watcher.Stop()
	}
	return nil
}

// CheckRuns checks that there is one Job for each second since the first one, and at least that
// many. All Jobs of the namespace belong to one CronTab.
func (o *Objects) CheckRuns(t testing.TB, atLeast int) {
	t.Helper()
	times := o.Runs(t)
	for i := 1; i < len(times); i++ {
		if times[i] != times[i-1]+1 {
			t.Errorf("the run of %d is followed by the run of %d", times[i-1], times[i])
		}
	}
	t.Logf("%d runs of the CronTab, one a second", len(times))
	if len(times) < atLeast {
		t.Errorf("only %d runs", len(times))
	}
}

// Runs returns the scheduled times of the Jobs of the namespace, in order, as Unix times.
func (o *Objects) Runs(t testing.TB) []int64 {
	t.Helper()
	clients, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := clients.BatchV1().Jobs(o.Namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var times []int64
	for i := range jobs.Items {
		at, err := time.Parse(time.RFC3339, jobs.Items[i].Annotations[batchv1.CronJobScheduledTimestampAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, at.Unix())
	}
	slices.Sort(times)
	return times
}
