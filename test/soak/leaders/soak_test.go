//go:build soak

package leaders

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/testing/apiproxy"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/kinds"
	"github.com/keelson-dev/keelson/internal/testing/managers"
)

func TestMain(m *testing.M) { env.Main(m) }

const namespace = "leaders"

// short reports whether CI waits for this.
func short() bool { return os.Getenv("KEELSON_SOAK") == "short" }

// lease has the times of an election.
type lease struct{ duration, deadline, retry time.Duration }

// defaults are the flags' defaults; quick allows more faults in less time.
var (
	defaults = lease{15 * time.Second, 10 * time.Second, 2 * time.Second}
	quick    = lease{4 * time.Second, 3 * time.Second, time.Second}
)

// takeover is the time within which a standby acquires a free lease: it checks every 1 to 2.2 retry
// periods.
func (l lease) takeover() time.Duration { return l.retry*22/10 + time.Second }

// replica is a manager with its own proxy to the API.
type replica struct {
	*managers.Manager
	proxy *apiproxy.Proxy
}

// world is a control plane, objects, and replicas.
type world struct {
	*kinds.World
	config   *rest.Config
	times    lease
	replicas []*replica
	// all includes those that have ended.
	all []*replica
	// seen are the UIDs of children by kind and name.
	seen *record
	// image is the image of machines of the driver qemu.
	image string
}

func newWorld(t *testing.T, times lease) *world {
	t.Helper()
	cp := env.ControlPlane(t, controlplane.Options{Nodes: 1})
	env.Define(t, cp.Config())
	if err := cp.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &world{World: kinds.New(t, cp.Config(), namespace, 1), config: cp.Config(), times: times}
	w.CreateNamespace(t)
	machines := manager.MachinesDir(w.StateDir(t))
	t.Cleanup(func() { // after the managers
		if err := qemu.StopAll(context.WithoutCancel(t.Context()), machines, qemu.StopOptions{}); err != nil {
			t.Errorf("stop the machines: %v", err)
		}
	})
	w.image = filepath.Join(t.TempDir(), "empty.raw")
	if err := os.WriteFile(w.image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	w.seen = startRecord(t, w.World)
	return w
}

// start starts another replica.
func (w *world) start(t *testing.T) *replica {
	t.Helper()
	r := &replica{proxy: apiproxy.New(t, w.config, 1)}
	name := fmt.Sprintf("manager-%d", len(w.all))
	r.Manager = managers.Start(t, name, "--kubeconfig="+r.proxy.Kubeconfig(t), "--controllers="+kinds.Controllers,
		"--vm-driver=fake,qemu", "--vm-image-dirs="+filepath.Dir(w.image), "--state-dir="+w.StateDir(t), "--metrics-bind-address=0",
		"--leader-elect", "--lease-lock-namespace="+namespace, "--holder-identity="+name,
		"--lease-duration="+w.times.duration.String(), "--renew-deadline="+w.times.deadline.String(), "--retry-period="+w.times.retry.String())
	w.replicas, w.all = append(w.replicas, r), append(w.all, r)
	return r
}

// holder returns the holder of the lease.
func (w *world) holder(t *testing.T) string {
	t.Helper()
	var lease coordinationv1.Lease
	if err := w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "keelson"}, &lease); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// leader waits until a replica leads and the others have warm caches, and returns the leader.
func (w *world) leader(t *testing.T) *replica {
	t.Helper()
	var found *replica
	harness.Eventually(t, "one leads, and the others wait", func() bool {
		found = nil
		for _, r := range w.replicas {
			_, ready := r.IsReady()
			switch {
			case r.Name == w.holder(t) && ready:
				found = r
			case !strings.Contains(r.Log(), "waiting for the lease"):
				return false
			}
		}
		return found != nil
	})
	return found
}

// remove removes a replica from the active ones.
func (w *world) remove(r *replica) {
	w.replicas = slices.DeleteFunc(w.replicas, func(other *replica) bool { return other == r })
}

// isLease reports whether a request is for the election.
func isLease(r apiproxy.Request) bool { return strings.Contains(r.Path, "/leases") }

// isDone reports whether a request of a leader has changed something. Every replica creates the
// missing namespace before it leads.
func isDone(r apiproxy.Request) bool {
	return r.IsWrite() && !isLease(r) && r.Path != "/api/v1/namespaces" && r.Code >= 200 && r.Code < 300 && !strings.Contains(r.Path, "authorization.k8s.io")
}

// awaitTakeover waits until a replica other than before leads, and fails the test if that takes too
// long.
func (w *world) awaitTakeover(t *testing.T, what string, before *replica, since time.Time, allowed time.Duration) {
	t.Helper()
	var took time.Duration
	var next *replica
	harness.Eventually(t, "another one leads", func() bool {
		for _, r := range w.replicas {
			if at, ready := r.IsReady(); r != before && ready && at.After(since) {
				took, next = at.Sub(since), r
				return true
			}
		}
		return false
	})
	t.Logf("%s: %s leads %.2f s later; the limit is %v", what, next.Name, took.Seconds(), allowed)
	if took > allowed {
		t.Errorf("%s: %s led only after %v; the limit is %v", what, next.Name, took, allowed)
	}
}

// TestSoakDefaults stops and kills leaders with the default times; the next one acts within the
// time in docs/operations.md.
func TestSoakDefaults(t *testing.T) {
	w := newWorld(t, defaults)
	for range 3 {
		w.start(t)
	}
	w.leader(t)
	w.Create(t, 5)
	for range 2 {
		leader := w.leader(t)
		w.remove(leader)
		began := time.Now()
		leader.Signal(t, syscall.SIGTERM)
		w.awaitTakeover(t, "a clean stop", leader, began, w.times.takeover())
		leader.AwaitDone(t)
		w.start(t)
	}
	w.kill(t, w.leader(t))
	w.start(t)
	w.finish(t)
}

// TestSoakLeaders kills, suspends past its lease, and disconnects the leader, repeatedly.
func TestSoakLeaders(t *testing.T) {
	if err := qemu.Missing(); err != nil {
		t.Skipf("SKIP: %v", err)
	}
	w := newWorld(t, quick)
	for range 3 {
		w.start(t)
	}
	w.leader(t)
	w.Create(t, 10)
	rounds, clusters := 8, 2
	if short() {
		rounds, clusters = 1, 1
	}
	w.CreateClusters(t, clusters)
	hosted := w.startHosted(t)
	for range rounds {
		for _, fault := range []func(*testing.T, *replica){w.kill, w.suspend, w.cutOff, w.stall} {
			leader := w.leader(t)
			for range 5 {
				if err := w.ChangeOne(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			hosted.beforeFault(t, w)
			fault(t, leader)
			w.start(t)
			hosted.afterFault(t, w)
		}
	}
	w.finish(t)
	hosted.checkEnd(t)
}

// finish waits until the state has settled and checks the events.
func (w *world) finish(t *testing.T) {
	t.Helper()
	w.leader(t)
	w.Suspend(t)
	var differences []string
	defer func() {
		if t.Failed() && len(differences) > 0 {
			t.Logf("the state differs from the objects:\n%s", strings.Join(differences, "\n"))
		}
	}()
	harness.Eventually(t, "the state matches the objects", func() bool {
		differences = w.Differences(t)
		return len(differences) == 0
	})
	w.checkTurns(t)
	w.seen.check(t)
}

// checkTurns checks that no replica wrote anything after the next one had begun.
func (w *world) checkTurns(t *testing.T) {
	t.Helper()
	type write struct {
		apiproxy.Request
		by string
	}
	var writes []write
	for _, r := range w.all {
		for _, request := range r.proxy.Requests() {
			if isDone(request) {
				writes = append(writes, write{request, r.Name})
			}
		}
	}
	slices.SortFunc(writes, func(a, b write) int { return a.At.Compare(b.At) })
	turns, over := []string{}, map[string]bool{}
	for _, write := range writes {
		if len(turns) > 0 && turns[len(turns)-1] == write.by {
			continue
		}
		if over[write.by] {
			t.Errorf("%s wrote after another one had begun: %s %s at %s", write.by, write.Method, write.Path, write.At.Format(time.StampMilli))
		}
		turns, over[write.by] = append(turns, write.by), true
	}
	t.Logf("%d writes, in turns: %s", len(writes), strings.Join(turns, ", "))
	if len(turns) < 3 {
		t.Error("too few takeovers")
	}
}

// record records each child ever created.
type record struct {
	mu   sync.Mutex
	uids map[string][]types.UID
}

// startRecord watches Deployments, Pods of SampleResources, and Jobs until the end of the test.
func startRecord(t *testing.T, w *kinds.World) *record {
	t.Helper()
	r := &record{uids: map[string][]types.UID{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	for _, list := range []client.ObjectList{&appsv1.DeploymentList{}, &corev1.PodList{}, &batchv1.JobList{}} {
		if err := w.List(ctx, list, client.InNamespace(w.Namespace)); err != nil {
			t.Fatal(err)
		}
		// The API server ends watches of slow clients: on a busy machine that may be this test.
		watcher, err := watchtools.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &cache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
				return w.Watch(ctx, list, &client.ListOptions{Namespace: w.Namespace, Raw: &options})
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			for event := range watcher.ResultChan() {
				if object, ok := event.Object.(client.Object); ok && event.Type == watch.Added {
					r.note(object)
				}
			}
			if ctx.Err() == nil {
				t.Error("the record has a gap: a watch has ended")
			}
		})
	}
	return r
}

func (r *record) note(object client.Object) {
	owner := metav1.GetControllerOf(object)
	if owner == nil || owner.Kind == "Job" || owner.Kind == "ReplicaSet" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	name := fmt.Sprintf("%T %s", object, object.GetName())
	r.uids[name] = append(r.uids[name], object.GetUID())
}

// check fails the test for each child that was created twice.
func (r *record) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, uids := range r.uids {
		if len(uids) > 1 {
			t.Errorf("%s was created %d times", name, len(uids))
		}
	}
	t.Logf("%d children were created, each once", len(r.uids))
	if len(r.uids) == 0 {
		t.Error("nothing was created")
	}
}
