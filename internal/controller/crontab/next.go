package crontab

import (
	"time"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// NextRuns returns up to n scheduled times of a CronTab after a time, suspended or not, in its time zone. The error
// names the invalid field.
func NextRuns(cronTab *stablev1.CronTab, after time.Time, n int) ([]time.Time, error) {
	times, mistake := newSchedule(cronTab)
	if mistake != nil {
		return nil, mistake
	}
	var runs []time.Time
	for len(runs) < n {
		next, ok := times.next(after)
		if !ok {
			break
		}
		runs = append(runs, next.In(times.location))
		after = next
	}
	return runs, nil
}
