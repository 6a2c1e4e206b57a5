package crontab

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
)

// neverRuns is what is said of a CronTab that has a schedule and no run to come.
const neverRuns = "No time is left that matches the schedule. Look at spec.schedule, spec.notAfter and spec.excludeDates"

// Validate returns every mistake of a CronTab that its definition lets through, with its field: what the conditions of a
// CronTab that is stored all the same say, or the event about its annotation.
func Validate(cronTab *stablev1.CronTab) field.ErrorList {
	var all field.ErrorList
	_, mistakes := readTimes(cronTab)
	for _, mistake := range mistakes {
		all = append(all, mistake.asFieldError())
	}
	if len(mistakes) == 0 {
		if _, mistake := newTimetable(cronTab); mistake != nil {
			all = append(all, mistake.asFieldError())
		}
	}
	if _, err := requested(cronTab); err != nil {
		all = append(all, field.Invalid(field.NewPath("metadata", "annotations").Key(stablev1.RunRequestedAtAnnotation),
			cronTab.Annotations[stablev1.RunRequestedAtAnnotation], "must be a time in RFC 3339, such as 2026-12-24T18:00:00Z"))
	}
	return all
}

// asFieldError returns the mistake as the API server says it, with the place of what is wrong in a schedule.
func (e *invalidError) asFieldError() *field.Error {
	detail := e.err.Error()
	var parse *cron.ParseError
	if errors.As(e.err, &parse) {
		detail = parse.Detail(e.value)
	}
	return field.Invalid(e.field, e.value, detail)
}

// Warnings returns what somebody should know who writes a CronTab at this time, although it is no mistake.
func Warnings(cronTab *stablev1.CronTab, now time.Time) []string {
	times, mistake := newTimetable(cronTab)
	if mistake != nil || times.empty || isSuspended(cronTab) {
		return nil
	}
	if _, found := times.next(now); !found {
		return []string{neverRuns}
	}
	return nil
}
