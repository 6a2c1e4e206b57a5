// Package steady tells what has changed of objects while what looks after them was replaced.
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

// pause is how long to wait before looking again for what could not be seen: a definition is being replaced.
const pause = 20 * time.Millisecond

// Objects are those of one namespace, and those without one.
type Objects struct {
	// Config is the administrator's.
	Config *rest.Config
	// Namespace is that of the objects that have one.
	Namespace string
	// Kinds are ours, each of which has the condition Ready; Children is what they make.
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

// AwaitSettled waits until every object is ready, or as it is asked to be, and there is one of each kind.
func (o *Objects) AwaitSettled(t testing.TB) {
	t.Helper()
	o.awaitSettledAnd(t, func() bool { return true })
}

// AwaitStill waits until all objects have settled and nothing has changed for that long, and returns what there is then, as
// Snapshot does.
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
					problems = append(problems, "a component of a cluster is still starting") // Ready is about its API
				}
				if !isReady(object) {
					problems = append(problems, fmt.Sprintf("%s %s: Ready is %s", resource.Resource, object.GetName(), conditionOf(object, "Ready")))
				}
			}
			if !found {
				problems = append(problems, "there are no "+resource.Resource)
			}
		}
		return also() && len(problems) == 0
	})
}

// isReady reports whether an object is ready, or stopped because it is asked to be.
func isReady(object *unstructured.Unstructured) bool {
	word := conditionOf(object, "Ready")
	return word == "True" || word == "False Stopped"
}

// conditionOf returns the status of a condition, and the reason if it is not True.
func conditionOf(object *unstructured.Unstructured, name string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // it has another form: it is not ready
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

// Snapshot returns what must stay the same, by resource and name: specs, identities, and conditions with their reasons and times.
// Fields that count elapsed time, the messages of conditions (a later version may word them differently) and the Pods of Jobs
// are left out.
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
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // it may have none
			for _, condition := range conditions {
				if c, ok := condition.(map[string]any); ok {
					delete(c, "message")
				}
			}
			restarts, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "restarts")
			raw, err := json.Marshal(map[string]any{
				"uid": object.GetUID(), "generation": object.GetGeneration(), "spec": object.Object["spec"], "data": object.Object["data"],
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

// isOfJob reports whether it is a Pod of a Job.
func isOfJob(object *unstructured.Unstructured) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == "Job"
}

// WatchReady notes, until what it returns is called, every moment at which an object is not ready.
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
				if o.isHere(object) && (event == watch.Deleted || !isReady(object)) {
					note("%s %s: %s, Ready is %s", resource.Resource, object.GetName(), event, conditionOf(object, "Ready"))
				}
			})
			if err != nil {
				note("%s: nobody has looked any more: %v", resource.Resource, err)
			}
		})
	}
	return func() []string {
		cancel()
		running.Wait()
		return seen
	}
}

// follow sees all objects of a resource, and every change, until the context ends. When a definition is changed, the API
// server ends its watches, and none can go on from where it was: then all objects are seen anew. What was between is in the
// times of conditions, which Snapshot has.
func follow(ctx context.Context, objects dynamic.ResourceInterface, see func(*unstructured.Unstructured, watch.EventType)) error {
	for ctx.Err() == nil {
		var watcher watch.Interface
		err := wait.PollUntilContextTimeout(ctx, pause, harness.Patience, true, func(ctx context.Context) (bool, error) {
			list, err := objects.List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, nil // the API server is busy with the new definition
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

// CheckRuns checks that there is one Job for each second since the first, and that many at least. All Jobs of the namespace
// are those of one CronTab.
func (o *Objects) CheckRuns(t testing.TB, atLeast int) {
	t.Helper()
	times := o.Runs(t)
	for i := 1; i < len(times); i++ {
		if times[i] != times[i-1]+1 {
			t.Errorf("after the run of %d comes that of %d", times[i-1], times[i])
		}
	}
	t.Logf("%d runs of the CronTab, one a second", len(times))
	if len(times) < atLeast {
		t.Errorf("there are only %d runs", len(times))
	}
}

// Runs returns the scheduled times of the Jobs of the namespace, in order, in seconds since 1970.
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
