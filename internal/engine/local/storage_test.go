package local_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A local Cluster whose etcd is full says so in its conditions, until there is room again.
func TestLongAFullEtcdIsACondition(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	opts.QuotaBytes, opts.StorageInterval = 16<<20, 100*time.Millisecond
	m := startManaged(t, "full-", opts)
	data, err := m.user().read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	access, err := kubeconfig.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	inside := kubernetes.NewForConfigOrDie(access.Config).CoreV1().ConfigMaps("default")
	fillers := 0
	fill := func() {
		t.Helper()
		for err := error(nil); err == nil; fillers++ {
			_, err = inside.Create(t.Context(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filler-%d", fillers)},
				BinaryData: map[string][]byte{"data": bytes.Repeat([]byte("x"), 500_000)},
			}, metav1.CreateOptions{})
			if err != nil && !strings.Contains(err.Error(), "database space exceeded") {
				t.Log(err)
			}
		}
	}
	etcdHealthy := func() metav1.Condition {
		if err := m.api.Get(t.Context(), client.ObjectKeyFromObject(m.cluster), m.cluster); err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(m.cluster.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	}
	// A part of the database may be free pages, which a defragmentation gives back: fill these as well.
	harness.Eventually(t, "the condition says what to do", func() bool {
		fill()
		c := etcdHealthy()
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonEtcdAlarm && strings.Contains(c.Message, "Delete objects")
	})
	if err := inside.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "there is room again", func() bool { return etcdHealthy().Status == metav1.ConditionTrue })

	m.end(t)
}
