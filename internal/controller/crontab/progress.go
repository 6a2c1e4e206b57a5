package crontab

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// progress is how far a CronTab has come in its timetable.
type progress struct {
	// hash stands for what made the times below.
	hash string
	// until is the last nominal time that is decided, or the time since which the
	// timetable holds.
	until time.Time
	// waiting are nominal times up to until whose runs have still to be started, the
	// earliest first.
	waiting []time.Time
	// last is the nominal time of the run that was started last.
	last time.Time
	// manual is the request whose run was started last.
	manual time.Time
	// missed counts the runs that were due and will never be started.
	missed int64
}

// progressOf returns what a status says.
func progressOf(status *stablev1.CronTabStatus) progress {
	p := progress{
		hash:   status.ScheduleHash,
		until:  timeOf(status.ScheduledUntil),
		last:   timeOf(status.LastScheduleTime),
		manual: timeOf(status.LastManualRunTime),
		missed: status.MissedRuns,
	}
	for _, nominal := range status.QueuedTimes {
		p.waiting = append(p.waiting, nominal.Time)
	}
	return p
}

// record writes it into a status.
func (p progress) record(status *stablev1.CronTabStatus) {
	status.ScheduleHash = p.hash
	status.ScheduledUntil = metaTime(p.until)
	status.LastScheduleTime = metaTime(p.last)
	status.LastManualRunTime = metaTime(p.manual)
	status.MissedRuns = p.missed
	status.QueuedTimes = nil
	for _, nominal := range p.waiting {
		status.QueuedTimes = append(status.QueuedTimes, *metaTime(nominal))
	}
}

// clone returns a copy that shares nothing that changes.
func (p progress) clone() progress {
	p.waiting = slices.Clone(p.waiting)
	return p
}

// equals reports whether both say the same.
func (p progress) equals(other progress) bool {
	return p.hash == other.hash && p.until.Equal(other.until) && slices.EqualFunc(p.waiting, other.waiting, time.Time.Equal) &&
		p.last.Equal(other.last) && p.manual.Equal(other.manual) && p.missed == other.missed
}

// started returns the progress after a run was started.
func (p progress) started(s *start) progress {
	p = p.clone()
	if s.manual {
		p.manual = s.at
		return p
	}
	p.waiting = slices.DeleteFunc(p.waiting, s.at.Equal)
	p.last = s.at
	return p
}

// proven returns the progress with what the Jobs that exist prove: runs are started in
// the order of their times, so that everything up to the latest one is decided, even if
// the status that said so was lost.
func (p progress) proven(runs []run) progress {
	p = p.clone()
	for i := range runs {
		if r := &runs[i]; !r.manual && r.at.After(p.until) {
			p.until = r.at
		}
	}
	for i := range runs {
		r := &runs[i]
		if r.manual {
			continue
		}
		if r.at.After(p.last) {
			p.last = r.at
		}
		p.waiting = slices.DeleteFunc(p.waiting, func(nominal time.Time) bool { return !nominal.After(r.at) })
	}
	return p
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// metaTime returns t as a status has it, in whole seconds; nil for the zero time.
func metaTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	// In the zone in which a client reads it, so that nothing seems to have changed.
	return &metav1.Time{Time: t.Truncate(time.Second).Local()}
}
