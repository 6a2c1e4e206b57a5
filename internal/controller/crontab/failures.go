package crontab

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// streak is the runs of a CronTab that failed in a row. It is empty without suspendAfterFailures.
type streak struct {
	// specHash identifies the spec that the runs belong to.
	specHash string
	// since is when that spec was first observed. Runs that finished before do not count.
	since time.Time
	// failed are the runs, in the order in which they failed. They stay when their Jobs are deleted.
	failed []failedRun
}

// failedRun is a failed Job.
type failedRun struct {
	name       string
	finishTime time.Time
}

func streakFromStatus(recorded *stablev1.FailureStreak) streak {
	if recorded == nil {
		return streak{}
	}
	s := streak{specHash: recorded.SpecHash, since: recorded.Since.Time}
	for _, r := range recorded.Runs {
		s.failed = append(s.failed, failedRun{r.JobName, r.FinishTime.Time})
	}
	return s
}

// toStatus returns the streak for a status; nil if it is empty.
func (s streak) toStatus() *stablev1.FailureStreak {
	if s.specHash == "" {
		return nil
	}
	recorded := &stablev1.FailureStreak{SpecHash: s.specHash, Since: *toMetaTime(s.since)}
	for _, r := range s.failed {
		recorded.Runs = append(recorded.Runs, stablev1.FailedRun{JobName: r.name, FinishTime: *toMetaTime(r.finishTime)})
	}
	return recorded
}

func (s streak) equal(other streak) bool {
	return s.specHash == other.specHash && s.since.Equal(other.since) &&
		slices.EqualFunc(s.failed, other.failed, func(a, b failedRun) bool { return a.name == b.name && a.finishTime.Equal(b.finishTime) })
}

// countFailures counts the runs that failed in a row, and stops the schedule if they are too many. A success ends the row; once
// the schedule has stopped, only that of a run on demand does.
func (p *plan) countFailures(cronTab *stablev1.CronTab, seen observation) {
	limit := int(ptr.Deref(cronTab.Spec.SuspendAfterFailures, 0))
	if limit == 0 {
		p.progress.streak = streak{}
		return
	}
	s := &p.progress.streak
	if hash := seen.specHash(cronTab); hash != s.specHash {
		*s = streak{specHash: hash, since: p.now.Truncate(time.Second)}
	}
	var finished []run
	for _, r := range s.failed {
		finished = append(finished, run{name: r.name, phase: failed, finishTime: r.finishTime})
	}
	for _, r := range seen.runs {
		isCounted := slices.ContainsFunc(s.failed, func(known failedRun) bool { return known.name == r.name })
		if r.phase != active && r.finishTime.After(s.since) && !isCounted {
			finished = append(finished, r)
		}
	}
	slices.SortFunc(finished, func(a, b run) int {
		return cmp.Or(a.finishTime.Compare(b.finishTime), strings.Compare(string(a.phase), string(b.phase)), strings.Compare(a.name, b.name))
	})
	s.failed = nil
	for _, r := range finished {
		switch {
		case r.phase == failed && len(s.failed) < limit:
			s.failed = append(s.failed, failedRun{r.name, r.finishTime})
		case r.phase == succeeded && (r.manual || len(s.failed) < limit):
			s.failed = nil
		}
	}
	p.stopped = len(s.failed) >= limit
}

// specHash returns the hash of the spec without a request, also of an invalid one.
func (o observation) specHash(cronTab *stablev1.CronTab) string {
	if o.schedule == nil {
		return specHash(cronTab)
	}
	return o.schedule.specHash
}

// specHash identifies the spec of a CronTab except the request: a run on demand is no change.
func specHash(cronTab *stablev1.CronTab) string {
	template := []byte(cachedTemplate(cronTab))
	if cronTab.Spec.JobTemplate != nil {
		template = mustMarshal(cronTab.Spec.JobTemplate)
	}
	spec := cronTab.Spec
	spec.RunRequestedAt, spec.RunParameters, spec.Backfill, spec.JobTemplate = nil, nil, nil, nil
	sum := sha256.Sum256(append(mustMarshal(spec), template...))
	return hex.EncodeToString(sum[:8])
}

// mustMarshal returns the JSON of a type of the API, which always marshals.
func mustMarshal(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return raw
}
