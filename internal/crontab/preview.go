package crontab

import (
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
)

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
	schedule, options, mistakes := parse(cronTab)
	var preview Preview
	for _, valid := range options.Schedules {
		preview.Words = append(preview.Words, valid.Words())
	}
	if len(mistakes) > 0 {
		preview.Errors = mistakes.Fields()
		return preview
	}
	preview.plan = schedule.Plan
	preview.After = after
	if schedule.Location != nil {
		preview.After = after.In(schedule.Location)
	}
	for run := range schedule.Between(after, upTo) {
		if len(preview.Runs) == limit {
			preview.More = true
			break
		}
		preview.Runs = append(preview.Runs, PreviewRun{run, schedule.ClocksAt(run)})
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

// ClocksNotes say what a change of the clocks does to a run; it has none for other runs.
var ClocksNotes = map[cron.Clocks]string{
	cron.ClocksSkipped: "the clocks skip the scheduled time, so it runs right after",
	cron.ClocksFirst:   "the clocks repeat this time: the first of two",
	cron.ClocksSecond:  "the clocks repeat this time: the second of two",
}

// OmissionNotes say why a time has no run.
var OmissionNotes = map[cron.OmissionReason]string{
	cron.Excluded:     "spec.excludeDates",
	cron.TooEarly:     "before spec.notBefore",
	cron.TooLate:      "after spec.notAfter",
	cron.HourSkipped:  "the clocks skip this time",
	cron.HourRepeated: "the clocks repeat this time, and it runs only the first time",
}
