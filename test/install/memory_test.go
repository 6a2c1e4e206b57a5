package install

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	samplev1alpha1 "github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// Numbers of objects. docs/sizing.md also has the memory for twice as many; it is the same,
// because most is used temporarily during their creation, and each hundred takes two processors a
// second.
const (
	manyCronTabs = 1000
	manyFoos     = 500
)

// memory is the memory of a process in bytes.
type memory struct {
	now, peak int64
}

func (m memory) String() string { return fmt.Sprintf("%d MB, at most %d MB", m.now/1e6, m.peak/1e6) }

// memoryOf returns the memory of the process of a container. The engine has its own PID namespace,
// so the process is found by its cgroup.
func memoryOf(t *testing.T, container string) memory {
	t.Helper()
	groups, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		raw, err := os.ReadFile(group)
		if err != nil || !bytes.Contains(raw, []byte(container)) {
			continue // it may have ended
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(group), "status"))
		if err != nil {
			t.Fatal(err)
		}
		return memory{now: bytesIn(t, string(status), "VmRSS:"), peak: bytesIn(t, string(status), "VmHWM:")}
	}
	t.Fatalf("no process in the cgroup of the container %s", container)
	return memory{}
}

// bytesIn returns a field of a status file of proc(5), which is in kB, in bytes.
func bytesIn(t *testing.T, status, name string) int64 {
	t.Helper()
	_, rest, _ := strings.Cut(status, "\n"+name)
	number, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		t.Fatalf("%s in\n%s: %v", name, status, err)
	}
	return n << 10
}

// resources returns the memory request and limit of the Deployment.
func (w *world) resources(t *testing.T) (request, limit int64) {
	t.Helper()
	for _, item := range []struct {
		field string
		to    *int64
	}{{"requests", &request}, {"limits", &limit}} {
		text := w.kubectl(t, "get", "deployment", "keelson-manager", "--namespace", home, "-o", "jsonpath={.spec.template.spec.containers[0].resources."+item.field+".memory}")
		*item.to = quantity(t, text)
	}
	return request, limit
}

// isEnough creates many objects, and checks that the manager fits into the memory request of the
// Deployment without them, and leaves more than a third of the limit free with them.
func (w *world) isEnough(t *testing.T, container string, idle memory) {
	t.Helper()
	const namespace = "many"
	w.namespace(t, namespace)
	w.createMany(t, namespace)
	busy := memoryOf(t, container)
	request, limit := w.resources(t)
	t.Logf("the manager uses %s; with %d CronTabs and %d Foos %s; its request is %d MB, its limit %d MB", idle, manyCronTabs, manyFoos, busy, request/1e6, limit/1e6)
	if idle.now > request {
		t.Errorf("without objects it uses %s, its request is %d MB", idle, request/1e6)
	}
	if busy.peak > limit*5/8 {
		t.Errorf("with many objects it uses %s of %d MB", busy, limit/1e6)
	}
}

// createMany creates CronTabs and Foos, and waits until the manager has processed them.
func (w *world) createMany(t *testing.T, namespace string) {
	t.Helper()
	config := rest.CopyConfig(w.admin)
	config.QPS = -1
	client, err := versioned.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	cronTabs, foos := client.StableV1().CronTabs(namespace), client.SamplecontrollerV1alpha1().Foos(namespace)
	var workers sync.WaitGroup
	for worker := range 8 {
		workers.Go(func() {
			for i := worker; i < manyCronTabs+manyFoos && !t.Failed(); i += 8 {
				var err error
				if i < manyCronTabs {
					_, err = cronTabs.Create(t.Context(), newCronTab(i), metav1.CreateOptions{})
				} else {
					_, err = foos.Create(t.Context(), newFoo(i), metav1.CreateOptions{})
				}
				if err != nil {
					t.Errorf("create number %d: %v", i, err)
				}
			}
		})
	}
	workers.Wait()
	if t.Failed() {
		t.FailNow()
	}
	transcript.Eventually(t, "all are ready", func() bool {
		tabs, err := cronTabs.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range tabs.Items {
			if !meta.IsStatusConditionTrue(tabs.Items[i].Status.Conditions, "Ready") {
				return false
			}
		}
		all, err := foos.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range all.Items {
			if !meta.IsStatusConditionTrue(all.Items[i].Status.Conditions, "Ready") {
				return false
			}
		}
		return true
	})
}

func newCronTab(i int) *stablev1.CronTab {
	return &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)},
		Spec: stablev1.CronTabSpec{
			Schedule: "@daily",
			JobTemplate: &stablev1.JobTemplate{PodSpec: corev1.PodSpec{
				RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{
					Name: "main", Image: "busybox", Command: []string{"sh", "-c", "date; echo done"}, Env: []corev1.EnvVar{{Name: "NUMBER", Value: strconv.Itoa(i)}},
				}},
			}},
		},
	}
}

// newFoo returns a Foo without pods, which the manager does not watch.
func newFoo(i int) *samplev1alpha1.Foo {
	name := fmt.Sprintf("many-%d", i)
	return &samplev1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       samplev1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](0)},
	}
}

func quantity(t *testing.T, text string) int64 {
	t.Helper()
	q, err := resource.ParseQuantity(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return q.Value()
}
