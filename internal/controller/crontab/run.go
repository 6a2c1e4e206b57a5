package crontab

import (
	"cmp"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// outcome is how far a run has come.
type outcome string

const (
	active    outcome = "active"
	succeeded outcome = "succeeded"
	failed    outcome = "failed"
)

// run is a Job of a CronTab.
type run struct {
	// job is the Job; nil if it was created just now and the cache does not know it.
	// It is shared with the cache and must not be changed.
	job *batchv1.Job

	name    string
	uid     types.UID
	version string

	// at is the nominal time of a scheduled run, or what asked for a manual one.
	at     time.Time
	manual bool

	outcome outcome
	// finished is when it succeeded or failed, begun when it was started.
	finished, begun time.Time
	// deleting says that it is about to go.
	deleting bool
}

// runOf returns the run of a Job that a CronTab controls.
func runOf(job *batchv1.Job) run {
	r := run{
		job: job, name: job.Name, uid: job.UID, version: job.ResourceVersion,
		deleting: job.DeletionTimestamp != nil,
		outcome:  active,
		begun:    job.CreationTimestamp.Time,
	}
	if job.Status.StartTime != nil {
		r.begun = job.Status.StartTime.Time
	}
	if text, ok := job.Annotations[stablev1.RunRequestedAtAnnotation]; ok {
		r.manual = true
		r.at = parseTime(text)
	} else {
		r.at = parseTime(job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	}
	for _, condition := range job.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		switch condition.Type {
		case batchv1.JobComplete:
			r.outcome, r.finished = succeeded, condition.LastTransitionTime.Time
			if job.Status.CompletionTime != nil {
				r.finished = job.Status.CompletionTime.Time
			}
		case batchv1.JobFailed:
			r.outcome, r.finished = failed, condition.LastTransitionTime.Time
		}
	}
	return r
}

// parseTime returns the time of an annotation; zero if it is none.
func parseTime(text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// byTime orders runs by their times.
func byTime(a, b run) int {
	return cmp.Or(a.at.Compare(b.at), strings.Compare(a.name, b.name))
}

// occupying returns the runs that count for the limit of concurrent ones: those that
// have not finished, and those whose pods may not be gone yet.
func occupying(runs []run) []run {
	return slices.DeleteFunc(slices.Clone(runs), func(r run) bool { return r.outcome != active && !r.deleting })
}
