//go:build soak

// Package faults lets everything happen between a manager and the API server that networks, busy servers and restarts do,
// while objects of all sorts are created, changed and deleted. Afterwards the world is exactly what the objects ask for, the
// manager has grown no larger, and it asks for nothing any more.
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
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/kinds"
	"github.com/keelson-dev/keelson/internal/testing/managers"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

func TestMain(m *testing.M) { env.Main(m) }

const (
	namespace = "faults"
	// quiet is how long nothing may happen at the end.
	quiet = 6 * time.Second
	// growth is how much larger the manager may be at the end than when it has met every fault once: what Go keeps for the
	// next time, and noise.
	growth = 40 << 20
	// moment is how long the API server is there before it is killed again, and often how long it may take until then on
	// average: on a machine that has nothing else to do it is back after three seconds.
	moment = 2 * time.Second
	often  = 10 * time.Second
	// patienceAfter is how long the world may take to settle: who has failed to watch many times in a row lists again after up to
	// a minute, as client-go has it.
	patienceAfter = 2 * time.Minute
	// patience is how long the manager waits for the answer to a request at most, as internal/manager/patience.go says, and
	// jobPatience for that to the creation of a Job, after which the next one may be due; see internal/controller/crontab/lane.go.
	// Both have two seconds more, for a busy machine.
	patience    = 72 * time.Second
	jobPatience = 12 * time.Second
	// hot is how often a second one object is asked for at most, on average while faults happen. Attempts that fail are 5 ms
	// apart, then twice as long each time: eleven in the 5 s that an API server may be away. Without pauses it would be hundreds;
	// a Secret that is read at every change of its Cluster comes to three.
	hot = 10
	// watchPause is how long after another a watch of the same objects begins at least: client-go waits that long if one has
	// failed, or had nothing to tell, and the proxy lets the others last longer. watchLasts is how long one lasts that nobody
	// ends, at least.
	watchPause = 800 * time.Millisecond
	watchLasts = 5 * time.Minute
)

// scale is how much happens.
type scale struct {
	// objects is how many there are of each kind but Cluster, of which there are fewer.
	objects, clusters int
	// rounds is how often all faults come, and each how long one lasts. In the first round the API server is killed again and
	// again for the time of restarts, without a break.
	rounds         int
	each, restarts time.Duration
	// hang is how long a request takes that is not answered, where that is not to end soon.
	hang time.Duration
	// warmUp is how long each fault lasts before, until the manager has all that it needs for them.
	warmUp time.Duration
	// history is how many Jobs a CronTab keeps, and step is between two of its runs.
	history int32
	step    time.Duration
}

var (
	full = scale{
		objects: 40, clusters: 2, rounds: 4, each: 75 * time.Second, restarts: 5 * time.Minute, warmUp: 30 * time.Second,
		hang: patience + 15*time.Second, history: 2, step: 20 * time.Second,
	}
	shortened = scale{
		objects: 12, clusters: 1, rounds: 1, each: 2500 * time.Millisecond, restarts: 6 * time.Second, warmUp: time.Second,
		hang: jobPatience + 4*time.Second, history: 1000, step: 2 * time.Second,
	}
)

// world is a control plane, a proxy before it, objects, and a manager.
type world struct {
	*kinds.World
	proxy   *apiproxy.Proxy
	dir     string
	manager *managers.Manager
}

func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cp")
	// With longer pauses the API server would be away for most of the time.
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

// TestSoakFaults runs through all faults.
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
	w.checkPatience(t, much)
	w.checkCreated(t, since, took)
	after := w.manager.Resident(t)
	t.Logf("the manager had %d MiB when it had met every fault once, and has %d MiB at the end", before>>20, after>>20)
	if after > before+growth {
		t.Errorf("the manager has grown from %d MiB to %d MiB", before>>20, after>>20)
	}
}

// round lets all faults happen, each for a while, and the API server restart for a time. Requests that are not answered take
// up to hang.
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

// phase lets faults happen for a while, during which objects change, and logs what the manager asked for.
func (w *world) phase(t *testing.T, what string, d time.Duration, f apiproxy.Faults) {
	t.Helper()
	began, since := time.Now(), len(w.proxy.Requests())
	w.proxy.Set(f)
	for time.Since(began) < d {
		w.change(t)
	}
	w.report(t, what, since, time.Since(began), 1)
}

// change changes an object, and waits a moment.
func (w *world) change(t *testing.T) {
	t.Helper()
	select {
	case <-w.manager.Done:
		t.Fatal("the manager has ended by itself")
	case <-time.After(100 * time.Millisecond):
	}
	var err error
	// The API server may be away.
	harness.Eventually(t, "an object can be changed", func() bool { err = w.ChangeOne(t.Context()); return err == nil })
}

// restarts kills the API server again and again, each time as soon as it has been there for a moment.
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

// report logs what was asked for since a number of requests, in a time in which all watches were ended so often. It fails the
// test if the manager asked for one object, or for news of one sort, so often that it cannot have paused in between.
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
	t.Logf("%s, in %.0f s: %v; most often %s, %d times, and of watches %s, %d times",
		what, took.Seconds(), count, hottest, objects[hottest], watched, watches[watched])
	if float64(objects[hottest]) > hot*took.Seconds() {
		t.Errorf("%s: %s was asked for %d times in %.0f s, which is more than %d a second", what, hottest, objects[hottest], took.Seconds(), hot)
	}
	// One is from before, and one that is ended may be followed by another at once.
	if most := 2 + ends + int(took/watchPause); watches[watched] > most {
		t.Errorf("%s: %s was watched %d times in %.0f s, and can only have been %d times with pauses", what, watched, watches[watched], took.Seconds(), most)
	}
}

// checkCreated fails the test if the manager has created more in a time, since a number of requests, than there was to create.
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
				t.Errorf("something without a name was created at %s", request.Path)
			}
		}
		if request.IsWrite() && !isEvent && request.Code >= 200 && request.Code < 300 {
			written++
		}
	}
	// An event tells of something that was changed.
	most[events] = written
	for at, names := range created {
		t.Logf("%d names of what was to be created at %s; there can be %d", len(names), at, most[at])
		if len(names) > most[at] {
			t.Errorf("%d objects were to be created at %s, and there was need of %d at most", len(names), at, most[at])
		}
	}
}

// checkPatience fails the test if the manager has waited for an answer for longer than it should: as long, a worker did nothing.
func (w *world) checkPatience(t *testing.T, much scale) {
	t.Helper()
	given, longest := 0, time.Duration(0)
	for _, request := range w.proxy.Requests() {
		if request.Watch {
			continue
		}
		limit := patience
		if request.Method == http.MethodPost && strings.HasSuffix(request.Path, "/jobs") {
			limit = jobPatience
		}
		if request.Took > limit {
			t.Errorf("%s %s: the manager has waited %.1f s for an answer", request.Method, request.Path, request.Took.Seconds())
		}
		if request.Injected && request.Took > limit-4*time.Second {
			given++
		}
		longest = max(longest, request.Took)
	}
	t.Logf("%d requests were not answered and given up; the longest took %.1f s", given, longest.Seconds())
	if given == 0 && much.hang > patience { // else only Jobs are given up, if one meets it at all
		t.Error("there was no request that the manager had to give up")
	}
}

// settle waits until the world is what the objects ask for.
func (w *world) settle(t *testing.T) {
	t.Helper()
	var differences []string
	defer func() {
		if t.Failed() {
			t.Logf("the world differs from what is asked for:\n%s", strings.Join(differences, "\n"))
			w.explain(t)
		}
	}()
	began := time.Now()
	harness.EventuallyWithin(t, patienceAfter, "the world is what the objects ask for", func() bool {
		differences = w.Differences(t)
		return len(differences) == 0
	})
	t.Logf("the world is what the objects ask for, %.1f s after the last fault", time.Since(began).Seconds())
}

// explain logs which Pods are not ready, and what those say who should bring them to life.
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
		t.Logf("the end of the log of %s: %v\n%s", name, err, log[max(0, len(log)-8<<10):])
	}
}

// rest waits until the manager has asked for nothing for a while, and fails the test if that does not come.
func (w *world) rest(t *testing.T) {
	t.Helper()
	var news []string
	asked, since := len(w.proxy.Requests()), time.Now()
	for began := time.Now(); time.Since(since) < quiet; {
		if time.Since(began) > managers.Patience {
			t.Fatalf("the manager does not stop asking for things: %s", strings.Join(news, ", "))
		}
		time.Sleep(100 * time.Millisecond) //nolint:forbidigo // that nothing happens is the point
		all := w.proxy.Requests()
		for _, request := range all[asked:] {
			what := request.Method + " " + request.Path
			if request.Watch {
				what = "watch " + request.Path
				// One that began long ago may end now.
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
