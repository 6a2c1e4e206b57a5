package crontab

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
)

// schedule knows the scheduled times of a CronTab, which are called nominal, and when
// their runs are due.
type schedule struct {
	plan     *cron.Plan
	location *time.Location
	key      string
	jitter   time.Duration
	// empty says that there is no schedule.
	empty bool
}

// specError says why a CronTab has no timetable.
type specError struct {
	// reason is that of the conditions.
	reason string
	// field is the field with the mistake, and value what it has.
	field *field.Path
	value string
	err   error
}

func (e *specError) Error() string { return e.field.String() + ": " + e.err.Error() }

// newSchedule returns the timetable that the spec asks for, suspended or not. Its error
// is a mistake in the spec that the API let through.
func newSchedule(cronTab *stablev1.CronTab) (*schedule, *specError) {
	options, mistakes := cronOptions(cronTab)
	if len(mistakes) > 0 {
		return nil, mistakes[0]
	}
	plan, err := cron.New(options)
	if err != nil {
		return nil, newScheduleError("daylightSaving", string(cronTab.Spec.DaylightSaving), err)
	}
	return &schedule{
		plan:     plan,
		location: options.Location,
		key:      hashKey(cronTab),
		jitter:   time.Duration(cronTab.Spec.JitterSeconds) * time.Second,
		empty:    len(options.Schedules) == 0,
	}, nil
}

// hashKey returns what the values of H and the jitter of a CronTab depend on.
func hashKey(cronTab *stablev1.CronTab) string { return cronTab.Namespace + "/" + cronTab.Name }

// newScheduleError is a mistake in a field of the spec that is no time zone.
func newScheduleError(name, value string, err error) *specError {
	return &specError{reason: stablev1.ReasonInvalidSchedule, field: field.NewPath("spec", name), value: value, err: err}
}

// cronOptions returns what the spec says of times, and every mistake in it that the API let
// through.
func cronOptions(cronTab *stablev1.CronTab) (cron.Options, []*specError) {
	spec := &cronTab.Spec
	var mistakes []*specError
	zone := ptr.Deref(spec.TimeZone, "")
	location, err := cron.LoadLocation(zone)
	if err != nil {
		mistakes = append(mistakes, &specError{stablev1.ReasonUnknownTimeZone, field.NewPath("spec", "timeZone"), zone, err})
	}
	options := cron.Options{
		Location:       location,
		DaylightSaving: cron.DaylightSaving(spec.DaylightSaving),
		// @every counts from here: a change of anything else does not shift its times.
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

// schedulesOf returns the one schedule of a spec, or the several.
func schedulesOf(spec *stablev1.CronTabSpec) []stablev1.Schedule {
	if spec.Schedule != "" {
		return []stablev1.Schedule{spec.Schedule}
	}
	return spec.Schedules
}

// scheduleHash stands for all in the spec that makes the nominal times. It must stay the
// same from one version of the controller to the next: a CronTab whose hash is another
// one starts anew.
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
		TimeZone:       ptr.Deref(spec.TimeZone, ""),
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
	raw, err := json.Marshal(made)
	if err != nil {
		// Strings, numbers and a truth value can always be written.
		panic(err)
	}
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// due returns when the run of a nominal time starts.
func (t *schedule) due(nominal time.Time) time.Time {
	return nominal.Add(cron.Jitter(t.key, nominal, t.jitter))
}

// next returns the first nominal time after one; false if there is none.
func (t *schedule) next(after time.Time) (time.Time, bool) { return t.plan.Next(after) }

// contains reports whether a time is a nominal one.
func (t *schedule) contains(at time.Time) bool {
	next, ok := t.plan.Next(at.Add(-time.Second))
	return ok && next.Equal(at)
}

// lastDue returns the last nominal time after one such that the runs of all up to it are
// due; false if there is none.
func (t *schedule) lastDue(after, now time.Time) (time.Time, bool) {
	// Whatever the jitter, these are.
	last, ok := t.plan.Prev(now.Add(-t.jitter).Add(time.Nanosecond))
	if ok && !last.After(after) {
		last, ok = time.Time{}, false
	}
	if t.jitter == 0 {
		return last, ok
	}
	from := after
	if ok {
		from = last
	}
	for nominal := range t.plan.Between(from, now) {
		if t.due(nominal).After(now) {
			break
		}
		last, ok = nominal, true
	}
	return last, ok
}

// latest returns the last n nominal times after one and up to another, in order.
func (t *schedule) latest(n int, after, upTo time.Time) []time.Time {
	var found []time.Time
	before := upTo.Add(time.Nanosecond)
	for range n {
		nominal, ok := t.plan.Prev(before)
		if !ok || !nominal.After(after) {
			break
		}
		found = append(found, nominal)
		before = nominal
	}
	slices.Reverse(found)
	return found
}
