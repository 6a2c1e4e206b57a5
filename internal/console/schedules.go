package console

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// Limits of a question about schedules.
const (
	maxQuestion = 256 << 10 // bytes
	maxCronTabs = 32
	maxRuns     = 200 // of one CronTab
	// maxSchedules and maxExcluded are the limits of the CRD, which does not see a CronTab that is not stored.
	maxSchedules = 32
	maxExcluded  = 366
)

// question asks about the schedules of CronTabs, which need not be stored.
type question struct {
	CronTabs []stablev1.CronTab `json:"cronTabs"`
	After    time.Time          `json:"after"`
	UpTo     time.Time          `json:"upTo"` // no limit if it is zero
	Limit    int                `json:"limit"`
	// Backfill asks what a backfill of them would run.
	Backfill *struct{ From, To string } `json:"backfill"`
}

// preview is the answer about one CronTab.
type preview struct {
	Words  []string      `json:"words"`
	After  string        `json:"after,omitempty"` // in the zone of the CronTab
	Runs   []previewRun  `json:"runs"`
	More   bool          `json:"more"`
	Errors []fieldErrors `json:"errors"`
	// Backfill is set if it was asked for, and the spec is valid.
	Backfill *backfill `json:"backfill,omitempty"`
}

// backfill is what a backfill of a range would run if it was requested now.
type backfill struct {
	From  time.Time `json:"from"`
	To    time.Time `json:"to"`
	Times int       `json:"times"`
	// Message is why the range is refused.
	Message string `json:"message,omitempty"`
}

type previewRun struct {
	Time   string      `json:"time"` // in the zone of the CronTab
	Clocks cron.Clocks `json:"clocks,omitempty"`
}

type fieldErrors struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// schedules explains schedules in words and with their times: so that the page has no second parser. It is a computation,
// without the API and without a change.
func (c *Console) schedules(w http.ResponseWriter, r *http.Request) {
	var asked question
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion)).Decode(&asked); err != nil {
		code, reason := http.StatusBadRequest, metav1.StatusReasonBadRequest
		if large := (*http.MaxBytesError)(nil); errors.As(err, &large) {
			code, reason = http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge
		}
		refuse(w, code, reason, "This is not a question about schedules: "+err.Error())
		return
	}
	if len(asked.CronTabs) > maxCronTabs || asked.Limit < 1 || asked.Limit > maxRuns {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "Too many CronTabs or runs are asked for.")
		return
	}
	if asked.UpTo.IsZero() {
		asked.UpTo = time.Date(9999, time.December, 31, 0, 0, 0, 0, time.UTC)
	}
	answers := make([]preview, len(asked.CronTabs))
	for i := range asked.CronTabs {
		if spec := &asked.CronTabs[i].Spec; len(spec.Schedules) > maxSchedules || len(spec.ExcludeDates) > maxExcluded {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "A CronTab has at most 32 schedules and 366 excluded dates.")
			return
		}
		answers[i] = previewOf(crontab.NewPreview(&asked.CronTabs[i], asked.After, asked.UpTo, asked.Limit))
		if asked.Backfill != nil && len(answers[i].Errors) == 0 {
			answers[i].Backfill = newBackfill(&asked.CronTabs[i], asked.Backfill.From, asked.Backfill.To, time.Now())
		}
	}
	answer(w, http.StatusOK, map[string][]preview{"cronTabs": answers})
}

func previewOf(p crontab.Preview) preview {
	made := preview{Words: append([]string{}, p.Words...), Runs: []previewRun{}, More: p.More, Errors: []fieldErrors{}}
	if !p.After.IsZero() {
		made.After = p.After.Format(time.RFC3339)
	}
	for _, run := range p.Runs {
		made.Runs = append(made.Runs, previewRun{run.Time.Format(time.RFC3339), run.Clocks})
	}
	for _, err := range p.Errors {
		made.Errors = append(made.Errors, fieldErrors{err.Field, err.Detail})
	}
	return made
}

// newBackfill returns what a backfill would run; the range is in the zone of the CronTab, which is valid.
func newBackfill(cronTab *stablev1.CronTab, from, to string, now time.Time) *backfill {
	schedule, _ := crontab.New(cronTab)
	zone := cmp.Or(schedule.Location, time.UTC)
	first, err := crontab.ParseTime(from, zone)
	last, err2 := crontab.ParseTime(to, zone)
	made := &backfill{From: first, To: last}
	if err := errors.Join(err, err2); err != nil {
		made.Message = err.Error()
		return made
	}
	times, err := schedule.NewBackfill(&stablev1.Backfill{RequestedAt: metav1.NewTime(now), From: metav1.NewTime(first), To: metav1.NewTime(last)})
	if err != nil {
		made.Message = err.Error()
	}
	made.Times = times.Len()
	return made
}
