//go:build soak

package crontab

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/client/clientset/versioned"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/testing/apiproxy"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
	"github.com/keelson-dev/keelson/internal/testing/signals"
)

const (
	// settle is the time for a manager that is ready, or an API that is back, to resume work.
	settle = 2 * time.Second
	// prompt is the maximum delay of a run without disturbances.
	prompt = 3 * time.Second

	lease = "soak"
)

// odds are the fractions of writes that fail.
var odds = map[string]float64{
	"PUT crontabs/status": 0.15, "PATCH crontabs/status": 0.15,
	"POST jobs": 0.02, "DELETE jobs": 0.03, "PATCH jobs": 0.03,
}

// cronTabs is the number of CronTabs. Together they run 19 times a second, which leaves two cores
// time to catch up after faults.
const cronTabs = 60

// steps are the steps of the CronTabs, in rotation.
var steps = []time.Duration{
	time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second, 4 * time.Second, 4 * time.Second,
	5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second, 5 * time.Second,
}

// world is a control plane with CronTabs and a record of all events.
type world struct {
	dir       string
	keelson   versioned.Interface
	kube      kubernetes.Interface
	through   kubernetes.Interface // through the proxy
	namespace string
	proxy     *proxy
	record    *record
	// kubeconfig connects to the proxy.
	kubeconfig string
	elect      bool
	objects    []Object
	managers   []*manager
	calms      []Span // the calm phases

	mu      sync.Mutex
	outages []Span
}

// newWorld starts a control plane, the proxy, and the controllers of Kubernetes that delete Jobs.
func newWorld(t *testing.T, seed uint64) *world {
	t.Helper()
	cp := env.ControlPlane(t, controlplane.Options{APIOnly: true, Dir: filepath.Join(t.TempDir(), "cp")})
	w := &world{dir: filepath.Dir(filepath.Dir(cp.Kubeconfig()))}
	config := cp.Config()
	config.QPS = -1
	env.Define(t, config)
	var err error
	if w.keelson, err = versioned.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	protobuf := rest.CopyConfig(config)
	protobuf.ContentType, protobuf.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	if w.kube, err = kubernetes.NewForConfig(protobuf); err != nil {
		t.Fatal(err)
	}
	created, err := w.kube.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "soak-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w.namespace = created.Name
	w.startProxy(t, config, seed)
	w.startCollectors(t, cp.Kubeconfig())
	w.record = startRecord(t, w.kube, w.keelson.StableV1().CronTabs(w.namespace), w.namespace, seed)
	w.watchForStalls(t)
	return w
}

// startProxy serves the API without authentication on its own port.
func (w *world) startProxy(t *testing.T, config *rest.Config, seed uint64) {
	t.Helper()
	w.proxy = &proxy{forward: apiproxy.Forward(t, config), odds: odds, random: rand.New(rand.NewPCG(seed, 1))}
	url := apiproxy.Serve(t, w.proxy)
	var err error
	if w.through, err = kubernetes.NewForConfig(&rest.Config{Host: url, QPS: -1}); err != nil {
		t.Fatal(err)
	}
	w.kubeconfig = apiproxy.Kubeconfig(t, url)
}

// startCollectors starts the controllers that delete expired Jobs and those of deleted CronTabs.
func (w *world) startCollectors(t *testing.T, kubeconfig string) {
	t.Helper()
	binary, err := env.Binary("keelson-kube")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, "kube-controller-manager", "--kubeconfig="+kubeconfig, "--leader-elect=false", "--secure-port=0",
		"--controllers=garbage-collector-controller,ttl-after-finished-controller", "--kube-api-qps=1000", "--kube-api-burst=1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
	})
}

// watchForStalls records when the machine or the API is too busy for punctual runs: other tests run
// concurrently.
func (w *world) watchForStalls(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		for ctx.Err() == nil {
			asking, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err := w.through.CoreV1().Namespaces().Get(asking, w.namespace, metav1.GetOptions{})
			cancel()
			if err != nil || time.Since(began) > 600*time.Millisecond {
				w.out(began, time.Now().Add(settle))
			}
			began = time.Now()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// createCronTabs creates CronTabs with steps of 1 to 5 s, of all policies, with low limits.
func (w *world) createCronTabs(t *testing.T) {
	t.Helper()
	w.objects = make([]Object, cronTabs)
	harness.Parallel(t, cronTabs, func(i int) error {
		object := Object{Name: fmt.Sprintf("soak-%03d", i), Step: steps[i%len(steps)]}
		created := newCronTab(object, i)
		switch i / len(steps) % 5 {
		case 0, 1:
			object.Policy = All
			created.Spec.MaxMissedRuns = ptr.To[int32](100)
		case 2:
			object.Policy, object.Most = All, 2
			created.Spec.MaxMissedRuns = ptr.To[int32](2)
		case 3:
			object.Policy = Latest
		case 4:
			object.Policy = Skip
		}
		created.Spec.MissedRuns = stablev1.MissedRunsPolicy(object.Policy)
		created, err := w.keelson.StableV1().CronTabs(w.namespace).Create(t.Context(), created, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		object.Anchor = created.CreationTimestamp.Time
		w.objects[i] = object
		return nil
	})
	// There was no manager before.
	w.out(time.Now().Add(-time.Minute), time.Now())
}

func newCronTab(object Object, i int) *stablev1.CronTab {
	created := &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: object.Name},
		Spec: stablev1.CronTabSpec{
			Schedule:                   stablev1.Schedule("@every " + object.Step.String()),
			SuccessfulJobsHistoryLimit: ptr.To(int32(i % 3)),
			FailedJobsHistoryLimit:     ptr.To(int32(i / 3 % 2)),
			JobTemplate:                &stablev1.JobTemplate{Spec: jobSpec()},
		},
	}
	if i%7 == 0 {
		created.Spec.JobTemplate.Spec.TTLSecondsAfterFinished = ptr.To(int32(i % 3))
	}
	return created
}

// out records a time in which runs may be missed.
func (w *world) out(from, to time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outages = append(w.outages, Span{From: from, To: to})
}

// history returns the history common to all CronTabs.
func (w *world) history() History {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := History{Outages: append(w.record.busy(), w.outages...), Prompt: prompt}
	for _, m := range w.managers {
		h.Managers = append(h.Managers, m.live)
	}
	return h
}

// excusing adds the failed creates of the Jobs of one CronTab.
func (w *world) excusing(object Object, h History) History {
	own := append([]Span(nil), h.Outages...)
	h.Tried = map[int64]bool{}
	for _, f := range w.proxy.took() {
		if f.write.what == "POST jobs" && (f.write.name == "" || strings.HasPrefix(f.write.name, object.Name+"-")) {
			own = append(own, Span{From: f.at, To: f.at.Add(time.Second)})
			if second, err := strconv.ParseInt(strings.TrimPrefix(f.write.name, object.Name+"-"), 10, 64); err == nil {
				h.Tried[second] = true
			}
		}
	}
	h.Outages = own
	return h
}

// restartAPI kills kube-apiserver and waits until it is back and the watch of the record continues.
// Until then the proxy is closed.
func (w *world) restartAPI(t *testing.T) {
	t.Helper()
	report, err := controlplane.Inspect(t.Context(), filepath.Join(w.dir, "cp"))
	if err != nil {
		t.Fatal(err)
	}
	began, generation := time.Now(), w.record.generation()
	w.proxy.close()
	for _, component := range report.Components {
		if component.Name == "kube-apiserver" {
			signals.Send(t, component.PID, syscall.SIGKILL)
		}
	}
	eventually(t, "the record continues after a restart of the API", func() bool { return w.record.generation() > generation })
	w.proxy.open()
	w.out(began, time.Now().Add(settle))
}

// revive returns a manager that is ready: the same one, or a new one if it exited because the API
// was unavailable at its start.
func (w *world) revive(t *testing.T, m *manager) *manager {
	t.Helper()
	select {
	case <-m.Ready:
	case <-m.Done:
		m.kill(t)
		m = w.startManager(t)
	}
	m.awaitReady(t)
	return m
}

// awaitCaughtUp waits until every CronTab has run all due times, and returns when the wait began.
// The duration depends on the machine, so it fails only if the number of missed runs does not
// decrease for two minutes.
func (w *world) awaitCaughtUp(t *testing.T) (began time.Time) {
	t.Helper()
	began = time.Now()
	fewest, since := math.MaxInt, began
	for {
		missed, example := w.missedBefore(t, began)
		switch {
		case missed == 0:
			t.Logf("caught up after %s", time.Since(began).Round(time.Millisecond))
			return began
		case missed < fewest:
			fewest, since = missed, time.Now()
		case time.Since(since) > 2*time.Minute:
			t.Fatalf("%d runs are missed, and the number has not decreased for 2 minutes; one of the CronTabs is %s", missed, example)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(time.Second):
		}
	}
}

// missedBefore returns the number of runs that were due before a time and have not started, and a
// CronTab with such runs.
func (w *world) missedBefore(t *testing.T, began time.Time) (missed int, example string) {
	t.Helper()
	list, err := w.keelson.StableV1().CronTabs(w.namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		return math.MaxInt, err.Error()
	}
	byName := map[string]Object{}
	for _, object := range w.objects {
		byName[object.Name] = object
	}
	for _, ct := range list.Items {
		if isChained(ct.Name) {
			continue
		}
		own, status := 0, ct.Status
		until := byName[ct.Name].Anchor
		if status.ScheduledUntil != nil {
			until = status.ScheduledUntil.Time
		}
		// Later times do not matter: runs have priority over statuses, of which some are always a
		// few seconds old.
		if late := began.Sub(until); late > 0 {
			own += 1 + int(late/byName[ct.Name].Step)
		}
		for _, at := range status.QueuedTimes {
			if at.Time.Before(began) {
				own++
			}
		}
		if own > 0 {
			missed += own
			example = fmt.Sprintf("%s: until %s, %d waiting", ct.Name, until, len(status.QueuedTimes))
		}
	}
	return missed, example
}

// suspend suspends all CronTabs and records their mandatory and possible times. Times until until
// are mandatory: later ones may be waiting on a busy machine and never run.
func (w *world) suspend(t *testing.T, until time.Time) {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"suspend": true}})
	if err != nil {
		t.Fatal(err)
	}
	harness.Parallel(t, len(w.objects), func(i int) error {
		object := &w.objects[i]
		object.Until = until.Add(-prompt).Truncate(time.Second)
		_, err := w.keelson.StableV1().CronTabs(w.namespace).Patch(t.Context(), object.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		// The manager learns it a moment later.
		object.Last = time.Now().Add(prompt)
		return err
	})
}

// awaitRest waits until all Jobs have finished, and the CronTabs keep the right number of them and
// report correct statuses.
func (w *world) awaitRest(t *testing.T) {
	t.Helper()
	var why string
	defer func() {
		if t.Failed() {
			t.Log(why)
			name, _, _ := strings.Cut(why, " ")
			w.describe(t, name)
		}
	}()
	eventually(t, "the CronTabs have settled", func() bool {
		list, err := w.keelson.StableV1().CronTabs(w.namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			why = err.Error()
			return false
		}
		kept := map[string]map[bool]int{}
		for _, job := range w.record.there() {
			owner := metav1.GetControllerOf(job)
			if !isFinished(job) || owner == nil {
				why = "the Job " + job.Name + " is active, or has no CronTab"
				return false
			}
			if kept[owner.Name] == nil {
				kept[owner.Name] = map[bool]int{}
			}
			kept[owner.Name][job.Status.Succeeded > 0]++
		}
		for i := range list.Items {
			if why = unrest(&list.Items[i], kept[list.Items[i].Name]); why != "" {
				return false
			}
		}
		return true
	})
}

// describe logs the status of a CronTab, and its Jobs with those that it follows.
func (w *world) describe(t *testing.T, name string) {
	t.Helper()
	made, err := w.keelson.StableV1().CronTabs(w.namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Log(err)
		return
	}
	owners := append(crontab.Predecessors(made), name)
	status, _ := json.Marshal(made.Status) // only for the log
	t.Logf("%s runs after %v: %s", name, made.Spec.After, status)
	for _, job := range w.record.there() {
		if owner := metav1.GetControllerOf(job); owner != nil && slices.Contains(owners, owner.Name) {
			status, _ := json.Marshal(job.Status)
			t.Logf("%s %s %v %v: %s", job.Name, job.UID, job.DeletionTimestamp, job.Annotations, status)
		}
	}
}

// unrest returns what has not settled yet, given the numbers of succeeded and failed Jobs.
func unrest(ct *stablev1.CronTab, kept map[bool]int) string {
	spec, status := &ct.Spec, &ct.Status
	switch {
	case status.ObservedGeneration != ct.Generation:
		return ct.Name + " does not report that it is suspended"
	case len(status.Active) > 0 || len(status.QueuedTimes) > 0:
		return fmt.Sprintf("%s reports %d active Jobs and %d waiting runs", ct.Name, len(status.Active), len(status.QueuedTimes))
	case kept[true] > int(*spec.SuccessfulJobsHistoryLimit) || kept[false] > int(*spec.FailedJobsHistoryLimit):
		return fmt.Sprintf("%s keeps too many Jobs: %d succeeded, %d failed", ct.Name, kept[true], kept[false])
	}
	return ""
}

// deleteAll deletes the CronTabs and waits until no Job is left.
func (w *world) deleteAll(t *testing.T) {
	t.Helper()
	err := w.keelson.StableV1().CronTabs(w.namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "all Jobs are deleted with their CronTabs", func() bool {
		jobs, err := w.kube.BatchV1().Jobs(w.namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
		return err == nil && len(jobs.Items) == 0
	})
}
