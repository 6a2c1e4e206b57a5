package crontab

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
)

// schedule computes the scheduled times of a CronTab and when their runs are due.
type schedule struct {
	plan     *cron.Plan
	location *time.Location
	key      string
	jitter   time.Duration
	// hash is the scheduleHash.
	hash string
	// specHash is the specHash of a CronTab with suspendAfterFailures.
	specHash string
	// empty means that the spec has no schedule.
	empty bool
}

// specError is an invalid field of a CronTab spec.
type specError struct {
	// reason is the reason of the conditions.
	reason string
	// field is the path of the invalid field, and value its value.
	field *field.Path
	value string
	err   error
}

func (e *specError) Error() string { return e.field.String() + ": " + e.err.Error() }

// newSchedule returns the schedule of a CronTab, suspended or not. It fails on an invalid spec that
// the CRD did not catch.
func newSchedule(cronTab *stablev1.CronTab) (*schedule, *specError) {
	options, mistakes := cronOptions(cronTab)
	if len(mistakes) > 0 {
		return nil, mistakes[0]
	}
	plan, err := cron.New(options)
	if err != nil {
		return nil, newScheduleError("daylightSaving", string(cronTab.Spec.DaylightSaving), err)
	}
	made := &schedule{
		plan:     plan,
		location: options.Location,
		key:      hashKey(cronTab),
		jitter:   ptr.Deref(cronTab.Spec.Jitter, metav1.Duration{}).Duration,
		hash:     scheduleHash(&cronTab.Spec),
		empty:    len(options.Schedules) == 0,
	}
	if cronTab.Spec.SuspendAfterFailures != nil {
		made.specHash = specHash(cronTab)
	}
	return made, nil
}

// hashKey returns the key from which H and jitter derive their values.
func hashKey(cronTab *stablev1.CronTab) string { return cronTab.Namespace + "/" + cronTab.Name }

// newScheduleError returns an error with reason InvalidSchedule.
func newScheduleError(name, value string, err error) *specError {
	return &specError{reason: stablev1.ReasonInvalidSchedule, field: field.NewPath("spec", name), value: value, err: err}
}

// cronOptions returns the scheduling options of a CronTab, and all invalid fields that the CRD did
// not catch.
func cronOptions(cronTab *stablev1.CronTab) (cron.Options, []*specError) {
	spec := &cronTab.Spec
	var mistakes []*specError
	zone := string(spec.TimeZone)
	location, err := cron.LoadLocation(zone)
	if err != nil {
		mistakes = append(mistakes, &specError{stablev1.ReasonUnknownTimeZone, field.NewPath("spec", "timeZone"), zone, err})
	}
	options := cron.Options{
		Location:       location,
		DaylightSaving: cron.DaylightSaving(spec.DaylightSaving),
		// Anchoring @every here keeps its times stable when the spec changes.
		Anchor:    cronTab.CreationTimestamp.Time,
		NotBefore: ptr.Deref(spec.NotBefore, metav1.Time{}).Time,
		NotAfter:  ptr.Deref(spec.NotAfter, metav1.Time{}).Time,
	}
	for i, text := range schedulesOf(spec) {
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

// schedulesOf returns the schedules of a spec, one or several.
func schedulesOf(spec *stablev1.CronTabSpec) []stablev1.Schedule {
	if spec.Schedule != "" {
		return []stablev1.Schedule{spec.Schedule}
	}
	return spec.Schedules
}

// scheduleHash identifies all fields of a spec that determine the scheduled times. It must not
// change between versions of the controller: a CronTab with another hash restarts its progress.
func scheduleHash(spec *stablev1.CronTabSpec) string {
	made := struct {
		Schedules           []stablev1.Schedule
		TimeZone            string
		DaylightSaving      string
		NotBefore, NotAfter int64
		ExcludeDates        []stablev1.DateRange
		Suspend             bool
	}{
		Schedules:      schedulesOf(spec),
		TimeZone:       string(spec.TimeZone),
		DaylightSaving: cmp.Or(string(spec.DaylightSaving), string(stablev1.DaylightSavingOnce)),
		ExcludeDates:   spec.ExcludeDates,
		Suspend:        ptr.Deref(spec.Suspend, false),
	}
	if spec.NotBefore != nil {
		made.NotBefore = spec.NotBefore.Unix()
	}
	if spec.NotAfter != nil {
		made.NotAfter = spec.NotAfter.Unix()
	}
	sum := sha256.Sum256(mustMarshal(made))
	return hex.EncodeToString(sum[:8])
}

// due returns when the run of a scheduled time should start: before the next scheduled time, so that
// a jitter longer than the interval drops no runs.
func (t *schedule) due(scheduled time.Time) time.Time {
	limit := t.jitter
	if limit == 0 {
		return scheduled
	}
	if next, ok := t.plan.Next(scheduled); ok {
		limit = min(limit, next.Sub(scheduled)-time.Millisecond)
	}
	return scheduled.Add(cron.Jitter(t.key, scheduled, limit))
}

// next returns the first scheduled time after a time; false if there is none.
func (t *schedule) next(after time.Time) (time.Time, bool) { return t.plan.Next(after) }

// contains reports whether a time is a scheduled time.
func (t *schedule) contains(at time.Time) bool {
	next, ok := t.plan.Next(at.Add(-time.Second))
	return ok && next.Equal(at)
}

// lastDue returns the last scheduled time after a time whose run is due; false if there is none.
func (t *schedule) lastDue(after, now time.Time) (time.Time, bool) {
	last, ok := t.plan.Prev(now.Add(time.Nanosecond))
	if ok && t.due(last).After(now) {
		last, ok = t.plan.Prev(last)
	}
	if !ok || !last.After(after) {
		return time.Time{}, false
	}
	return last, true
}

// latest returns the last n scheduled times in (after, upTo], in order.
func (t *schedule) latest(n int, after, upTo time.Time) []time.Time {
	var found []time.Time
	before := upTo.Add(time.Nanosecond)
	for range n {
		scheduled, ok := t.plan.Prev(before)
		if !ok || !scheduled.After(after) {
			break
		}
		found = append(found, scheduled)
		before = scheduled
	}
	slices.Reverse(found)
	return found
}

// Preview explains the schedule of a CronTab, which need not be stored. For people, before they save it.
type Preview struct {
	// Words are the schedules in English.
	Words []string
	// After is the time after which the runs are, in the time zone of the CronTab.
	After time.Time
	// Runs are scheduled times, in the time zone of the CronTab. They include those of a suspended CronTab.
	Runs []PreviewRun
	// More reports whether more runs follow within the interval.
	More bool
	// Errors are the invalid fields. With any, there are no runs.
	Errors field.ErrorList

	plan *cron.Plan
}

// PreviewRun is a scheduled time.
type PreviewRun struct {
	Time   time.Time
	Clocks cron.Clocks
}

// NewPreview returns a preview with at most limit runs after a time and not after another one.
func NewPreview(cronTab *stablev1.CronTab, after, upTo time.Time, limit int) Preview {
	options, mistakes := cronOptions(cronTab)
	var preview Preview
	for _, schedule := range options.Schedules {
		preview.Words = append(preview.Words, schedule.Words())
	}
	plan, err := cron.New(options)
	if err != nil {
		mistakes = append(mistakes, newScheduleError("daylightSaving", string(cronTab.Spec.DaylightSaving), err))
	}
	for _, mistake := range mistakes {
		preview.Errors = append(preview.Errors, mistake.fieldError())
	}
	if len(preview.Errors) > 0 {
		return preview
	}
	preview.plan = plan
	preview.After = after
	if options.Location != nil {
		preview.After = after.In(options.Location)
	}
	for run := range plan.Between(after, upTo) {
		if len(preview.Runs) == limit {
			preview.More = true
			break
		}
		preview.Runs = append(preview.Runs, PreviewRun{run, plan.ClocksAt(run)})
	}
	return preview
}

// Omissions returns the scheduled times between the runs that do not run. If there are less than limit runs, they continue after
// the last run, up to limit times.
func (p Preview) Omissions(limit int) []cron.Omission {
	if p.plan == nil {
		return nil
	}
	upTo := p.After
	if len(p.Runs) > 0 {
		upTo = p.Runs[len(p.Runs)-1].Time
	}
	open := p.plan.WithoutLimits()
	for range limit - len(p.Runs) {
		next, ok := open.Next(upTo)
		if !ok {
			// Perhaps all times are in hours that the clocks skip.
			upTo = upTo.AddDate(limit-len(p.Runs), 0, 0)
			break
		}
		upTo = next
	}
	return p.plan.Omissions(p.After, upTo)
}
