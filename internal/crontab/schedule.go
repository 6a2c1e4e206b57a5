// Package crontab has what the spec and the status of a CronTab say, as pure functions: its scheduled times, a preview of them, and runs on
// demand. The controller, the command line and the console share it.
package crontab

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
)

// Schedule computes the scheduled times of a CronTab and when their runs are due.
type Schedule struct {
	*cron.Plan
	// Location is the time zone; nil for UTC.
	Location *time.Location
	// IsEmpty means that the spec has no schedule.
	IsEmpty bool

	key    string
	jitter time.Duration
}

// SpecError is an invalid field of a CronTab spec.
type SpecError struct {
	// Reason is the reason of the conditions.
	Reason string
	// field is the path of the invalid field, and value its value.
	field *field.Path
	value string
	err   error
}

func (e *SpecError) Error() string { return e.field.String() + ": " + e.err.Error() }

// SpecErrors are all invalid fields of a spec that the CRD does not catch.
type SpecErrors []*SpecError

// Fields returns the errors in the format of the API server, with the positions inside a schedule.
func (e SpecErrors) Fields() field.ErrorList {
	var all field.ErrorList
	for _, mistake := range e {
		all = append(all, field.Invalid(mistake.field, mistake.value, cron.Detail(mistake.err, mistake.value)))
	}
	return all
}

// New returns the schedule of a CronTab, suspended or not. It fails on an invalid spec that the CRD did not catch.
func New(cronTab *stablev1.CronTab) (*Schedule, SpecErrors) {
	schedule, _, mistakes := parse(cronTab)
	return schedule, mistakes
}

// parse returns New with the options of the schedule; those of an invalid spec are the valid ones.
func parse(cronTab *stablev1.CronTab) (*Schedule, cron.Options, SpecErrors) {
	options, mistakes := cronOptions(cronTab)
	plan, err := cron.New(options)
	if err != nil {
		mistakes = append(mistakes, newScheduleError("daylightSaving", string(cronTab.Spec.DaylightSaving), err))
	}
	if len(mistakes) > 0 {
		return nil, options, mistakes
	}
	return &Schedule{
		Plan:     plan,
		Location: options.Location,
		IsEmpty:  len(options.Schedules) == 0,
		key:      hashKey(cronTab),
		jitter:   ptr.Deref(cronTab.Spec.Jitter, metav1.Duration{}).Duration,
	}, options, nil
}

// hashKey returns the key from which H and jitter derive their values.
func hashKey(cronTab *stablev1.CronTab) string { return cronTab.Namespace + "/" + cronTab.Name }

// newScheduleError returns an error with reason InvalidSchedule.
func newScheduleError(name, value string, err error) *SpecError {
	return &SpecError{Reason: stablev1.ReasonInvalidSchedule, field: field.NewPath("spec", name), value: value, err: err}
}

// cronOptions returns the scheduling options of a CronTab, and all invalid fields that the CRD did
// not catch.
func cronOptions(cronTab *stablev1.CronTab) (cron.Options, SpecErrors) {
	spec := &cronTab.Spec
	var mistakes SpecErrors
	zone := string(spec.TimeZone)
	location, err := cron.LoadLocation(zone)
	if err != nil {
		mistakes = append(mistakes, &SpecError{stablev1.ReasonUnknownTimeZone, field.NewPath("spec", "timeZone"), zone, err})
	}
	options := cron.Options{
		Location:       location,
		DaylightSaving: cron.DaylightSaving(spec.DaylightSaving),
		// Anchoring @every here keeps its times stable when the spec changes.
		Anchor:    cronTab.CreationTimestamp.Time,
		NotBefore: ptr.Deref(spec.NotBefore, metav1.Time{}).Time,
		NotAfter:  ptr.Deref(spec.NotAfter, metav1.Time{}).Time,
	}
	for i, text := range Schedules(spec) {
		schedule, err := cron.Parse(string(text), hashKey(cronTab))
		if err != nil {
			mistake := newScheduleError("schedule", string(text), err)
			if spec.Schedule == "" {
				mistake.field = field.NewPath("spec", "schedules").Index(i)
			}
			mistakes = append(mistakes, mistake)
			continue
		}
		options.Schedules = append(options.Schedules, schedule)
	}
	for i, text := range spec.ExcludeDates {
		dates, err := cron.ParseDateRange(string(text))
		if err != nil {
			mistake := newScheduleError("excludeDates", string(text), err)
			mistake.field = mistake.field.Index(i)
			mistakes = append(mistakes, mistake)
			continue
		}
		options.ExcludeDates = append(options.ExcludeDates, dates)
	}
	return options, mistakes
}

// Schedules returns the schedules of a spec, one or several.
func Schedules(spec *stablev1.CronTabSpec) []stablev1.Schedule {
	if spec.Schedule != "" {
		return []stablev1.Schedule{spec.Schedule}
	}
	return spec.Schedules
}

// Due returns when the run of a scheduled time should start: before the next scheduled time, so that
// a jitter longer than the interval drops no runs.
func (t *Schedule) Due(scheduled time.Time) time.Time {
	limit := t.jitter
	if limit == 0 {
		return scheduled
	}
	if next, ok := t.Next(scheduled); ok {
		limit = min(limit, next.Sub(scheduled)-time.Millisecond)
	}
	return scheduled.Add(cron.Jitter(t.key, scheduled, limit))
}

// Contains reports whether a time is a scheduled time.
func (t *Schedule) Contains(at time.Time) bool {
	next, ok := t.Next(at.Add(-time.Second))
	return ok && next.Equal(at)
}

// LastDue returns the last scheduled time after a time whose run is due; false if there is none.
func (t *Schedule) LastDue(after, now time.Time) (time.Time, bool) {
	last, ok := t.Prev(now.Add(time.Nanosecond))
	if ok && t.Due(last).After(now) {
		last, ok = t.Prev(last)
	}
	if !ok || !last.After(after) {
		return time.Time{}, false
	}
	return last, true
}

// Latest returns the last n scheduled times in (after, upTo], in order.
func (t *Schedule) Latest(n int, after, upTo time.Time) []time.Time {
	var found []time.Time
	before := upTo.Add(time.Nanosecond)
	for range n {
		scheduled, ok := t.Prev(before)
		if !ok || !scheduled.After(after) {
			break
		}
		found = append(found, scheduled)
		before = scheduled
	}
	slices.Reverse(found)
	return found
}
