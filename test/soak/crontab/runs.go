// Package crontab verifies the runs of a CronTab: which of its nominal times have a Job, and
// whether its policy for missed runs allows that. It is independent of the controller: it computes
// the times itself, and uses a record of every Job that the API ever had.
package crontab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Policy is the policy for missed runs, as in spec.missedRuns.
type Policy string

const (
	// All runs every missed time, up to Object.Most.
	All Policy = "All"
	// Latest runs the last missed time.
	Latest Policy = "Latest"
	// Skip runs no missed time.
	Skip Policy = "Skip"
)

// Object is a CronTab with the schedule "@every Step". All times are whole seconds.
type Object struct {
	Name   string
	Policy Policy
	// Most is spec.maxMissedRuns for All; zero means that it was never exceeded.
	Most int
	// Anchor is the start of the schedule; there is no run at or before it. Step is at least a
	// second.
	Anchor time.Time
	Step   time.Duration
	// Until is the last time with a mandatory run: the CronTab was active and undisturbed beyond
	// it. Last is the last possible time: the CronTab was suspended by then, and the API had
	// confirmed it.
	Until, Last time.Time
}

// Run is one Job that the API had.
type Run struct {
	Nominal time.Time
	// UID distinguishes two Jobs with the same name.
	UID string
	// Created is the creation timestamp of the API, rounded down to seconds.
	Created time.Time
	// Fate describes the result of the Job, for problems.
	Fate string
	// Removed means that the Job was deleted by hand.
	Removed bool
}

func (r Run) String() string {
	if r.Fate == "" {
		return r.UID
	}
	return r.UID + " (" + r.Fate + ")"
}

// Span is the time between two moments.
type Span struct{ From, To time.Time }

// touches reports whether two spans overlap.
func (s Span) touches(other Span) bool { return !s.To.Before(other.From) && !other.To.Before(s.From) }

// History has the events during the runs.
type History struct {
	// Outages are the times in which runs may be missed: without a manager or an API, or after a
	// failed write, including the recovery.
	Outages []Span
	// Prompt is the maximum delay of a run without an outage.
	Prompt time.Duration
	// Managers are the lifetimes of all managers. A manager decided nothing before From; a Job
	// created more than a second after To, which allows for requests in transit, is not its
	// decision.
	Managers []Span
	// Tried are times, in Unix seconds, for which the creation of a Job failed or was not
	// confirmed. The status may have recorded them as waiting, and the next manager continues with
	// them.
	Tried map[int64]bool
}

// Verdict is the result for an object.
type Verdict struct {
	// Problems are all violations, sorted by time.
	Problems []string
	// Times is the number of nominal times, Missed of those without a Job, and Bound of those that
	// must have one under any policy.
	Times, Missed, Bound int
}

// Judge verifies the runs of an object, in any order.
func (o Object) Judge(runs []Run, history History) Verdict {
	var v Verdict
	byTime := o.checkEach(&v, runs)
	o.checkStale(&v, byTime, history)
	o.checkGaps(&v, byTime, history)
	return v
}

func (v *Verdict) problem(o Object, nominal time.Time, format string, args ...any) {
	v.Problems = append(v.Problems, fmt.Sprintf("%s, %s: ", o.Name, clock(nominal))+fmt.Sprintf(format, args...))
}

// clock formats a time for problems: as in the name of a Job, and for people.
func clock(t time.Time) string { return fmt.Sprintf("%d (%s)", t.Unix(), t.UTC().Format("15:04:05")) }

// checkEach verifies every Job by itself, and returns the first Job of each time.
func (o Object) checkEach(v *Verdict, runs []Run) map[int64]Run {
	sorted := slices.Clone(runs)
	slices.SortStableFunc(sorted, func(a, b Run) int {
		return cmp.Or(a.Nominal.Compare(b.Nominal), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
	})
	byTime := map[int64]Run{}
	for _, run := range sorted {
		first, found := byTime[run.Nominal.Unix()]
		switch {
		case found && first.UID == run.UID:
			v.problem(o, run.Nominal, "the record has the Job %s twice", run.UID)
			continue
		case found:
			v.problem(o, run.Nominal, "ran twice: Jobs %s and %s", first, run)
			continue
		case !run.Nominal.After(o.Anchor) || run.Nominal.Sub(o.Anchor)%o.Step != 0:
			v.problem(o, run.Nominal, "is not a time of this schedule, which starts at %s in steps of %s", clock(o.Anchor), o.Step)
			continue
		case run.Nominal.After(o.Last):
			v.problem(o, run.Nominal, "ran although the last possible time is %s", clock(o.Last))
		case run.Created.Before(run.Nominal):
			v.problem(o, run.Nominal, "was created early, at %s", clock(run.Created))
		}
		byTime[run.Nominal.Unix()] = run
	}
	return byTime
}

// checkStale finds runs that their manager should have skipped, because when it started another one
// was already due, or it was too late.
func (o Object) checkStale(v *Verdict, byTime map[int64]Run, history History) {
	late := o.Step
	switch o.Policy {
	case Skip:
		late = 0
	case All:
		return
	}
	for _, second := range slices.Sorted(maps.Keys(byTime)) {
		run := byTime[second]
		started, found := decidedAfter(run.Created, history.Managers)
		if !found {
			v.problem(o, run.Nominal, "was created at %s, when no manager was running", clock(run.Created))
			continue
		}
		if started.After(run.Nominal.Add(late)) && !history.Tried[second] {
			v.problem(o, run.Nominal, "ran at %s by a manager that was started %s after its time: %s skips it",
				clock(run.Created), started.Sub(run.Nominal), o.Policy)
		}
	}
}

// decidedAfter returns the start of the first manager that can have created a Job in a second.
func decidedAfter(created time.Time, managers []Span) (started time.Time, found bool) {
	second := Span{From: created, To: created.Add(time.Second)}
	for _, m := range managers {
		if second.touches(Span{From: m.From, To: m.To.Add(time.Second)}) && (!found || m.From.Before(started)) {
			started, found = m.From, true
		}
	}
	return started, found
}

// checkGaps verifies the times without a Job.
func (o Object) checkGaps(v *Verdict, byTime map[int64]Run, history History) {
	most := 1
	if o.Policy == All {
		most = o.Most
	}
	var gap []time.Time
	for nominal := o.Anchor.Add(o.Step); !nominal.After(o.Until); nominal = nominal.Add(o.Step) {
		v.Times++
		excused := o.isExcused(nominal, history)
		if !excused {
			v.Bound++
		}
		run, found := byTime[nominal.Unix()]
		if !found {
			v.Missed++
			gap = append(gap, nominal)
			if !excused {
				v.problem(o, nominal, "has no Job, without an outage")
			}
			continue
		}
		// The manager ran as many of the latest times as it may, so all of these were due.
		due := nominal.Add(time.Duration(most-1) * o.Step)
		if len(gap) > 0 && o.Policy != Skip && run.Created.Before(due) {
			v.problem(o, nominal, "ran at %s while %d times from %s on were skipped: at that moment fewer than %d were missed",
				clock(run.Created), len(gap), clock(gap[0]), most+1)
		}
		gap = nil
	}
}

// isExcused reports whether a time may have no Job: under All never, otherwise if there was an
// outage at that time or before the next one was due.
func (o Object) isExcused(nominal time.Time, history History) bool {
	if o.Policy == All && o.Most == 0 {
		return false
	}
	own := Span{From: nominal, To: nominal.Add(min(o.Step, history.Prompt))}
	return slices.ContainsFunc(history.Outages, own.touches)
}
