//go:build soak

package crontab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	batchclient "k8s.io/client-go/kubernetes/typed/batch/v1"

	stableclient "github.com/keelson-dev/keelson/client/clientset/versioned/typed/stable/v1"
)

// record records every Job of a namespace. It watches from the beginning, without the proxy. It
// also acts on the Jobs: it finishes them, and deletes some by hand. So it misses none, even if the
// API restarts and the watch has to begin with a new list: only finished Jobs are deleted, and the
// player finishes only recorded ones.
type record struct {
	jobs batchclient.JobInterface
	play *player

	mu sync.Mutex
	// seen are all Jobs by UID, present the existing ones.
	seen    map[types.UID]*batchv1.Job
	present map[types.UID]*batchv1.Job
	// began is when a Job was first seen, gone when its deletion was seen.
	began, gone map[types.UID]time.Time
	// watches counts the watches that have begun. lost are Jobs that were deleted before they had
	// finished, and not by the player.
	watches int
	lost    []string
}

// startRecord starts the watch. It ends with the test.
func startRecord(t *testing.T, client kubernetes.Interface, cronTabs stableclient.CronTabInterface, namespace string, seed uint64) *record {
	r := &record{jobs: client.BatchV1().Jobs(namespace), seen: map[types.UID]*batchv1.Job{}, present: map[types.UID]*batchv1.Job{},
		began: map[types.UID]time.Time{}, gone: map[types.UID]time.Time{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r.play = startPlayer(ctx, r.jobs, cronTabs, seed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			if err := r.follow(ctx); err != nil && ctx.Err() == nil {
				time.Sleep(20 * time.Millisecond) //nolint:forbidigo // between two attempts to reach the API
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		r.play.workers.Wait()
	})
	eventually(t, "the record watches", func() bool { return r.generation() > 0 })
	return r
}

// follow lists all Jobs and watches until the watch ends.
func (r *record) follow(ctx context.Context) error {
	list, err := r.jobs.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w, err := r.jobs.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer w.Stop()
	r.begin(list.Items)
	for event := range w.ResultChan() {
		job, ok := event.Object.(*batchv1.Job)
		if !ok {
			return apierrors.FromObject(event.Object)
		}
		r.note(event.Type, job)
	}
	return errors.New("the watch has ended")
}

// begin replaces the existing Jobs by a list.
func (r *record) begin(jobs []batchv1.Job) {
	r.mu.Lock()
	r.watches++
	r.present = map[types.UID]*batchv1.Job{}
	r.mu.Unlock()
	for i := range jobs {
		r.note(watch.Added, &jobs[i])
	}
}

func (r *record) note(event watch.EventType, job *batchv1.Job) {
	job.Spec.Template, job.ManagedFields = corev1.PodTemplateSpec{}, nil // hundreds of megabytes in the end
	r.mu.Lock()
	_, known := r.seen[job.UID]
	r.seen[job.UID] = job
	if !known {
		r.began[job.UID] = time.Now()
	}
	if event == watch.Deleted {
		delete(r.present, job.UID)
		r.gone[job.UID] = time.Now()
		if !isFinished(job) && !r.play.hasRemoved(job.UID) {
			r.lost = append(r.lost, job.Name)
		}
	} else {
		r.present[job.UID] = job
	}
	r.mu.Unlock()
	if !known && event != watch.Deleted {
		r.play.add(job)
	}
}

// generation returns the number of watches that have begun.
func (r *record) generation() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.watches
}

// runs returns all Jobs ever created, by the name of their CronTab, and invalid ones as an error.
func (r *record) runs() (map[string][]Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	all := map[string][]Run{}
	for uid, job := range r.seen {
		owner, nominal := nominalOf(job)
		if owner == "" {
			errs = append(errs, fmt.Errorf("invalid Job %s: owners %v, annotations %v", job.Name, job.OwnerReferences, job.Annotations))
			continue
		}
		all[owner] = append(all[owner], Run{Nominal: nominal, UID: string(uid), Created: job.CreationTimestamp.Time, Fate: r.fate(job), Removed: r.play.hasRemoved(uid)})
	}
	return all, errors.Join(errs...)
}

// lateAfter is the delay after which a Job counts as late.
const lateAfter = 700 * time.Millisecond

// busy returns when the machine was too busy for punctual runs: when several runs of one second
// were late. A single late run is not excused.
func (r *record) busy() []Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, late, last := map[int64]int{}, map[int64]int{}, map[int64]time.Time{}
	for uid, job := range r.seen {
		if !isOfSchedule(job) {
			continue
		}
		_, nominal := nominalOf(job)
		second := nominal.Unix()
		all[second]++
		if began := r.began[uid]; began.Sub(nominal) > lateAfter {
			late[second]++
			if began.After(last[second]) {
				last[second] = began
			}
		}
	}
	var spans []Span
	for second, n := range late {
		if areMany(n, all[second]) {
			spans = append(spans, Span{From: time.Unix(second, 0), To: last[second].Add(settle)})
		}
	}
	return spans
}

// lags reports whether several Jobs of the last second were late, or there were none.
func (r *record) lags() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, late := 0, 0
	for uid, began := range r.began {
		if time.Since(began) > time.Second || !isOfSchedule(r.seen[uid]) {
			continue
		}
		all++
		if _, nominal := nominalOf(r.seen[uid]); began.Sub(nominal) > lateAfter {
			late++
		}
	}
	return all == 0 || areMany(late, all)
}

// areMany reports whether the number of late Jobs indicates a busy machine.
func areMany(late, all int) bool { return late >= 5 && late*5 >= all }

// fate describes the result of a Job; the record is locked.
func (r *record) fate(job *batchv1.Job) string {
	fate := "created " + job.CreationTimestamp.UTC().Format("15:04:05")
	for _, condition := range job.Status.Conditions {
		fate += fmt.Sprintf(", %s %s", condition.Type, condition.LastTransitionTime.UTC().Format("15:04:05"))
	}
	if r.play.hasRemoved(job.UID) {
		fate += ", deleted by hand"
	}
	if at, gone := r.gone[job.UID]; gone {
		fate += ", gone " + at.UTC().Format("15:04:05.000")
	}
	return fate
}

// there returns the existing Jobs.
func (r *record) there() []*batchv1.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.present))
}

// player finishes Jobs in place of Kubernetes' Job controller and nodes. It also deletes some as a
// user would, after the status of the CronTab has the run: a Job that is deleted earlier, just when
// the manager is killed, leaves no trace, so it runs again.
type player struct {
	jobs     batchclient.JobInterface
	cronTabs stableclient.CronTabInterface

	workers sync.WaitGroup
	ctx     context.Context
	slots   chan struct{}

	mu      sync.Mutex
	random  *rand.Rand
	removed map[types.UID]bool
}

func startPlayer(ctx context.Context, jobs batchclient.JobInterface, cronTabs stableclient.CronTabInterface, seed uint64) *player {
	return &player{jobs: jobs, cronTabs: cronTabs, ctx: ctx, slots: make(chan struct{}, 16), random: rand.New(rand.NewPCG(seed, 2)), removed: map[types.UID]bool{}}
}

// role is the fate of a Job.
type role struct {
	after         time.Duration
	fails, remove bool
}

func (p *player) cast(uid types.UID, mayRemove bool) role {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := role{
		after:  time.Duration(50+p.random.IntN(1000)) * time.Millisecond,
		fails:  p.random.Float64() < 0.15,
		remove: mayRemove && p.random.Float64() < 0.03,
	}
	if p.random.Float64() < 0.02 {
		r.after += 5 * time.Second
	}
	if r.remove {
		p.removed[uid] = true
	}
	return r
}

// hasRemoved reports whether a Job was, or will be, deleted by hand.
func (p *player) hasRemoved(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.removed[uid]
}

// add plays a Job.
func (p *player) add(job *batchv1.Job) {
	if isFinished(job) || job.DeletionTimestamp != nil {
		return
	}
	r := p.cast(job.UID, isOfSchedule(job))
	p.workers.Go(func() {
		if !p.sleep(r.after) {
			return
		}
		for {
			p.slots <- struct{}{}
			err := p.do(job, r)
			<-p.slots
			// Finishing a Job twice is invalid: the first response was lost.
			if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) || !p.sleep(100*time.Millisecond) {
				return
			}
		}
	})
}

func (p *player) do(job *batchv1.Job, r role) error {
	if r.remove {
		if err := p.checkRecorded(job); err != nil {
			return err
		}
		background := metav1.DeletePropagationBackground
		return p.jobs.Delete(p.ctx, job.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(job.UID)), PropagationPolicy: &background})
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": job.UID}, "status": finishedStatus(r.fails, time.Now())})
	if err != nil {
		return err
	}
	_, err = p.jobs.Patch(p.ctx, job.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// checkRecorded returns an error unless the status of its CronTab has the run of a Job.
func (p *player) checkRecorded(job *batchv1.Job) error {
	owner, nominal := nominalOf(job)
	ct, err := p.cronTabs.Get(p.ctx, owner, metav1.GetOptions{})
	if err != nil {
		return err
	}
	until := ct.Status.ScheduledUntil
	if until == nil || until.Time.Before(nominal) || slices.ContainsFunc(ct.Status.QueuedTimes, func(at metav1.Time) bool { return at.Time.Equal(nominal) }) {
		return fmt.Errorf("the status of %s does not have %s", owner, job.Name)
	}
	return nil
}

// nominalOf returns the CronTab and the nominal time of a Job; both are zero if the Job is invalid.
func nominalOf(job *batchv1.Job) (owner string, nominal time.Time) {
	controller := metav1.GetControllerOf(job)
	nominal, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if controller == nil || err != nil || job.Name != fmt.Sprintf("%s-%d", controller.Name, nominal.Unix()) {
		return "", time.Time{}
	}
	return controller.Name, nominal
}

func (p *player) sleep(d time.Duration) bool {
	select {
	case <-p.ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func finishedStatus(fails bool, at time.Time) batchv1.JobStatus {
	now := metav1.NewTime(at)
	conditions := []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete}
	status := batchv1.JobStatus{StartTime: &now, CompletionTime: &now, Succeeded: 1}
	if fails {
		conditions = []batchv1.JobConditionType{batchv1.JobFailureTarget, batchv1.JobFailed}
		status = batchv1.JobStatus{StartTime: &now, Failed: 1}
	}
	for _, condition := range conditions {
		status.Conditions = append(status.Conditions, batchv1.JobCondition{
			Type: condition, Status: "True", LastProbeTime: now, LastTransitionTime: now, Reason: "Played", Message: "by the soak test",
		})
	}
	return status
}

func isFinished(job *batchv1.Job) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == "True" && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed)
	})
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !check(); {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 2 minutes", what)
		}
		select {
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// jobSpec is the spec of all Jobs. There are no nodes, and the player is the only Job controller.
func jobSpec() *batchv1.JobSpec {
	return &batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "run", Image: "busybox:1.37"}},
	}}}
}
