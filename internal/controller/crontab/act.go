package crontab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// createTimeout limits the creation of a Job, which a hanging admission webhook could delay.
	createTimeout = 10 * time.Second

	// slowThreshold is the duration from which a creation counts as slow.
	slowThreshold = 2 * time.Second

	// maxSlowCreates limits the workers for CronTabs with slow creations, so that the others are
	// not delayed. slowRetryInterval is the time until the next attempt if all of them are busy.
	maxSlowCreates    = 4
	slowRetryInterval = time.Second
)

// errNoTemplate means that a run was requested but there is no template for it.
var errNoTemplate = errors.New("spec.jobTemplate is not set")

// actResult is what act did.
type actResult struct {
	// started is the run that was started, or nil.
	started *run
	// replaced are the Jobs that were deleted to make room for the next run.
	replaced []run
}

// act executes the plan, up to the first error. As long as runs are due, it only starts runs, but
// not forever: if runs are due faster than the API server creates Jobs, cleanup happens along with
// a run once it is overdue.
func (r *Reconciler) act(ctx context.Context, cronTab *stablev1.CronTab, st *state, seen observation, p plan) (actResult, error) {
	st.advance(seen.cached, p.progress)
	st.openRequest, st.postponed = p.request, false
	var d actResult
	if p.start != nil {
		started, err := r.start(ctx, cronTab, st, seen, p.start)
		if err != nil {
			return actResult{}, err
		}
		st.advance(seen.cached, p.afterStart)
		d.started = started
		if p.start.manual {
			st.openRequest = time.Time{}
		}
		if !p.cleanupOverdue {
			if st.deferredSince.IsZero() {
				st.deferredSince = p.now
			}
			return d, nil
		}
	}
	var err error
	if d.replaced, err = r.cleanUp(ctx, cronTab, p); err == nil {
		st.deferredSince = time.Time{}
	}
	return d, err
}

// start creates the Job of a run. An existing Job of the same run counts as success.
func (r *Reconciler) start(ctx context.Context, cronTab *stablev1.CronTab, st *state, seen observation, s *pendingRun) (*run, error) {
	template, err := jobTemplate(cronTab)
	if err == nil && template == nil {
		err = errNoTemplate
	}
	if err == nil {
		if conflicts := crontab.ParameterConflicts(&cronTab.Spec, &template.Spec.Template.Spec); len(conflicts) > 0 {
			err = crontab.ParameterError(conflicts[0].Error())
		}
	}
	if err != nil {
		return nil, err
	}
	job := newJob(cronTab, template, s, seen.zone())
	started := run{name: s.name, at: s.at, manual: s.manual, backfill: s.backfill, follows: s.follows, phase: active, startTime: r.Clock.Now()}
	st.expectCreation(started)
	limited, cancel := context.WithTimeout(ctx, createTimeout)
	err = r.Client.Create(limited, job, client.FieldOwner(kube.FieldManager))
	cancel()
	st.slowCreate = r.Clock.Now().Sub(started.startTime) > slowThreshold
	created := err == nil
	if apierrors.IsAlreadyExists(err) {
		job, err = r.findExisting(ctx, cronTab, s)
	} else if created {
		r.Status.Created()
		if s.isScheduled() && s.follows == nil {
			startLag.Observe(kube.Seconds(s.due, r.Clock.Now()))
		}
	}
	if err != nil {
		st.observeCreation(s.name)
		return nil, kube.Named(err, "create", "Job", cronTab.Namespace, s.name)
	}
	started.uid, started.resourceVersion = job.UID, job.ResourceVersion
	st.confirmCreation(started)
	if created {
		r.ping(newPings(cronTab, stablev1.PingStart, &started)...)
	}
	log.FromContext(ctx).V(1).Info("Created Job", "Job", s.name)
	return &started, nil
}

// findExisting returns the existing Job with the name of a run if it is the Job of that run. It
// returns kube.ErrNotOwned if it is not, and kube.ErrStale if it is being deleted.
func (r *Reconciler) findExisting(ctx context.Context, cronTab *stablev1.CronTab, s *pendingRun) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: cronTab.Namespace, Name: s.name}, job)
	switch {
	case apierrors.IsNotFound(err):
		return nil, kube.ErrStale
	case err != nil:
		return nil, err
	case kube.IsLeftover(job, cronTab, kind.GroupKind()):
		return nil, kube.ErrStale
	}
	found := runOf(job)
	switch {
	case !metav1.IsControlledBy(job, cronTab) || found.manual != s.manual || !found.at.Equal(s.at):
		return nil, kube.ErrNotOwned
	case !found.backfill.Equal(s.backfill) || !slices.Equal(found.follows, s.follows):
		// The cache does not have it yet.
		return nil, kube.ErrStale
	}
	return job, nil
}

// jobName returns the name of the Job of a run. The name is the lock that makes a run unique: the
// API server rejects a second Job of the same name.
func jobName(cronTab *stablev1.CronTab, at time.Time) string {
	return cronTab.Name + "-" + strconv.FormatInt(at.Unix(), 10)
}

// newJob returns the Job of a run, as the CronJob controller would create it. In addition, Job
// and Pods have a label with the name of the CronTab, and the Pods the annotation with the scheduled
// time, because a container can read the annotations of its Pod but not those of the Job.
func newJob(cronTab *stablev1.CronTab, template *batchv1.JobTemplateSpec, s *pendingRun, zone *time.Location) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            s.name,
			Namespace:       cronTab.Namespace,
			Labels:          maps.Clone(template.Labels),
			Annotations:     maps.Clone(template.Annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronTab, kind)},
		},
		Spec: template.Spec,
	}
	if job.Annotations == nil {
		job.Annotations = map[string]string{}
	}
	metav1.SetMetaDataLabel(&job.ObjectMeta, stablev1.NameLabel, cronTab.Name)
	// The template may have been copied from a Job.
	delete(job.Annotations, stablev1.RunRequestedAtAnnotation)
	delete(job.Annotations, stablev1.TTLAnnotation)
	delete(job.Annotations, stablev1.ParametersAnnotation)
	delete(job.Annotations, stablev1.BackfillRequestedAtAnnotation)
	delete(job.Annotations, stablev1.FollowsAnnotation)
	scheduled := s.at.In(zone).Format(time.RFC3339)
	job.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = scheduled
	pod := &job.Spec.Template
	pod.Annotations, pod.Labels = maps.Clone(pod.Annotations), maps.Clone(pod.Labels) // do not modify the template of the caller
	metav1.SetMetaDataLabel(&pod.ObjectMeta, stablev1.NameLabel, cronTab.Name)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.CronJobScheduledTimestampAnnotation, scheduled)
	if s.manual {
		job.Annotations[stablev1.RunRequestedAtAnnotation] = formatRequest(s.at)
	}
	if !s.backfill.IsZero() {
		job.Annotations[stablev1.BackfillRequestedAtAnnotation] = formatRequest(s.backfill)
	}
	if s.follows != nil {
		job.Annotations[stablev1.FollowsAnnotation] = joinUIDs(s.follows)
	}
	if s.values != nil {
		job.Annotations[stablev1.ParametersAnnotation] = string(mustMarshal(s.values))
		s.values.AddTo(&pod.Spec)
	}
	if ttl := job.Spec.TTLSecondsAfterFinished; ttl != nil {
		// Until the status records the run, the Job is the only proof of it and must not expire.
		job.Annotations[stablev1.TTLAnnotation] = strconv.FormatInt(int64(*ttl), 10)
		job.Spec.TTLSecondsAfterFinished = nil
	}
	return job
}

// joinUIDs returns UIDs in the format of FollowsAnnotation.
func joinUIDs(uids []types.UID) string {
	texts := make([]string, len(uids))
	for i, uid := range uids {
		texts[i] = string(uid)
	}
	return strings.Join(texts, ",")
}

// jobTemplate returns a copy of the template of a CronTab, or nil if it has none.
func jobTemplate(cronTab *stablev1.CronTab) (*batchv1.JobTemplateSpec, error) {
	template := cronTab.Spec.JobTemplate
	if compact := cachedTemplate(cronTab); compact != "" {
		template = &stablev1.JobTemplate{}
		if err := json.Unmarshal([]byte(compact), template); err != nil {
			return nil, fmt.Errorf("decode the cached jobTemplate of CronTab %s/%s: %w", cronTab.Namespace, cronTab.Name, err)
		}
	}
	if template == nil {
		return nil, nil
	}
	full := template.JobTemplateSpec()
	return full.DeepCopy(), nil
}
