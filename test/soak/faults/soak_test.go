//go:build soak

// Package faults injects the faults of networks, busy servers and restarts between a manager and
// the API server, while objects of all kinds are created, changed and deleted. Afterwards the state
// must match the objects, the manager must not have grown, and it must send no more requests.
package faults

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/apiproxy"
	"github.com/keelson-dev/keelson/internal/testing/await"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/kinds"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

func TestMain(m *testing.M) { env.Main(m) }

const (
	namespace = "faults"
	// quiet is the time without requests at the end.
	quiet = 6 * time.Second
	// growth is the maximum growth of the manager from its first encounter with every fault to the
	// end: Go's memory reserves, and noise.
	growth = 40 << 20
	// moment is the time for which the API server runs before it is killed again; often is the
	// maximum average time until then. On an idle machine it is back after three seconds.
	moment = 2 * time.Second
	often  = 10 * time.Second
	// settleTimeout is the time for the state to settle: after many failed watches, client-go may
	// wait up to a minute before it lists again.
	settleTimeout = 2 * time.Minute
	// waitTimeout is the manager's response timeout, see internal/manager/timeout.go, and jobTimeout
	// its timeout for the creation of a Job, after which the next one may be due, see
	// internal/controller/crontab/lane.go. Both have two seconds more, for a busy machine.
	waitTimeout = 72 * time.Second
	jobTimeout  = 12 * time.Second
	// hot is the maximum average rate of requests for one object per second during faults. Backoff
	// starts at 5 ms and doubles: eleven attempts in an API outage of 5 s. Without backoff there
	// would be hundreds. A Secret that is read at every change of its Cluster comes to three.
	hot = 10
	// watchPause is the minimum time between two watches of the same objects: client-go waits that
	// long after a watch that failed or received nothing, and with the proxy the others last
	// longer. watchLasts is the minimum duration of a watch that is not interrupted.
	watchPause = 800 * time.Millisecond
	watchLasts = 5 * time.Minute
)

// scale is the extent of the test.
type scale struct {
	// objects is the number of objects of each kind except Cluster, which has fewer.
	objects, clusters int
	// rounds is the number of rounds with all faults, each of which lasts the given time. In the
	// first round the API server is killed continuously for the time of restarts.
	rounds         int
	each, restarts time.Duration
	// hang is the duration of a request without a response, where a longer one is allowed.
	hang time.Duration
	// warmUp is the duration of each fault before the measurement, until the manager has allocated
	// its memory for them.
	warmUp time.Duration
	// history is the number of Jobs that a CronTab keeps, step the time between two runs.
	history int32
	step    time.Duration
}

var (
	full = scale{
		objects: 40, clusters: 2, rounds: 4, each: 75 * time.Second, restarts: 5 * time.Minute, warmUp: 30 * time.Second,
		hang: waitTimeout + 15*time.Second, history: 2, step: 20 * time.Second,
	}
	shortened = scale{
		objects: 12, clusters: 1, rounds: 1, each: 2500 * time.Millisecond, restarts: 6 * time.Second, warmUp: time.Second,
		hang: jobTimeout + 4*time.Second, history: 1000, step: 2 * time.Second,
	}
)

// world is a control plane, a proxy, objects, and a manager.
type world struct {
	*kinds.World
	proxy   *apiproxy.Proxy
	dir     string
	manager *managers.Manager
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cp")
	// With longer pauses the API server would be down most of the time.
	cp := env.ControlPlane(t, controlplane.Options{Nodes: 1, Dir: dir, RestartPause: 200 * time.Millisecond})
	env.Define(t, cp.Config())
	if err := cp.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := &world{World: kinds.New(t, cp.Config(), namespace, seed), dir: dir, proxy: apiproxy.New(t, cp.Config(), seed)}
	w.CreateNamespace(t)
	w.manager = managers.Start(t, "manager", "--kubeconfig="+w.proxy.Kubeconfig(t), "--controllers="+kinds.Controllers,
		"--vm-driver=fake", "--state-dir="+w.StateDir(t), "--metrics-bind-address=0", "--leader-elect=false")
	w.manager.AwaitReady(t)
	return w
}

// TestSoakFaults injects all faults.
func TestSoakFaults(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	much := full
	if os.Getenv("KEELSON_SOAK") == "short" {
		much = shortened
	}
	w := newWorld(t, seed)
	w.History, w.Step = much.history, much.step
	began, since := time.Now(), len(w.proxy.Requests())
	w.Create(t, much.objects)
	w.CreateClusters(t, much.clusters)
	w.round(t, much.warmUp, much.warmUp, much.hang)
	before := w.manager.Resident(t)
	w.round(t, much.each, much.restarts, much.hang)
	for range much.rounds - 1 {
		w.round(t, much.each, 0, much.hang)
	}
	w.proxy.Set(apiproxy.Faults{})
	w.Suspend(t)
	took := time.Since(began)
	w.settle(t)
	w.rest(t)
	w.checkTimeout(t, much)
	w.checkCreated(t, since, took)
	after := w.manager.Resident(t)
	t.Logf("the manager had %d MiB after every fault once, and has %d MiB at the end", before>>20, after>>20)
	if after > before+growth {
		t.Errorf("the manager has grown from %d MiB to %d MiB", before>>20, after>>20)
	}
}

// round injects all faults, each for a while, and restarts the API server for a time. Requests
// without a response take up to hang.
func (w *world) round(t *testing.T, each, restarts, hang time.Duration) {
	t.Helper()
	w.phase(t, "latency", each, apiproxy.Faults{Latency: 500 * time.Millisecond})
	w.phase(t, "failing requests", each, apiproxy.Faults{Share: 0.05, Hang: hang})
	w.phase(t, "watches without bookmarks that end, and versions that are too old", each,
		apiproxy.Faults{NoBookmarks: true, WatchFor: time.Second, Expired: 0.5})
	if restarts > 0 {
		w.restarts(t, restarts)
	}
	w.phase(t, "everything at once", each, apiproxy.Faults{
		Latency: 100 * time.Millisecond, Share: 0.05, Hang: time.Second, NoBookmarks: true, WatchFor: 2 * time.Second, Expired: 0.2,
	})
}

// phase injects faults for a while, during which objects change, and logs the requests of the
// manager.
func (w *world) phase(t *testing.T, what string, d time.Duration, f apiproxy.Faults) {
	t.Helper()
	began, since := time.Now(), len(w.proxy.Requests())
	w.proxy.Set(f)
	for time.Since(began) < d {
		w.change(t)
	}
	w.report(t, what, since, time.Since(began), 1)
}

// change changes an object and waits briefly.
func (w *world) change(t *testing.T) {
	t.Helper()
	select {
	case <-w.manager.Done:
		t.Fatal("the manager has exited")
	case <-time.After(100 * time.Millisecond):
	}
	var err error
	// The API server may be unavailable.
	harness.Eventually(t, "an object can be changed", func() bool { err = w.ChangeOne(t.Context()); return err == nil })
}

// restarts kills the API server repeatedly, each time soon after it is back.
func (w *world) restarts(t *testing.T, d time.Duration) {
	t.Helper()
	began, since, killed := time.Now(), len(w.proxy.Requests()), 0
	w.proxy.Set(apiproxy.Faults{})
	for least := int(d / often); time.Since(began) < d || killed < least; killed++ { // a busy host takes longer
		w.killAPI(t)
		w.change(t) // it is back
		for back := time.Now(); time.Since(back) < moment; {
			w.change(t)
		}
	}
	took := time.Since(began)
	w.report(t, fmt.Sprintf("%d restarts of the API server", killed), since, took, 1+killed)
}

func (w *world) killAPI(t *testing.T) {
	t.Helper()
	report, err := controlplane.Inspect(t.Context(), w.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, component := range report.Components {
		if component.Name == "kube-apiserver" {
			signals.Try(t, component.PID, syscall.SIGKILL)
		}
	}
}

// report logs the requests since request number since, in a time in which all watches were
// interrupted ends times. It fails the test if the manager requested an object, or watched a
// resource, so often that it cannot have backed off.
func (w *world) report(t *testing.T, what string, since int, took time.Duration, ends int) {
	t.Helper()
	count, objects, watches := map[string]int{}, map[string]int{}, map[string]int{}
	hottest, watched := "", ""
	for _, request := range w.proxy.Requests()[since:] {
		if request.Injected {
			count["failed on purpose"]++
		}
		if request.Watch {
			count["watches"]++
			if watches[request.Path]++; watches[request.Path] > watches[watched] {
				watched = request.Path
			}
			continue
		}
		key := "reads"
		if request.IsWrite() {
			key = "writes"
		}
		count[key]++
		object := strings.TrimSpace(request.Method + " " + request.Path + " " + request.Name)
		if objects[object]++; objects[object] > objects[hottest] {
			hottest = object
		}
	}
	t.Logf("%s, in %.0f s: %v; most requests for %s, %d, most watches of %s, %d",
		what, took.Seconds(), count, hottest, objects[hottest], watched, watches[watched])
	if float64(objects[hottest]) > hot*took.Seconds() {
		t.Errorf("%s: %s was requested %d times in %.0f s, more than %d a second", what, hottest, objects[hottest], took.Seconds(), hot)
	}
	// One is from before, and an interrupted one may be followed by another immediately.
	if most := 2 + ends + int(took/watchPause); watches[watched] > most {
		t.Errorf("%s: %s was watched %d times in %.0f s, but with pauses only %d times are possible", what, watched, watches[watched], took.Seconds(), most)
	}
}

// checkCreated fails the test if the manager has created more objects in a time, since a request
// number, than necessary.
func (w *world) checkCreated(t *testing.T, since int, took time.Duration) {
	t.Helper()
	const events = "/events"
	most, created, written := w.MostCreated(took), map[string]map[string]bool{}, 0
	for _, request := range w.proxy.Requests()[since:] {
		isEvent := strings.HasSuffix(path.Dir(request.Path), events) || strings.HasSuffix(request.Path, events)
		if request.Method == http.MethodPost {
			at := request.Path
			if isEvent {
				at = events
			}
			if created[at] == nil {
				created[at] = map[string]bool{}
			}
			created[at][request.Name] = true
			if request.Name == "" {
				t.Errorf("an object without a name was created at %s", request.Path)
			}
		}
		if request.IsWrite() && !isEvent && request.Code >= 200 && request.Code < 300 {
			written++
		}
	}
	// Each event reports a change.
	most[events] = written
	for at, names := range created {
		t.Logf("%d names of created objects at %s; the maximum is %d", len(names), at, most[at])
		if len(names) > most[at] {
			t.Errorf("%d objects were created at %s, but at most %d were necessary", len(names), at, most[at])
		}
	}
}

// checkTimeout fails the test if the manager has waited too long for a response, which blocks a
// worker.
func (w *world) checkTimeout(t *testing.T, much scale) {
	t.Helper()
	given, longest := 0, time.Duration(0)
	for _, request := range w.proxy.Requests() {
		if request.Watch {
			continue
		}
		limit := waitTimeout
		if request.Method == http.MethodPost && strings.HasSuffix(request.Path, "/jobs") {
			limit = jobTimeout
		}
		if request.Took > limit {
			t.Errorf("%s %s: the manager waited %.1f s for a response", request.Method, request.Path, request.Took.Seconds())
		}
		if request.Injected && request.Took > limit-4*time.Second {
			given++
		}
		longest = max(longest, request.Took)
	}
	t.Logf("%d requests without a response were given up; the longest took %.1f s", given, longest.Seconds())
	if given == 0 && much.hang > waitTimeout { // otherwise only creates of Jobs can time out, if any
		t.Error("no request timed out")
	}
}

// settle waits until the state matches the objects.
func (w *world) settle(t *testing.T) {
	t.Helper()
	var differences []string
	defer func() {
		if t.Failed() {
			t.Logf("the state differs from the objects:\n%s", strings.Join(differences, "\n"))
			w.explain(t)
		}
	}()
	began := time.Now()
	await.Until(t, settleTimeout, "the state matches the objects", func() bool {
		differences = w.Differences(t)
		return len(differences) == 0
	})
	t.Logf("the state matches the objects %.1f s after the last fault", time.Since(began).Seconds())
}

// explain logs the Pods that are not ready, and the logs of the components that should make them
// ready.
func (w *world) explain(t *testing.T) {
	t.Helper()
	var pods corev1.PodList
	if err := w.List(context.Background(), &pods, client.InNamespace(namespace)); err != nil {
		t.Log(err)
	}
	for _, pod := range pods.Items {
		isReady := func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue }
		if !slices.ContainsFunc(pod.Status.Conditions, isReady) && pod.Status.Phase != corev1.PodSucceeded {
			t.Logf("Pod %s of %s, deleted %v, on node %q: %s, %+v", pod.Name, pod.CreationTimestamp.UTC(), pod.DeletionTimestamp,
				pod.Spec.NodeName, pod.Status.Phase, pod.Status.Conditions)
		}
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "kwok"} {
		log, err := os.ReadFile(filepath.Join(w.dir, "logs", name+".log"))
		t.Logf("end of the log of %s: %v\n%s", name, err, log[max(0, len(log)-8<<10):])
	}
}

// rest waits until the manager has sent no requests for a while, and fails the test on timeout.
func (w *world) rest(t *testing.T) {
	t.Helper()
	var news []string
	asked, since := len(w.proxy.Requests()), time.Now()
	for began := time.Now(); time.Since(since) < quiet; {
		if time.Since(began) > managers.WaitTimeout {
			t.Fatalf("the manager keeps sending requests: %s", strings.Join(news, ", "))
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the absence of requests is the point
		all := w.proxy.Requests()
		for _, request := range all[asked:] {
			what := request.Method + " " + request.Path
			if request.Watch {
				what = "watch " + request.Path
				// A watch that began long ago may end now.
				if request.Took >= watchLasts {
					continue
				}
			}
			news = append(news[max(0, len(news)-20):], what)
			since = time.Now()
		}
		asked = len(all)
	}
}
