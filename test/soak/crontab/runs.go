// Package crontab judges what a CronTab has run: which of its nominal times have a Job, and whether that is what its
// policy for missed runs allows. It knows nothing of the controller; it computes the times itself, and takes what was
// created from a record of every Job that the API ever had.
package crontab

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Policy is what happens to runs whose time has passed while nothing could run them, as in spec.missedRuns.
type Policy string

const (
	// All runs every missed one, as far as Object.Most goes.
	All Policy = "All"
	// Latest runs the last one that was missed.
	Latest Policy = "Latest"
	// Skip runs none of them.
	Skip Policy = "Skip"
)

// Object is a CronTab with the schedule "@every Step". All times are whole seconds.
type Object struct {
	Name   string
	Policy Policy
	// Most is spec.maxMissedRuns for All; zero says that more were never missed at once.
	Most int
	// Anchor is what the schedule counts from; there is no run at or before it. Step is at least a second.
	Anchor time.Time
	Step   time.Duration
	// Until is the last time that must have run, because the CronTab was in force and at peace until later. Last is
	// the last that may: the CronTab was suspended by then, and that was answered.
	Until, Last time.Time
}

// Run is one Job that the API had.
type Run struct {
	Nominal time.Time
	// UID tells two Jobs of one name apart.
	UID string
	// Created is the creation timestamp of the API: whole seconds, rounded down.
	Created time.Time
	// Fate is what became of the Job, for the text of problems.
	Fate string
}

func (r Run) String() string {
	if r.Fate == "" {
		return r.UID
	}
	return r.UID + " (" + r.Fate + ")"
}

// Span is a time from one moment to another.
type Span struct{ From, To time.Time }

// touches reports whether two spans have a moment in common.
func (s Span) touches(other Span) bool { return !s.To.Before(other.From) && !other.To.Before(s.From) }

// History is what happened while the runs took place.
type History struct {
	// Outages are the times in which a run need not take place: no manager, no API, or a write that failed, each
	// with the time that it takes to get back to work.
	Outages []Span
	// Prompt is how soon a run takes place if there is no outage.
	Prompt time.Duration
	// Managers are the lives of all managers: who was started at From cannot have decided anything before, and what was
	// created after To, and a second for requests on their way, was not decided by it.
	Managers []Span
	// Tried are times, in Unix seconds, whose Job was refused to a manager, or not confirmed: the status may say since then
	// that they wait, and whoever comes next goes on with them.
	Tried map[int64]bool
}

// Verdict is what came out about one object.
type Verdict struct {
	// Problems are all violations, in the order of time; there are none if all is well.
	Problems []string
	// Times is the number of nominal times, Missed of those that have no Job, and Bound of those that must have one
	// whatever the policy is.
	Times, Missed, Bound int
}

// Judge looks at the runs of an object, in any order.
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

// clock is a time as problems name it: as in the name of a Job, and for people.
func clock(t time.Time) string { return fmt.Sprintf("%d (%s)", t.Unix(), t.UTC().Format("15:04:05")) }

// checkEach looks at every Job for itself, and returns them by their time; of two the first.
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
			v.problem(o, run.Nominal, "is no time of this schedule, which counts from %s in steps of %s", clock(o.Anchor), o.Step)
			continue
		case run.Nominal.After(o.Last):
			v.problem(o, run.Nominal, "ran although there was to be none after %s", clock(o.Last))
		case run.Created.Before(run.Nominal):
			v.problem(o, run.Nominal, "was created early, at %s", clock(run.Created))
		}
		byTime[run.Nominal.Unix()] = run
	}
	return byTime
}

// checkStale looks for runs that whoever created them must have left out: another one was due already, or it was too
// late, before that manager was started.
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
			v.problem(o, run.Nominal, "was created at %s, when there was no manager", clock(run.Created))
			continue
		}
		if started.After(run.Nominal.Add(late)) && !history.Tried[second] {
			v.problem(o, run.Nominal, "ran at %s by a manager that was started %s after its time: %s leaves it out",
				clock(run.Created), started.Sub(run.Nominal), o.Policy)
		}
	}
}

// decidedAfter returns the start of the first manager that may have created a Job in a second.
func decidedAfter(created time.Time, managers []Span) (started time.Time, found bool) {
	second := Span{From: created, To: created.Add(time.Second)}
	for _, m := range managers {
		if second.touches(Span{From: m.From, To: m.To.Add(time.Second)}) && (!found || m.From.Before(started)) {
			started, found = m.From, true
		}
	}
	return started, found
}

// checkGaps looks at the times without a Job.
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
				v.problem(o, nominal, "has no Job, and nothing was in the way")
			}
			continue
		}
		// Who left some out ran as many of the latest ones as it may, so that all of these were due.
		due := nominal.Add(time.Duration(most-1) * o.Step)
		if len(gap) > 0 && o.Policy != Skip && run.Created.Before(due) {
			v.problem(o, nominal, "ran at %s while %d times from %s on were left out: at that moment fewer than %d were missed",
				clock(run.Created), len(gap), clock(gap[0]), most+1)
		}
		gap = nil
	}
}

// isExcused reports whether a time may have no Job: not if every missed one runs, and else if something was in the way
// at that time, or before the next one was due.
func (o Object) isExcused(nominal time.Time, history History) bool {
	if o.Policy == All && o.Most == 0 {
		return false
	}
	own := Span{From: nominal, To: nominal.Add(min(o.Step, history.Prompt))}
	return slices.ContainsFunc(history.Outages, own.touches)
}
