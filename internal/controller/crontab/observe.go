package crontab

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// observation is what there is.
type observation struct {
	// since is when this process began to look after CronTabs.
	since time.Time
	// times is the timetable; nil if the spec has a mistake, which invalid is.
	times   *timetable
	invalid *invalidError
	// progress is how far the CronTab has come, and recorded what its status in the API
	// says of that.
	progress, recorded progress
	// runs are the Jobs that it controls, by their times.
	runs []run
	// waiting is since when runs were started and all else was left for later; zero if nothing was.
	waiting time.Time
}

// observe reads what there is. What this process knows better than its cache wins.
func (r *Reconciler) observe(ctx context.Context, cronTab *stablev1.CronTab, m *memory) (observation, error) {
	seen := observation{since: r.since(), recorded: progressOf(&cronTab.Status), waiting: m.waiting}
	seen.times, seen.invalid = newTimetable(cronTab)
	var jobs batchv1.JobList
	err := r.client.List(ctx, &jobs, client.InNamespace(cronTab.Namespace),
		client.MatchingFields{jobOwner: string(cronTab.UID)}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return seen, fmt.Errorf("list the Jobs of CronTab %s/%s: %w", cronTab.Namespace, cronTab.Name, err)
	}
	for i := range jobs.Items {
		seen.runs = append(seen.runs, runOf(&jobs.Items[i]))
	}
	seen.runs = m.addExpected(seen.runs)
	slices.SortFunc(seen.runs, byTime)
	seen.progress = m.load(seen.recorded, seen.runs)
	return seen, nil
}

// zone returns the time zone of the CronTab, or UTC.
func (o observation) zone() *time.Location {
	if o.times == nil {
		return time.UTC
	}
	return o.times.location
}

// isRecorded reports whether the status in the API says that a run has happened, so that
// its Job may go.
func (o observation) isRecorded(cronTab *stablev1.CronTab, r run) bool {
	if r.manual {
		// If something else is asked for by now, this one is not started again.
		at, _ := requested(cronTab)
		return r.at.Equal(o.recorded.manual) || !r.at.Equal(at)
	}
	return !r.at.After(o.recorded.until) && !slices.ContainsFunc(o.recorded.waiting, r.at.Equal)
}

// beyond returns the finished runs with an outcome that are more than a limit, the oldest
// ones.
func (o observation) beyond(outcome outcome, limit int32) []run {
	var finished []run
	for _, r := range o.runs {
		if r.outcome == outcome && !r.deleting {
			finished = append(finished, r)
		}
	}
	if len(finished) <= int(limit) {
		return nil
	}
	slices.SortStableFunc(finished, func(a, b run) int { return a.begun.Compare(b.begun) })
	return finished[:len(finished)-int(limit)]
}
