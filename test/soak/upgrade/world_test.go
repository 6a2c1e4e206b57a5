//go:build soak

package upgrade

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// world is what there is.
type world struct {
	config *rest.Config
	state  string
}

func (w *world) client(t *testing.T) dynamic.Interface {
	t.Helper()
	c, err := dynamic.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// awaitSettled waits until every object is ready, or as it is asked to be.
func (w *world) awaitSettled(t *testing.T) {
	t.Helper()
	w.awaitSettledAnd(t, func() bool { return true })
}

// awaitStill waits until all objects have settled and nothing has changed for a while, and returns what there is then:
// a component of a new cluster may start twice.
func (w *world) awaitStill(t *testing.T) map[string]string {
	t.Helper()
	var last map[string]string
	var since time.Time
	w.awaitSettledAnd(t, func() bool {
		now := w.snapshot(t)
		if !maps.Equal(now, last) {
			last, since = now, time.Now()
		}
		return time.Since(since) > after
	})
	return last
}

func (w *world) awaitSettledAnd(t *testing.T, also func() bool) {
	t.Helper()
	var problems []string
	defer func() {
		if t.Failed() {
			t.Logf("not settled:\n%s", strings.Join(problems, "\n"))
		}
	}()
	harness.Eventually(t, "all objects have settled", func() bool {
		problems = nil
		for _, resource := range resources[:6] {
			list, err := w.client(t).Resource(resource).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if len(list.Items) == 0 {
				problems = append(problems, "there are no "+resource.Resource)
			}
			for i := range list.Items {
				problems = append(problems, statuscheck.Problems(&list.Items[i])...)
				if resource.Resource == "clusters" && conditionOf(&list.Items[i], "ControlPlaneAvailable") != "True" {
					problems = append(problems, "a component of a cluster is still starting") // Ready is about its API
				}
				if word := readiness(&list.Items[i]); word != "True" && word != "False Stopped" {
					problems = append(problems, fmt.Sprintf("%s %s: Ready is %s", resource.Resource, list.Items[i].GetName(), word))
				}
			}
		}
		return also() && len(problems) == 0
	})
}

// readiness returns the status of Ready, and the reason if it is not True.
func readiness(object *unstructured.Unstructured) string { return conditionOf(object, "Ready") }

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

// snapshot returns what must stay the same: specs, identities, and when conditions changed. What counts the time that
// passes is left out.
func (w *world) snapshot(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, resource := range resources {
		list, err := w.client(t).Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range list.Items {
			if object.GetNamespace() != "" && object.GetNamespace() != namespace || isOfJob(&object) {
				continue
			}
			conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions") // it may have none
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

// processes returns the machines and the components of clusters that run.
func (w *world) processes() []string {
	all := slices.DeleteFunc(transcript.Left(w.state), func(line string) bool { return strings.Contains(line, " manager --") })
	slices.Sort(all)
	return all
}

// watchReady notes, until what it returns is called, every moment at which an object is not ready.
func (w *world) watchReady(t *testing.T) (flaps func() []string) {
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
	for _, resource := range resources[:6] {
		objects := w.client(t).Resource(resource)
		running.Go(func() {
			err := follow(ctx, objects, func(object *unstructured.Unstructured, event watch.EventType) {
				if word := readiness(object); event == watch.Deleted || word != "True" && word != "False Stopped" {
					note("%s %s: %s, Ready is %s", resource.Resource, object.GetName(), event, word)
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
// times of conditions, which snapshot has.
func follow(ctx context.Context, objects dynamic.ResourceInterface, see func(*unstructured.Unstructured, watch.EventType)) error {
	for ctx.Err() == nil {
		var watcher watch.Interface
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, managers.Patience, true, func(ctx context.Context) (bool, error) {
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

// checkRuns checks that there is one Job for each second since the first.
func (w *world) checkRuns(t *testing.T) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(w.config)
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := clients.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{})
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
	for i := 1; i < len(times); i++ {
		if times[i] != times[i-1]+1 {
			t.Errorf("after the run of %d comes that of %d", times[i-1], times[i])
		}
	}
	t.Logf("%d runs of the CronTab, one a second", len(times))
	if len(times) < int(after/time.Second) {
		t.Errorf("there are only %d runs", len(times))
	}
}

// deleteAll deletes everything and waits until nothing is left outside of the API: what the earlier version made, this one
// can remove.
func (w *world) deleteAll(t *testing.T, kubeconfig string) {
	t.Helper()
	shell := transcript.Shell{Env: map[string]string{"KUBECONFIG": kubeconfig, "HOME": t.TempDir()}}
	shell.OK(t, "kubectl", "delete", "keelson", "--all", "--timeout=50s")
	harness.Eventually(t, "no process is left", func() bool { return len(w.processes()) == 0 })
}

// endAll ends whatever a test that failed has left.
func endAll(t *testing.T, state string) {
	if !t.Failed() {
		return
	}
	for _, line := range transcript.Left(state) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil {
			signals.Try(t, pid, syscall.SIGKILL)
		}
	}
}
