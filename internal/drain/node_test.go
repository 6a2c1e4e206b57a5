package drain_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/drain"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestMain(m *testing.M) { env.Main(m) }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A Pod that a PodDisruptionBudget keeps on a node does not delay the eviction of the others.
func TestNodeEvictsOtherPods(t *testing.T) {
	config := rest.CopyConfig(env.Config(t))
	var lock sync.Mutex
	var evicted []string
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if path, found := strings.CutSuffix(r.URL.Path, "/eviction"); found {
				lock.Lock()
				evicted = append(evicted, path[strings.LastIndex(path, "/")+1:])
				lock.Unlock()
			}
			return next.RoundTrip(r)
		})
	})
	client, namespace := kubernetes.NewForConfigOrDie(config), env.Namespace(t)
	guarded(t, client, namespace)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- drain.Node(ctx, client, namespace, harness.WaitTimeout) }()
	harness.Eventually(t, "both Pods are evicted", func() bool {
		lock.Lock()
		defer lock.Unlock()
		return len(evicted) >= 2
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("the node is empty, in spite of the PodDisruptionBudget")
	}
	if evicted[0] != "guarded" || evicted[1] != "other" {
		t.Errorf("the evicted Pods are %q", evicted)
	}
}

// guarded creates a node that is called as the namespace, and two Pods on it, the first one with a PodDisruptionBudget.
func guarded(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Nodes().Delete(context.Background(), namespace, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}} // which no controller creates here
	if _, err := client.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"guarded", "other"} {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: namespace, Containers: []corev1.Container{{Name: "app", Image: "app"}}},
		}
		pod, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status.Phase = corev1.PodRunning // a budget holds for no Pod that is Pending
		if _, err := client.CoreV1().Pods(namespace).UpdateStatus(t.Context(), pod, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}, Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "guarded"}},
	}}
	if _, err := client.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), budget, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
