package crontab

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/kube"
)

// maxInDoubt limits the times that wait for a CronTab in spec.after without a run for them. It may not have that time at all, and the
// Jobs of the others stay as long as a time waits.
const maxInDoubt = 10

// predecessor is a CronTab in spec.after.
type predecessor struct {
	stablev1.Predecessor
	// exists means that there is such a CronTab.
	exists bool
	// runs are its Jobs, and queued the times of its runs that wait to start.
	runs   []run
	queued []time.Time
}

// follows reports whether the end of a run is the one that spec.after asks for.
func (p *predecessor) follows(r run) bool {
	return p.Condition == stablev1.AfterCompleted || (p.Condition == stablev1.AfterFailed) == (r.phase == failed)
}

// turn is what spec.after says about a time.
type turn string

const (
	// turnWaits: a run for the time has not ended.
	turnWaits turn = "waits"
	// turnInDoubt: a CronTab has no run for the time.
	turnInDoubt turn = "in doubt"
	// turnRuns: all runs ended as spec.after says.
	turnRuns turn = "runs"
	// turnPasses: all runs ended, but not all as spec.after says.
	turnPasses turn = "passes"
)

// turnAt returns what spec.after says about a time, and the runs for it that have ended.
func (o observation) turnAt(at time.Time) (turn, []run) {
	verdict, ended := turnRuns, []run(nil)
	for _, p := range o.predecessors {
		var last *run
		for i, r := range p.runs {
			switch {
			case !r.at.Equal(at):
			case r.phase == active:
				return turnWaits, nil
			default:
				ended = append(ended, r)
				if last == nil || !r.finishTime.Before(last.finishTime) {
					last = &p.runs[i]
				}
			}
		}
		switch {
		case last == nil && slices.ContainsFunc(p.queued, at.Equal):
			return turnWaits, nil
		case last == nil:
			verdict = turnInDoubt
		case verdict == turnRuns && !p.follows(*last):
			verdict = turnPasses
		}
	}
	return verdict, ended
}

// uidsOf returns the UIDs of runs, sorted; not nil.
func uidsOf(runs []run) []types.UID {
	all := []types.UID{}
	for _, r := range runs {
		all = append(all, r.uid)
	}
	slices.Sort(all)
	return all
}

// queueFollowing queues the runs whose turn has come by spec.after. Each Job of its CronTabs is followed once: as progress.followed has
// it as long as it exists, and until the status records that, a Job of ours that follows it.
func (p *plan) queueFollowing(cronTab *stablev1.CronTab, seen observation) {
	if len(cronTab.Spec.After) == 0 {
		p.progress.followed = nil
		return
	}
	p.recoverFollowed(seen)
	for _, predecessor := range seen.predecessors {
		if !predecessor.exists {
			p.refused = &refusal{stablev1.ReasonPredecessorNotFound, fmt.Sprintf("CronTab %q in spec.after does not exist, so no run starts. Create it, or remove it from spec.after", predecessor.Crontab)}
		}
	}
	if seen.circle != nil {
		p.refused = &refusal{stablev1.ReasonCircular, fmt.Sprintf("No run starts because CronTabs run after each other in a circle: %s. Remove one from spec.after", strings.Join(seen.circle, ", "))}
	}
	var inDoubt []time.Time
	due := len(p.progress.queued)
	for _, at := range p.newTurns(seen) {
		verdict, ended := seen.turnAt(at)
		switch verdict {
		case turnWaits:
			continue
		case turnInDoubt:
			inDoubt = append(inDoubt, at)
			continue
		case turnRuns:
			if seen.circle == nil && !slices.ContainsFunc(p.progress.queued, at.Equal) {
				p.progress.queued = append(p.progress.queued, at)
				p.confirm = append(p.confirm, ended...)
			}
		}
		p.follow(uidsOf(ended))
	}
	for _, at := range inDoubt[:max(0, len(inDoubt)-maxInDoubt)] {
		_, ended := seen.turnAt(at)
		p.follow(uidsOf(ended))
	}
	if len(p.progress.queued) > due {
		p.limitQueue(&cronTab.Spec)
	}
}

// recoverFollowed brings progress.followed up to date: with the Jobs that ours follow, and without those that are gone. As long as the
// cache may be old, those that it does not have are not gone.
func (p *plan) recoverFollowed(seen observation) {
	for _, r := range seen.runs {
		if r.follows == nil {
			continue
		}
		p.follow(slices.DeleteFunc(slices.Clone(r.follows), seen.lacks))
		_, ended := seen.turnAt(r.at)
		if isSubset(uidsOf(ended), r.follows) {
			p.progress.queued = slices.DeleteFunc(p.progress.queued, r.at.Equal)
		}
	}
	if seen.progress.equal(seen.cached) && !p.isHandover(seen.activeSince) {
		p.progress.followed = slices.DeleteFunc(p.progress.followed, seen.lacks)
	}
}

// lacks reports whether no CronTab in spec.after has a Job with this UID in the cache.
func (o observation) lacks(uid types.UID) bool {
	return !slices.ContainsFunc(o.predecessors, func(p predecessor) bool {
		return slices.ContainsFunc(p.runs, func(r run) bool { return r.uid == uid })
	})
}

// follow adds to progress.followed.
func (p *plan) follow(uids []types.UID) {
	for _, uid := range uids {
		if at, found := slices.BinarySearch(p.progress.followed, uid); !found {
			p.progress.followed = slices.Insert(p.progress.followed, at, uid)
		}
	}
}

// newTurns returns the times with a run that ended and has not been followed, earliest first.
func (p *plan) newTurns(seen observation) []time.Time {
	var times []time.Time
	for _, predecessor := range seen.predecessors {
		for _, r := range predecessor.runs {
			if r.phase != active && r.finishTime.After(p.progress.decidedUntil) && !slices.Contains(p.progress.followed, r.uid) {
				times = append(times, r.at)
			}
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	return slices.CompactFunc(times, time.Time.Equal)
}

// followingRun returns the run for a queued time by spec.after. It returns nil as long as an earlier Job for that time exists, and
// plans to delete it once it has ended.
func (p *plan) followingRun(cronTab *stablev1.CronTab, seen observation, at time.Time) *pendingRun {
	for _, r := range seen.runs {
		if r.name != jobName(cronTab, at) {
			continue
		}
		if r.phase != active && !r.deleting {
			p.replace = append(p.replace, r)
		}
		return nil
	}
	_, ended := seen.turnAt(at)
	due := p.now
	if last := lastFinished(ended, func(runPhase) bool { return true }); last != nil {
		due = last.finishTime
	}
	follows := uidsOf(ended)
	for _, uid := range p.progress.followed {
		if seen.lacks(uid) {
			follows = append(follows, uid) // the cache may be old, and the Job one of that time
		}
	}
	slices.Sort(follows)
	return &pendingRun{at: at, name: jobName(cronTab, at), due: due, values: crontab.Defaults(&cronTab.Spec), follows: follows}
}

// isAwaited reports whether a CronTab that runs after this one may still need the Job of a run.
func (o observation) isAwaited(r run) bool {
	return slices.ContainsFunc(o.successors, func(next stablev1.CronTab) bool {
		status := &next.Status
		switch {
		case !next.DeletionTimestamp.IsZero(), isSuspended(&next), crontab.IsStopped(&next), meta.IsStatusConditionFalse(status.Conditions, stablev1.ConditionScheduleValid):
			return false // as with a schedule, nothing runs later
		case r.phase == active || status.ScheduledUntil == nil:
			return true
		}
		return r.finishTime.After(status.ScheduledUntil.Time) && !slices.Contains(status.FollowedJobs, r.uid)
	})
}

// observeRelatives reads the CronTabs of spec.after with their Jobs, and the CronTabs that run after this one, from the cache.
func (r *Reconciler) observeRelatives(ctx context.Context, cronTab *stablev1.CronTab, seen *observation) error {
	var err error
	if seen.successors, err = r.successors(ctx, client.ObjectKeyFromObject(cronTab)); err != nil {
		return err
	}
	for _, named := range cronTab.Spec.After {
		found := predecessor{Predecessor: named}
		var other stablev1.CronTab
		switch err := r.Client.Get(ctx, client.ObjectKey{Namespace: cronTab.Namespace, Name: named.Crontab}, &other); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return fmt.Errorf("get CronTab %s/%s: %w", cronTab.Namespace, named.Crontab, err)
		default:
			found.exists, found.queued = true, progressFromStatus(&other.Status).queued
			if found.runs, err = r.runsOf(ctx, &other); err != nil {
				return err
			}
		}
		seen.predecessors = append(seen.predecessors, found)
	}
	if len(cronTab.Spec.After) > 0 && len(seen.successors) > 0 {
		seen.circle = circle(ctx, r.Client, cronTab)
	}
	return nil
}

// circle returns the names of the CronTabs that run after each other in a circle with this one, or nil.
func circle(ctx context.Context, reader client.Reader, cronTab *stablev1.CronTab) []string {
	return crontab.Circle(cronTab.Name, func(name string) []stablev1.Predecessor {
		if name == cronTab.Name {
			return cronTab.Spec.After
		}
		var other stablev1.CronTab
		if err := reader.Get(ctx, client.ObjectKey{Namespace: cronTab.Namespace, Name: name}, &other); err != nil {
			return nil
		}
		return other.Spec.After
	})
}

// successors returns the CronTabs that run after one.
func (r *Reconciler) successors(ctx context.Context, key client.ObjectKey) ([]stablev1.CronTab, error) {
	var list stablev1.CronTabList
	if err := r.Client.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingFields{afterIndex: key.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list the CronTabs that run after %s: %w", key, err)
	}
	return list.Items, nil
}

// relatives returns the CronTabs that are reconciled when one has changed: those before and after it.
func (r *Reconciler) relatives(ctx context.Context, cronTab client.Object) []client.ObjectKey {
	keys := r.successorKeys(ctx, client.ObjectKeyFromObject(cronTab))
	for _, name := range afterOf(cronTab) {
		keys = append(keys, client.ObjectKey{Namespace: cronTab.GetNamespace(), Name: name})
	}
	return keys
}

// successorKeys returns the keys of the CronTabs that run after one.
func (r *Reconciler) successorKeys(ctx context.Context, key client.ObjectKey) []client.ObjectKey {
	next, _ := r.successors(ctx, key) // a cache with the index does not fail
	var keys []client.ObjectKey
	for i := range next {
		keys = append(keys, client.ObjectKeyFromObject(&next[i]))
	}
	return keys
}

// followers returns the CronTabs that run after the one that controls a Job.
func (r *Reconciler) followers(ctx context.Context, job client.Object) []client.ObjectKey {
	if !kube.IsControlled(job, kind.GroupKind()) {
		return nil
	}
	return r.successorKeys(ctx, client.ObjectKey{Namespace: job.GetNamespace(), Name: metav1.GetControllerOfNoCopy(job).Name})
}

// confirm fails unless the API server has the Jobs that the next run follows: one that is gone was perhaps followed by another process,
// and the cache of a new process may be older than its record.
func (r *Reconciler) confirm(ctx context.Context, followed []run) error {
	for _, f := range followed {
		if err := kube.CheckLive(ctx, r.Live, "Job", f.job, &batchv1.Job{}, func() bool { return false }); err != nil {
			return err
		}
	}
	return nil
}

// afterIndex indexes CronTabs by the names in spec.after.
const afterIndex = "crontab.after"

func afterOf(cronTab client.Object) []string {
	return crontab.Predecessors(cronTab.(*stablev1.CronTab))
}

// isSubset reports whether all UIDs are among others.
func isSubset(uids, of []types.UID) bool {
	return !slices.ContainsFunc(uids, func(uid types.UID) bool { return !slices.Contains(of, uid) })
}
