package crontab

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/requests"
)

const (
	// cleanupBatch limits how many Jobs are deleted, and how many patched, in one reconcile:
	// deleting thousands takes minutes, in which runs may become due. cleanupInterval is the pause
	// until the next batch.
	cleanupBatch    = 10
	cleanupInterval = 100 * time.Millisecond

	// handoverPeriod is how long Jobs from before this process became active are kept. A previous
	// leader that was paused may resume with a request in flight; the existing Job blocks it.
	handoverPeriod = time.Minute
)

// selectCleanup selects the Jobs to delete and to patch. A Job whose run the status does not record
// yet is the only proof of it and stays; with suspendAfterFailures, also one whose end it does not record.
func (p *plan) selectCleanup(cronTab *stablev1.CronTab, seen observation) {
	isUncounted := !p.progress.streak.equal(seen.recorded.streak)
	isOpen := func(r run) bool {
		return r.deleting || isUncounted || !seen.isRecorded(cronTab, r) || p.concernsBackfill(seen, r) || seen.isAwaited(r)
	}
	counts := cronTab.Spec.SuspendAfterFailures != nil
	for _, r := range seen.runs {
		if withheldTTL(r) != nil && !isOpen(r) && (!counts || r.phase != active) {
			p.release = append(p.release, r)
		}
	}
	p.prune = append(seen.overHistoryLimit(succeeded, ptr.Deref(cronTab.Spec.SuccessfulJobsHistoryLimit, 3)),
		seen.overHistoryLimit(failed, ptr.Deref(cronTab.Spec.FailedJobsHistoryLimit, 1))...)
	p.prune = slices.DeleteFunc(p.prune, isOpen)
	p.keepDuringHandover(seen.activeSince)
	p.moreCleanup = len(p.prune) > cleanupBatch || len(p.release) > cleanupBatch
	p.prune = p.prune[:min(len(p.prune), cleanupBatch)]
	p.release = p.release[:min(len(p.release), cleanupBatch)]
}

// keepDuringHandover keeps Jobs from before this process became active until the handover period
// has passed.
func (p *plan) keepDuringHandover(since time.Time) {
	if !p.isHandover(since) {
		return
	}
	over := since.Add(handoverPeriod)
	isEarlier := func(r run) bool { return !r.at.After(since) }
	if slices.ContainsFunc(p.prune, isEarlier) || slices.ContainsFunc(p.release, isEarlier) {
		p.wakeAt = kube.Earlier(p.wakeAt, over)
	}
	p.prune = slices.DeleteFunc(p.prune, isEarlier)
	p.release = slices.DeleteFunc(p.release, isEarlier)
}

// isHandover reports whether this process became active less than the handover period ago.
func (p *plan) isHandover(since time.Time) bool { return p.now.Before(since.Add(handoverPeriod)) }

// isRecorded reports whether the status in the API records a run, so that its Job may be deleted.
func (o observation) isRecorded(cronTab *stablev1.CronTab, r run) bool {
	if !r.backfill.IsZero() {
		return true // concernsBackfill knows better
	}
	if r.manual {
		// After a newer request, this one is not started again.
		return r.at.Equal(o.recorded.lastManual) || !r.at.Equal(requests.At(cronTab.Spec.RunRequestedAt))
	}
	if r.follows != nil {
		_, ended := o.turnAt(r.at)
		return isSubset(uidsOf(ended), o.recorded.followed) && !slices.ContainsFunc(o.recorded.queued, r.at.Equal)
	}
	return !r.at.After(o.recorded.decidedUntil) && !slices.ContainsFunc(o.recorded.queued, r.at.Equal)
}

// overHistoryLimit returns the oldest finished runs in a phase that exceed the history limit.
func (o observation) overHistoryLimit(outcome runPhase, limit int32) []run {
	var finished []run
	for _, r := range o.runs {
		if r.phase == outcome && !r.deleting {
			finished = append(finished, r)
		}
	}
	if len(finished) <= int(limit) {
		return nil
	}
	slices.SortStableFunc(finished, func(a, b run) int { return a.startTime.Compare(b.startTime) })
	return finished[:len(finished)-int(limit)]
}

// cleanUp deletes the Jobs to replace and those over the history limits, and restores the time to live of recorded ones. It returns the
// replaced Jobs.
func (r *Reconciler) cleanUp(ctx context.Context, cronTab *stablev1.CronTab, p plan) (replaced []run, err error) {
	for _, run := range p.replace {
		if err := r.deleteJob(ctx, cronTab, run, metav1.DeletePropagationForeground); err != nil {
			return replaced, err
		}
		replaced = append(replaced, run)
	}
	for _, run := range p.release {
		if err := r.restoreTTL(ctx, cronTab, run); err != nil {
			return replaced, err
		}
	}
	for _, run := range p.prune {
		if err := r.deleteJob(ctx, cronTab, run, metav1.DeletePropagationBackground); err != nil {
			return replaced, err
		}
	}
	return replaced, nil
}

// deleteJob deletes a Job. With foreground propagation, the Job stays until its Pods are gone.
func (r *Reconciler) deleteJob(ctx context.Context, cronTab *stablev1.CronTab, run run, propagation metav1.DeletionPropagation) error {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cronTab.Namespace, Name: run.name}}
	err := r.Client.Delete(ctx, job, client.Preconditions{UID: ptr.To(run.uid)}, client.PropagationPolicy(propagation))
	if err != nil && !apierrors.IsNotFound(err) && !kube.IsStale(err) {
		return kube.Named(err, "delete", "Job", cronTab.Namespace, run.name)
	}
	log.FromContext(ctx).V(1).Info("Deleted Job", "Job", run.name)
	return nil
}

// restoreTTL sets ttlSecondsAfterFinished of a Job, which newJob withheld.
func (r *Reconciler) restoreTTL(ctx context.Context, cronTab *stablev1.CronTab, run run) error {
	patch, err := ttlPatch(run)
	if err != nil {
		return fmt.Errorf("marshal the patch of Job %s/%s: %w", cronTab.Namespace, run.name, err)
	}
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: cronTab.Namespace, Name: run.name}}
	err = r.Client.Patch(ctx, job, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(kube.FieldManager))
	if err != nil && !kube.IsStale(err) {
		return kube.Named(err, "patch", "Job", cronTab.Namespace, run.name)
	}
	return nil
}

// withheldTTL returns the ttlSecondsAfterFinished that newJob withheld; nil if there is none, or if
// it was restored.
func withheldTTL(r run) *int32 {
	if r.job == nil {
		return nil
	}
	seconds, err := strconv.ParseInt(r.job.Annotations[stablev1.TTLAnnotation], 10, 32)
	if err != nil {
		return nil
	}
	ttl := int32(seconds)
	return &ttl
}

// ttlPatch returns a merge patch that restores ttlSecondsAfterFinished. The UID keeps it from
// changing a later Job of the same name.
func ttlPatch(r run) ([]byte, error) {
	return json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid":         r.uid,
			"annotations": map[string]any{stablev1.TTLAnnotation: nil},
		},
		"spec": map[string]any{"ttlSecondsAfterFinished": withheldTTL(r)},
	})
}
