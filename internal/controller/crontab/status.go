package crontab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/controller/crontab/ping"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
)

// maxRetryInterval is the longest time until the next attempt to start a run after a transient
// error.
const maxRetryInterval = 10 * time.Second

// summarize returns the status of a CronTab after act.
func summarize(cronTab *stablev1.CronTab, seen observation, p plan, d actResult, actErr error) stablev1.CronTabStatus {
	status := *cronTab.Status.DeepCopy()
	status.ObservedGeneration = cronTab.Generation
	progress, runs, queued := p.progress, seen.runs, p.queuedCount
	if d.started != nil {
		progress = p.afterStart
		runs = append(runs[:len(runs):len(runs)], *d.started)
		queued--
		actErr = nil // the run started; the error is about something else
	}
	progress.writeTo(&status)
	if p.backfill != nil {
		status.Backfill.Total, status.Backfill.Done = int32(p.backfill.Len()), int32(p.backfill.Done(progress.backfill.reached))
	}
	status.NextScheduleTime = toMetaTime(p.next)
	status.Active = activeRefs(cronTab, runs)
	status.LastSuccessfulTime = latestFinish(cronTab.Status.LastSuccessfulTime, runs, succeeded)
	status.LastRun = lastRun(cronTab.Status.LastRun, runs, seen.failure)
	kube.SetConditions(cronTab, &status.Conditions, p.now,
		summarizeSchedule(seen, p),
		summarizeReady(cronTab, seen, p, queued, actErr),
		summarizeLastRun(cronTab.Namespace, status.LastRun),
		summarizeStuck(cronTab.Namespace, seen.stuck))
	return status
}

// activeRefs returns references to unfinished Jobs. An existing reference is kept as it is, so that
// progress of a Job does not change the status of the CronTab.
func activeRefs(cronTab *stablev1.CronTab, runs []run) []corev1.ObjectReference {
	var refs []corev1.ObjectReference
	for _, r := range runs {
		if r.phase != active {
			continue
		}
		ref := corev1.ObjectReference{
			APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job",
			Namespace: cronTab.Namespace, Name: r.name, UID: r.uid, ResourceVersion: r.resourceVersion,
		}
		for _, known := range cronTab.Status.Active {
			if known.UID == r.uid {
				ref = known
			}
		}
		refs = append(refs, ref)
	}
	return refs
}

// latestFinish returns the latest finish time of the runs in a phase, or known if that is later.
func latestFinish(known *metav1.Time, runs []run, outcome runPhase) *metav1.Time {
	latest := fromMetaTime(known)
	for _, r := range runs {
		if r.phase == outcome && r.finishTime.After(latest) {
			latest = r.finishTime
		}
	}
	return toMetaTime(latest)
}

func summarizeSchedule(seen observation, p plan) metav1.Condition {
	condition := metav1.Condition{Type: stablev1.ConditionScheduleValid, Status: metav1.ConditionFalse}
	switch {
	case seen.invalid != nil:
		condition.Reason, condition.Message = seen.invalid.Reason, seen.invalid.Error()
	case seen.schedule.IsEmpty:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, stablev1.ReasonNoSchedule, "No schedule is set"
	default:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionTrue, stablev1.ReasonValid, "The schedule is valid"
	}
	return condition
}

func summarizeReady(cronTab *stablev1.CronTab, seen observation, p plan, queued int, actErr error) metav1.Condition {
	is := func(status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
		return metav1.Condition{Type: stablev1.ConditionReady, Status: status, Reason: reason, Message: fmt.Sprintf(message, args...)}
	}
	if seen.invalid != nil {
		return is(metav1.ConditionFalse, seen.invalid.Reason, "%s", seen.invalid.Error())
	}
	if actErr != nil && p.start != nil {
		return summarizeFailure(is, p.start, actErr)
	}
	if p.refused != nil {
		return is(metav1.ConditionFalse, p.refused.reason, "%s", p.refused.message)
	}
	switch {
	case len(cronTab.Spec.After) > 0 && !isSuspended(cronTab) && !p.stopped:
		return is(metav1.ConditionTrue, stablev1.ReasonScheduled, "The next run starts after %s", strings.Join(afterOf(cronTab), ", "))
	case seen.schedule.IsEmpty && len(cronTab.Spec.After) == 0 && !hasTemplate(cronTab):
		return is(metav1.ConditionFalse, stablev1.ReasonNoSchedule, "Neither a schedule nor a jobTemplate is set, so nothing can run. Set spec.schedule and spec.jobTemplate")
	case seen.schedule.IsEmpty && len(cronTab.Spec.After) == 0:
		return is(metav1.ConditionTrue, stablev1.ReasonNoSchedule, "No schedule is set. To start a run on demand, set spec.runRequestedAt to the current time")
	case isSuspended(cronTab):
		return is(metav1.ConditionTrue, stablev1.ReasonSuspended, "spec.suspend is true. Only runs on demand start")
	case p.stopped:
		return is(metav1.ConditionFalse, stablev1.ReasonTooManyFailures, "No scheduled run starts because %s failed in a row (spec.suspendAfterFailures). "+
			"Fix the cause, then change the spec, start a run on demand that succeeds, or run: keelson crontab resume --namespace %s %s",
			countRuns(len(p.progress.streak.failed)), cronTab.Namespace, cronTab.Name)
	case p.next.IsZero() && queued == 0 && hadTimes(seen.schedule, p.now):
		return is(metav1.ConditionTrue, stablev1.ReasonEnded, "The schedule has no further run")
	case p.next.IsZero() && queued == 0:
		return is(metav1.ConditionFalse, stablev1.ReasonNeverRuns, neverRuns)
	case p.progress.decidedUntil.After(p.now.Add(maxClockSkew)):
		return is(metav1.ConditionFalse, stablev1.ReasonClockBehind, "The clock of the manager was set back, and the last scheduled run is in the future. To start over, suspend and resume the CronTab")
	case p.overflow, queued > 0 && hasReadyReason(cronTab, stablev1.ReasonTooManyMissedRuns):
		return is(metav1.ConditionTrue, stablev1.ReasonTooManyMissedRuns, "More runs were due than the limit allows. The excess runs were dropped; the others are being started")
	}
	return is(metav1.ConditionTrue, stablev1.ReasonScheduled, "The next run is scheduled")
}

// hadTimes reports whether a schedule has a time before now: if it has no further run, it has ended as requested. One without any time is
// a mistake.
func hadTimes(s *schedule, now time.Time) bool {
	_, found := s.Prev(now)
	return found
}

func summarizeFailure(is func(metav1.ConditionStatus, string, string, ...any) metav1.Condition, s *pendingRun, err error) metav1.Condition {
	switch {
	case errors.As(err, new(crontab.ParameterError)):
		return is(metav1.ConditionFalse, stablev1.ReasonInvalidParameters, "No run starts: %s", err)
	case errors.Is(err, kube.ErrNotOwned):
		return is(metav1.ConditionFalse, stablev1.ReasonJobNameTaken,
			"Job %q already exists but is not the Job of this run. The run starts when that Job is gone; delete it if it is not needed", s.name)
	case errors.Is(err, errNoTemplate):
		return is(metav1.ConditionFalse, stablev1.ReasonJobRejected, "A run was requested, but spec.jobTemplate is not set. Set it")
	case kube.IsRejected(err):
		return is(metav1.ConditionFalse, stablev1.ReasonJobRejected,
			"The API server rejected Job %q: %s. Fix spec.jobTemplate, or the policy or quota that rejected it; the controller retries", s.name, kube.APIWords(err))
	default:
		return is(metav1.ConditionFalse, stablev1.ReasonJobWriteFailed, "Failed to create Job %q, retrying: %s", s.name, kube.APIWords(err))
	}
}

func hasTemplate(cronTab *stablev1.CronTab) bool {
	return cachedTemplate(cronTab) != "" || cronTab.Spec.JobTemplate != nil
}

func hasReadyReason(cronTab *stablev1.CronTab, reason string) bool {
	ready := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionReady)
	return ready != nil && ready.Reason == reason
}

// finish schedules the next reconcile, records events, and writes the status if it changed.
func (r *Reconciler) finish(ctx context.Context, cronTab *stablev1.CronTab, st *state, seen observation, p plan, d actResult, actErr error) (reconcile.Result, error) {
	status := summarize(cronTab, seen, p, d, actErr)
	was, is := kube.ConditionTransition(cronTab.Status.Conditions, status.Conditions, stablev1.ConditionReady)
	kube.LogReady(ctx, is)
	outcome := kube.Outcome{Urgent: isUrgent(cronTab, status, p, was, is), Err: actErr, Acted: d.started != nil}
	if p.moreCleanup {
		outcome.Again = cleanupInterval
	}
	wake := p.wakeAt
	switch {
	case actErr == nil:
	case errors.Is(actErr, kube.ErrNotOwned), errors.Is(actErr, errNoTemplate), errors.As(actErr, new(crontab.ParameterError)), kube.IsRejected(actErr):
		outcome.Err = nil
		wake = kube.Earlier(wake, p.now.Add(kube.RejectedPause(is.LastTransitionTime.Time, p.now)))
	default:
		// The backoff of the queue starts shorter but has no such limit.
		wake = kube.Earlier(wake, p.now.Add(maxRetryInterval))
	}
	r.wakeups.set(client.ObjectKeyFromObject(cronTab), wake)
	r.recordEvents(cronTab, st, p, d)

	before, after := statusOnly(cronTab, cronTab.Status), statusOnly(cronTab, status)
	written, result, err := r.Status.Finish(ctx, before, after, outcome)
	if written {
		st.verifiedAt = p.now
		st.lastWrite = &statusWrite{before: cronTab.ResourceVersion, after: after.ResourceVersion, status: status}
		r.ping(endPings(cronTab, seen.runs, seen.failure)...)
		if was.Reason != is.Reason && is.Status == metav1.ConditionFalse {
			r.Events.Warning(cronTab, is.Reason, "Schedule", is.Message)
		}
		was, is = kube.ConditionTransition(cronTab.Status.Conditions, status.Conditions, stablev1.ConditionRunsStuck)
		if was.Status != is.Status && is.Status == metav1.ConditionTrue {
			r.Events.Warning(cronTab, is.Reason, "WatchJob", is.Message)
		}
	}
	return result, err
}

// newPings returns the ping for an event of a run; none if spec.ping does not ask for it.
func newPings(cronTab *stablev1.CronTab, event stablev1.PingEvent, r *run) []*ping.Ping {
	target := cronTab.Spec.Ping
	if target == nil || !slices.Contains(target.Events, event) {
		return nil
	}
	return []*ping.Ping{{
		About:  &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: cronTab.Namespace, Name: cronTab.Name, UID: cronTab.UID}},
		Target: target, Run: r.uid,
		Body: ping.Body{
			CronTab: cronTab.Namespace + "/" + cronTab.Name, Job: r.name, ScheduledTime: r.at.UTC(), Event: event,
			Reason: r.reason[:min(len(r.reason), 256)],
		},
	}}
}

// endPings returns the pings for the runs whose end the status of a CronTab does not record, in the order in which they ended. They are
// due after the update of exactly this status, so no end has two: the API server refuses another update of it.
func endPings(cronTab *stablev1.CronTab, runs []run, f *failure) []*ping.Ping {
	if cronTab.Spec.Ping == nil {
		return nil
	}
	ended := slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.phase == active || isEndRecorded(&cronTab.Status, &r) })
	slices.SortStableFunc(ended, func(a, b run) int { return a.finishTime.Compare(b.finishTime) })
	var pings []*ping.Ping
	for i := range ended {
		r := &ended[i]
		if r.phase == succeeded {
			pings = append(pings, newPings(cronTab, stablev1.PingSuccess, r)...)
			continue
		}
		failures := newPings(cronTab, stablev1.PingFailure, r)
		if f != nil && f.uid == r.uid { // of the others it is not known
			for _, one := range failures {
				one.Body.ExitCode = f.exitCode
			}
		}
		pings = append(pings, failures...)
	}
	return pings
}

// isEndRecorded reports whether a status records the end of a run. A run that started and ended since the last update is not in
// status.active, and ended after lastRun.
func isEndRecorded(status *stablev1.CronTabStatus, r *run) bool {
	for _, ref := range status.Active {
		if ref.UID == r.uid {
			return false
		}
	}
	return status.LastRun != nil && !r.finishTime.Truncate(time.Second).After(status.LastRun.FinishTime.Time)
}

// statusOnly returns a CronTab with a status and its identity. The API server ignores all other
// fields in a status update.
func statusOnly(cronTab *stablev1.CronTab, status stablev1.CronTabStatus) *stablev1.CronTab {
	return &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cronTab.Namespace, Name: cronTab.Name, UID: cronTab.UID, ResourceVersion: cronTab.ResourceVersion,
		},
		Status: status,
	}
}

// isUrgent reports whether a status update must not wait: somebody may be waiting for it, or it
// must not be lost.
func isUrgent(cronTab *stablev1.CronTab, status stablev1.CronTabStatus, p plan, was, is metav1.Condition) bool {
	return p.scheduleChanged || p.cleanupOverdue || !status.LastRunRequestedAt.Equal(cronTab.Status.LastRunRequestedAt) || was.Status != is.Status || was.Reason != is.Reason || was.ObservedGeneration != is.ObservedGeneration ||
		len(status.QueuedTimes) != len(cronTab.Status.QueuedTimes)
}

// lateEventThreshold is how late a run must be for an event. In a burst many runs are late by
// seconds, and each event would be another write ahead of the other runs.
const lateEventThreshold = time.Minute

// recordEvents records events about exceptions. A run on time has no event: the Job is the record, and the
// event would be the third write of the run.
func (r *Reconciler) recordEvents(cronTab *stablev1.CronTab, st *state, p plan, d actResult) {
	if !p.replaced.IsZero() {
		r.Events.Warning(cronTab, stablev1.ReasonRunRequestReplaced, "RequestRun",
			fmt.Sprintf("The run requested at %s will not start: another was requested before it could", formatRequest(p.replaced)))
	}
	// Of several late runs, the last one has the event: those that come too fast for the API server would cost it more than those on time.
	if d.started != nil && (d.started.manual || p.start.isScheduled() && p.queuedCount == 1 && p.now.Sub(p.start.due) > lateEventThreshold) {
		r.Events.Normal(cronTab, stablev1.ReasonSuccessfulCreate, "CreateJob", fmt.Sprintf("Created Job %q", d.started.name))
	}
	for _, replaced := range d.replaced {
		r.Events.Normal(cronTab, stablev1.ReasonSuccessfulDelete, "DeleteJob",
			fmt.Sprintf("Deleted Job %q to make room for the next run", replaced.name))
	}
	if p.blocked != nil && p.blocked.due.After(st.lastBlocked) {
		st.lastBlocked = p.blocked.due
		if policy := cronTab.Spec.ConcurrencyPolicy; policy == stablev1.ForbidConcurrent || policy == stablev1.AllowConcurrent {
			r.Events.Normal(cronTab, stablev1.ReasonJobAlreadyActive, "CreateJob",
				fmt.Sprintf("Run did not start: the limit of concurrencyPolicy %s is reached, %d active at a time", policy, crontab.ConcurrencyLimit(&cronTab.Spec)))
		}
	}
	switch {
	case p.overflow:
		r.Events.Warning(cronTab, stablev1.ReasonTooManyMissedRuns, "Schedule", fmt.Sprintf("Dropped %s: more were due than the limit allows", countRuns(p.missed)))
	case p.missed > 0:
		r.Events.Warning(cronTab, stablev1.ReasonMissSchedule, "Schedule", fmt.Sprintf("Missed %s, which will not start", countRuns(p.missed)))
	}
	if f := st.failure; f != nil && !f.reported {
		f.reported = true
		r.Events.Warning(cronTab, stablev1.ReasonJobFailed, "WatchJob", failureMessage(cronTab.Namespace, f.name, f.reason, f.exitCode))
	}
}

// countRuns returns a number of runs in words.
func countRuns(n int) string {
	if n == 1 {
		return "1 run"
	}
	return fmt.Sprintf("%d runs", n)
}
