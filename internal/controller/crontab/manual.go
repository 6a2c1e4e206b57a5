package crontab

import (
	"fmt"
	"time"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// requested returns the time that asks for a run on demand, in whole seconds; zero if
// nobody asks. A text that is no time is an error.
func requested(cronTab *stablev1.CronTab) (time.Time, error) {
	text, found := cronTab.Annotations[stablev1.RunRequestedAtAnnotation]
	if !found || text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("annotation %s is %q, which is no time; write one in RFC 3339, such as 2026-12-24T18:00:00Z",
			stablev1.RunRequestedAtAnnotation, text)
	}
	return at.Truncate(time.Second), nil
}

// inherit takes a request for answered that a CronTab without a status brings along and that is older than itself: it was
// made of an earlier CronTab, and has come back from a backup, or with a copy.
func (p *plan) inherit(cronTab *stablev1.CronTab) {
	// The clock of who asks may be behind.
	if at, err := requested(cronTab); err == nil && !at.IsZero() && at.Before(cronTab.CreationTimestamp.Add(-clockSkew)) {
		p.progress.manual = at
	}
}

// manualStart returns the run that was asked for and has not been started.
func (p *plan) manualStart(cronTab *stablev1.CronTab, seen observation) *start {
	at, err := requested(cronTab)
	if err != nil || at.IsZero() || at.Equal(p.progress.manual) {
		return nil
	}
	for _, r := range seen.runs {
		if r.manual && r.at.Equal(at) {
			// Its status was lost.
			p.progress.manual = at
			return nil
		}
	}
	return &start{at: at, manual: true, name: manualName(cronTab, seen, at), due: at}
}

// manualName returns the name of the Job of a run on demand: like that of a scheduled
// run, unless one has it or could have it. Then the second is mirrored at the creation of
// the CronTab, where no nominal time ever is.
func manualName(cronTab *stablev1.CronTab, seen observation, at time.Time) string {
	taken := seen.times != nil && seen.times.has(at)
	for _, r := range seen.runs {
		taken = taken || !r.manual && r.at.Equal(at)
	}
	if created := cronTab.CreationTimestamp.Unix(); taken && at.Unix() > created {
		at = time.Unix(2*created-at.Unix(), 0)
	}
	return jobName(cronTab, at)
}
