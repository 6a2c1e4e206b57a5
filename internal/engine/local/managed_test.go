package local_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// managed is a local Cluster that a Reconciler looks after until it is stopped.
type managed struct {
	api        client.Client
	namespace  string // of the Secret
	cluster    *v1alpha1.Cluster
	engine     *local.Engine
	reconciler *cluster.Reconciler
	recorder   *events.FakeRecorder
	stop       func() // may be called again
}

// startManaged creates a Cluster, whose name has this prefix, and returns when it is ready.
func startManaged(t *testing.T, prefix string, opts local.Options) *managed {
	t.Helper()
	api, namespace := harness.Client(t, env.Config(t), harness.Scheme(t, v1alpha1.AddToScheme)), env.Namespace(t)
	m := &managed{api: api, namespace: namespace, engine: local.New(opts), recorder: events.NewFakeRecorder(1000)}
	m.cluster = &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: strings.Replace(namespace, "test-", prefix, 1)}}
	m.reconciler = cluster.NewReconciler(kube.NewBase(v1alpha1.SchemeGroupVersion.WithKind("Cluster"), api, api, m.recorder, opts.Clock), cluster.Options{
		Engines:         map[v1alpha1.Engine]cluster.Engine{v1alpha1.EngineLocal: m.engine},
		SecretNamespace: namespace, Prober: cluster.NewProber(clock.RealClock{}),
	})
	m.stop = reconcileUntilStopped(t, api, m.cluster.Name, m.reconciler)
	t.Cleanup(m.stop)
	if err := api.Create(t.Context(), m.cluster); err != nil {
		t.Fatal(err)
	}
	m.awaitReady(t)
	return m
}

// user returns somebody who reads the kubeconfig of the Cluster.
func (m *managed) user() *user {
	return &user{api: m.api, key: client.ObjectKey{Namespace: m.namespace, Name: m.cluster.Name + "-kubeconfig"}}
}

func (m *managed) awaitReady(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the Cluster is ready", func() bool {
		c := &v1alpha1.Cluster{}
		return m.api.Get(t.Context(), client.ObjectKeyFromObject(m.cluster), c) == nil &&
			meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
	})
}

// end deletes the Cluster and waits until it is gone.
func (m *managed) end(t *testing.T) {
	t.Helper()
	if err := m.api.Delete(t.Context(), m.cluster); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the Cluster is gone", func() bool {
		return apierrors.IsNotFound(m.api.Get(t.Context(), client.ObjectKeyFromObject(m.cluster), &v1alpha1.Cluster{}))
	})
	m.stop()
	if err := m.engine.Close(); err != nil {
		t.Error(err)
	}
}

// reconcileUntilStopped reconciles one Cluster again and again. The function that it returns ends that, and may be called
// again.
func reconcileUntilStopped(t *testing.T, api client.Client, name string, r *cluster.Reconciler) func() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			c := &v1alpha1.Cluster{}
			if api.Get(ctx, client.ObjectKey{Name: name}, c) != nil {
				continue // there is none yet, or not any more
			}
			if _, err := r.Reconcile(ctx, c); err != nil && ctx.Err() == nil {
				t.Errorf("Reconcile: %v", err)
			}
		}
	})
	return func() {
		cancel()
		running.Wait()
		r.Prober.Close()
	}
}
