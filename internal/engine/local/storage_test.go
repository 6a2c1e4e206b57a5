package local_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A local Cluster whose etcd is full says so in its conditions, until there is room again.
func TestAFullEtcdIsACondition(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	opts.QuotaBytes, opts.StorageInterval = 16<<20, 100*time.Millisecond
	engine := local.New(opts)
	api := harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme))
	namespace := env.Namespace(t)
	name := strings.Replace(namespace, "test-", "full-", 1)
	stop := reconcileUntilStopped(t, api, name, cluster.NewReconciler(api, api, events.NewFakeRecorder(1000), cluster.Options{
		Engines:         map[v1alpha1.Engine]cluster.Engine{v1alpha1.EngineLocal: engine},
		SecretNamespace: namespace, Prober: cluster.NewProber(clock.RealClock{}), Clock: clock.RealClock{},
	}))
	defer stop()
	if err := api.Create(t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	awaitReady(t, api, name)
	data, err := (&user{api: api, key: client.ObjectKey{Namespace: namespace, Name: name + "-kubeconfig"}}).read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	access, err := kubeconfig.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	inside := kubernetes.NewForConfigOrDie(access.Config).CoreV1().ConfigMaps("default")
	for i := 0; err == nil; i++ {
		_, err = inside.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("filler-%d", i)},
			BinaryData: map[string][]byte{"data": bytes.Repeat([]byte("x"), 500_000)},
		}, metav1.CreateOptions{})
	}
	if !strings.Contains(err.Error(), "database space exceeded") {
		t.Fatal(err)
	}
	etcdHealthy := func() metav1.Condition {
		var c v1alpha1.Cluster
		if err := api.Get(t.Context(), client.ObjectKey{Name: name}, &c); err != nil {
			t.Fatal(err)
		}
		return *meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionEtcdHealthy)
	}
	harness.Eventually(t, "the condition says what to do", func() bool {
		c := etcdHealthy()
		return c.Status == metav1.ConditionFalse && c.Reason == v1alpha1.ReasonEtcdAlarm && strings.Contains(c.Message, "Delete objects")
	})
	if err := inside.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "there is room again", func() bool { return etcdHealthy().Status == metav1.ConditionTrue })

	if err := api.Delete(t.Context(), &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the Cluster is gone", func() bool {
		return apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKey{Name: name}, &v1alpha1.Cluster{}))
	})
	stop()
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}
