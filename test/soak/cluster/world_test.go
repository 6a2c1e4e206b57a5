//go:build soak

package cluster_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

// waitTimeout is the timeout of all waits, with faults, on a busy machine.
const waitTimeout = 2 * time.Minute

// world is a private API and a manager for local clusters. Both can have faults.
type world struct {
	*testing.T
	host       string // data directory of the API
	kubeconfig string
	client     client.WithWatch
	state      string // state directory of the manager

	mu      sync.Mutex
	manager *managers.Manager
	begun   int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, host: filepath.Join(t.TempDir(), "host"), state: filepath.Join(t.TempDir(), "state")}
	cp := env.ControlPlane(t, controlplane.Options{Dir: w.host, APIOnly: true})
	env.Define(t, cp.Config())
	w.kubeconfig = cp.Kubeconfig()
	w.client = harness.Client(t, cp.Config(), harness.Scheme(t, v1alpha1.AddToScheme))
	t.Cleanup(func() { // after the managers, which are started later
		if _, err := local.StopAll(t.Context(), manager.ClusterDir(w.state)); err != nil { // the context has ended, so this kills
			t.Errorf("Clean up: %v", err)
		}
	})
	w.startManager()
	return w
}

// startManager starts the manager unless it is running.
func (w *world) startManager() {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.manager != nil {
		return
	}
	w.manager = managers.Start(w, fmt.Sprintf("manager-%d", w.begun), "--kubeconfig="+w.kubeconfig, "--controllers=cluster,kubeconfig",
		"--state-dir="+w.state, "--metrics-bind-address=0")
	w.begun++
}

// killManager kills the manager if it is running.
func (w *world) killManager() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.manager == nil {
		return
	}
	w.manager.End(w)
	w.manager = nil
}

// restartManager kills the manager and starts a new one.
func (w *world) restartManager() {
	w.killManager()
	w.startManager()
}

// dir is the data directory of a cluster.
func (w *world) dir(uid types.UID) string {
	return filepath.Join(manager.ClusterDir(w.state), string(uid))
}

// running returns the PIDs of the running components in a data directory, by name.
func running(dir string) map[string]int {
	statuses, _ := process.Peek(controlplane.Processes(dir)) // an unreadable record may be incomplete
	pids := map[string]int{}
	for _, s := range statuses {
		if s.State == process.Running {
			pids[s.ID] = s.PID
		}
	}
	return pids
}

func (w *world) killAll(dir string) {
	for _, pid := range running(dir) {
		signals.Try(w.T, pid, syscall.SIGKILL)
	}
}

// hurtAPI suspends the manager's API for a time, or with 0 kills it. It is restarted.
func (w *world) hurtAPI(d time.Duration) {
	pid := running(w.host)["kube-apiserver"]
	if d == 0 {
		signals.Try(w.T, pid, syscall.SIGKILL)
		return
	}
	signals.Try(w.T, pid, syscall.SIGSTOP)
	time.Sleep(d) //nolint:forbidigo // the outage is the point
	signals.Try(w.T, pid, syscall.SIGCONT)
}

// eventually waits until the check succeeds. It retries while the API is unavailable.
func (w *world) eventually(what string, check func(ctx context.Context) error) {
	w.Helper()
	var last error
	for deadline := time.Now().Add(waitTimeout); time.Now().Before(deadline); {
		ctx, cancel := context.WithTimeout(w.Context(), 5*time.Second)
		last = check(ctx)
		cancel()
		if last == nil {
			return
		}
		select {
		case <-w.Context().Done():
			w.Fatal(w.Context().Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	w.Fatalf("%s: not within %s: %v", what, waitTimeout, last)
}

// create creates a Cluster and returns its UID.
func (w *world) create(name string) (uid types.UID) {
	w.Helper()
	w.eventually(name+" is created", func(ctx context.Context) error {
		c := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
		err := w.client.Create(ctx, c)
		if apierrors.IsAlreadyExists(err) { // the response was lost
			err = w.client.Get(ctx, client.ObjectKeyFromObject(c), c)
		}
		uid = c.UID
		return err
	})
	return uid
}

// awaitReady waits until a Cluster reports that it is ready, and checks it.
func (w *world) awaitReady(name string, uid types.UID) {
	w.Helper()
	w.eventually(name+" is ready", func(ctx context.Context) error {
		var c v1alpha1.Cluster
		if err := w.client.Get(ctx, client.ObjectKey{Name: name}, &c); err != nil {
			return err
		}
		for _, condition := range []string{v1alpha1.ConditionProvisioned, v1alpha1.ConditionReady, v1alpha1.ConditionControlPlaneAvailable, v1alpha1.ConditionKubeconfigAvailable} {
			if found := meta.FindStatusCondition(c.Status.Conditions, condition); found == nil || found.Status != metav1.ConditionTrue {
				return fmt.Errorf("%s: %+v, last operation %+v", condition, found, c.Status.LastOperation)
			}
		}
		if n := len(running(w.dir(uid))); n != 5 {
			return fmt.Errorf("%d components run: %v", n, running(w.dir(uid)))
		}
		return errorsOf(w.client.Get(ctx, w.secretKey(name), &corev1.Secret{}), w.client.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.Kubeconfig{}))
	})
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *world) secretKey(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: rbac.Home, Name: name + "-kubeconfig"}
}

// delete requests the deletion of a Cluster.
func (w *world) delete(name string) {
	w.Helper()
	w.eventually(name+" is deleted", func(ctx context.Context) error {
		return client.IgnoreNotFound(w.client.Delete(ctx, &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	})
}

// awaitGone waits until a Cluster no longer exists, and checks for leftovers.
func (w *world) awaitGone(name string, uid types.UID) {
	w.Helper()
	w.eventually(name+" is gone", func(ctx context.Context) error {
		var c v1alpha1.Cluster
		err := w.client.Get(ctx, client.ObjectKey{Name: name}, &c)
		if err == nil {
			return fmt.Errorf("it exists: %+v, last operation %+v", meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionDeleting), c.Status.LastOperation)
		}
		return client.IgnoreNotFound(err)
	})
	if controlplane.Remains(w.dir(uid)) {
		w.Errorf("%s is deleted, but processes or files of %s remain", name, w.dir(uid))
	}
	w.eventually("the Secret and the Kubeconfig of "+name+" are deleted", func(ctx context.Context) error {
		for key, object := range map[client.ObjectKey]client.Object{w.secretKey(name): &corev1.Secret{}, {Name: name}: &v1alpha1.Kubeconfig{}} {
			if err := w.client.Get(ctx, key, object); !apierrors.IsNotFound(err) {
				return fmt.Errorf("%T %s: %w", object, key, err)
			}
		}
		return nil
	})
}
