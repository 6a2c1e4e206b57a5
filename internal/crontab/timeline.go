package crontab

import (
	"cmp"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cron"
)

// maxBusiest is the number of minutes in Timeline.Busiest.
const maxBusiest = 10

// Timeline is what CronTabs will do in an interval, if their Jobs start when they are due.
type Timeline struct {
	// From is the first minute, and To the first one after the interval.
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// CronTabs is the number of CronTabs that can run: neither suspended, nor stopped after failures, nor invalid.
	CronTabs int `json:"cronTabs"`
	Runs     int `json:"runs"`
	// Hours has the runs of each hour since From.
	Hours []int `json:"hours"`
	// Busiest are the minutes in which most runs start, at least two, the busiest first.
	Busiest []BusyMinute `json:"busiest,omitempty"`
	// Spread is what H would change; nil if no schedule has a fixed minute.
	Spread *Spread `json:"spread,omitempty"`
	// Clocks are runs that a change of the clocks affects, in order.
	Clocks []ClockRun `json:"clocks,omitempty"`
	// MostActive is the estimated number of runs that are active at once; zero without durations.
	MostActive int `json:"mostActive,omitempty"`
	// MostActiveAt is the first minute with so many.
	MostActiveAt *time.Time `json:"mostActiveAt,omitempty"`
	// Overlaps are CronTabs whose runs last longer than the time between two of them.
	Overlaps []Overlap `json:"overlaps,omitempty"`
}

// BusyMinute is a minute in which runs start.
type BusyMinute struct {
	Time     time.Time `json:"time"`
	Runs     int       `json:"runs"`
	CronTabs []string  `json:"cronTabs"`
}

// Spread is what changes with H instead of a fixed minute.
type Spread struct {
	// CronTabs are those with a fixed minute and without jitter.
	CronTabs []string `json:"cronTabs"`
	// Runs is the number of runs in the busiest minute then.
	Runs int `json:"runs"`
}

// ClockRun tells what a change of the clocks does to a CronTab.
type ClockRun struct {
	Time    time.Time `json:"time"`
	CronTab string    `json:"cronTab"`
	// Omitted is why times do not run: cron.HourSkipped or cron.HourRepeated. Empty: the run follows the change, or is one of two.
	Omitted cron.OmissionReason `json:"omitted,omitempty"`
	Clocks  cron.Clocks         `json:"clocks,omitempty"`
	// Note says the same in words.
	Note  string `json:"note"`
	Count int    `json:"count"`
}

// Overlap is a CronTab whose runs overlap.
type Overlap struct {
	CronTab string `json:"cronTab"`
	// Duration is that of a run, and Interval the shortest time between two of them.
	Duration metav1.Duration `json:"duration"`
	Interval metav1.Duration `json:"interval"`
}

// MeanDurations returns the mean durations of the runs whose Jobs have succeeded, by CronTab.
func MeanDurations(jobs []batchv1.Job) map[types.NamespacedName]time.Duration {
	sums, counts := map[types.NamespacedName]time.Duration{}, map[types.NamespacedName]time.Duration{}
	for i := range jobs {
		job := &jobs[i]
		if condition, end := Ended(job); condition != nil && condition.Type == batchv1.JobComplete {
			of := types.NamespacedName{Namespace: job.Namespace, Name: job.Labels[stablev1.NameLabel]}
			sums[of] += end.Sub(job.CreationTimestamp.Time)
			counts[of]++
		}
	}
	for of, count := range counts {
		sums[of] = (sums[of] / count).Round(time.Second)
	}
	return sums
}

// timeline computes a Timeline, from counters for each minute.
type timeline struct {
	Timeline
	first int64
	// starts are the runs that start, spread those with H, and active the changes of the number of active runs.
	starts, spread, active []int32
	fixed                  []string
	plans                  []named
}

type named struct {
	name string
	*Schedule
}

// NewTimeline returns what CronTabs do in [from, to). durations are those of their past runs; without one, a CronTab does not count as active.
func NewTimeline(cronTabs []stablev1.CronTab, from, to time.Time, durations map[types.NamespacedName]time.Duration) Timeline {
	from = from.Truncate(time.Minute)
	n := max(0, int(to.Sub(from)+time.Minute-1)/int(time.Minute))
	t := timeline{first: from.Unix() / 60, starts: make([]int32, n), spread: make([]int32, n), active: make([]int32, n+1)}
	t.From, t.To = from, from.Add(time.Duration(n)*time.Minute)
	for i := range cronTabs {
		if cronTab := &cronTabs[i]; cronTab.Spec.JobTemplate != nil && !ptr.Deref(cronTab.Spec.Suspend, false) && !IsStopped(cronTab) {
			t.add(cronTab, durations[types.NamespacedName{Namespace: cronTab.Namespace, Name: cronTab.Name}])
		}
	}
	t.summarize()
	return t.Timeline
}

// add adds the runs of a CronTab.
func (t *timeline) add(cronTab *stablev1.CronTab, duration time.Duration) {
	schedule, mistakes := New(cronTab)
	if len(mistakes) > 0 {
		return
	}
	if schedule.Count(t.From, t.To) > len(t.starts) {
		schedule.jitter = 0 // it ends before the next run, so it moves runs by less than a minute, and is expensive to compute
	}
	t.CronTabs++
	name := cronTab.Namespace + "/" + cronTab.Name
	t.plans = append(t.plans, named{name, schedule})
	spread := withH(cronTab)
	lasts, interval, last := int((duration+time.Minute-1)/time.Minute), time.Duration(0), -1
	t.visit(schedule, func(minute, runs int) {
		t.starts[minute] += int32(runs)
		t.Runs += runs
		if spread == nil {
			t.spread[minute] += int32(runs)
		}
		if duration == 0 {
			return
		}
		t.active[minute] += int32(runs)
		t.active[min(minute+lasts, len(t.starts))] -= int32(runs)
		if gap := time.Duration(minute-last) * time.Minute; last >= 0 && (interval == 0 || gap < interval) {
			interval = gap
		}
		if runs > 1 {
			interval = time.Minute / time.Duration(runs)
		}
		last = minute
	})
	if interval > 0 && duration > interval {
		t.Overlaps = append(t.Overlaps, Overlap{name, metav1.Duration{Duration: duration}, metav1.Duration{Duration: interval}})
	}
	if spread != nil {
		t.fixed = append(t.fixed, name)
		t.visit(spread, func(minute, runs int) { t.spread[minute] += int32(runs) })
	}
}

// visit calls do with each minute in which runs of a schedule are due, counted from the first one, and their number.
func (t *timeline) visit(schedule *Schedule, do func(minute, runs int)) {
	after, upTo := t.From.Add(-time.Second), t.To.Add(-time.Second)
	if schedule.jitter == 0 {
		schedule.Minutes(after, upTo, func(minute int64, runs int) { do(int(minute-t.first), runs) })
		return
	}
	for run := range schedule.Between(after.Add(-schedule.jitter), upTo) {
		if minute := int(schedule.Due(run).Unix()/60 - t.first); minute >= 0 && minute < len(t.starts) {
			do(minute, 1)
		}
	}
}

// withH returns the schedule of a CronTab with H instead of fixed minutes; nil if it has none, or jitter spreads its runs.
func withH(cronTab *stablev1.CronTab) *Schedule {
	hashed := *cronTab
	hashed.Spec.Schedule, hashed.Spec.Schedules = "", slices.Clone(Schedules(&cronTab.Spec))
	changed := false
	for i, schedule := range hashed.Spec.Schedules {
		if text, ok := cron.WithH(string(schedule)); ok {
			hashed.Spec.Schedules[i], changed = stablev1.Schedule(text), true
		}
	}
	if schedule, mistakes := New(&hashed); changed && len(mistakes) == 0 && schedule.jitter == 0 {
		return schedule
	}
	return nil
}

// summarize fills what depends on all CronTabs.
func (t *timeline) summarize() {
	t.Hours = make([]int, (len(t.starts)+59)/60)
	for minute, runs := range t.starts {
		t.Hours[minute/60] += int(runs)
	}
	t.findBusiest()
	if len(t.fixed) > 0 {
		t.Spread = &Spread{t.fixed, int(slices.Max(append(t.spread, 0)))}
	}
	active := 0
	for minute, change := range t.active {
		if active += int(change); active > t.MostActive {
			at := t.From.Add(time.Duration(minute) * time.Minute)
			t.MostActive, t.MostActiveAt = active, &at
		}
	}
	slices.SortStableFunc(t.Overlaps, func(a, b Overlap) int {
		return cmp.Compare(b.Duration.Duration-b.Interval.Duration, a.Duration.Duration-a.Interval.Duration)
	})
	t.findClocks()
}

// findBusiest fills Busiest.
func (t *timeline) findBusiest() {
	var busiest []int
	for minute, runs := range t.starts {
		if runs < 2 || len(busiest) == maxBusiest && runs <= t.starts[busiest[maxBusiest-1]] {
			continue
		}
		at, _ := slices.BinarySearchFunc(busiest, runs, func(other int, runs int32) int {
			if t.starts[other] >= runs { // the earlier of two stays before the other
				return -1
			}
			return 1
		})
		busiest = slices.Insert(busiest, at, minute)
		busiest = busiest[:min(len(busiest), maxBusiest)]
	}
	for _, minute := range busiest {
		busy := BusyMinute{Time: t.From.Add(time.Duration(minute) * time.Minute), Runs: int(t.starts[minute])}
		for _, plan := range t.plans {
			if plan.startsIn(busy.Time) {
				busy.CronTabs = append(busy.CronTabs, plan.name)
			}
		}
		t.Busiest = append(t.Busiest, busy)
	}
}

// startsIn reports whether a run is due in a minute.
func (n named) startsIn(minute time.Time) bool {
	end := minute.Add(time.Minute - time.Second)
	if n.jitter == 0 {
		return n.Count(minute.Add(-time.Second), end) > 0
	}
	for run := range n.Between(minute.Add(-n.jitter-time.Second), end) {
		if due := n.Due(run); !due.Before(minute) && due.Before(minute.Add(time.Minute)) {
			return true
		}
	}
	return false
}

// findClocks fills Clocks.
func (t *timeline) findClocks() {
	changes := map[string][]time.Time{} // by time zone
	for _, plan := range t.plans {
		zone := plan.Location.String()
		if _, known := changes[zone]; !known {
			changes[zone] = plan.ClockChanges(t.From, t.To)
		}
		for _, change := range changes[zone] {
			t.Clocks = append(t.Clocks, plan.at(change)...)
		}
	}
	slices.SortStableFunc(t.Clocks, func(a, b ClockRun) int { return a.Time.Compare(b.Time) })
}

// at returns what a change of the clocks does. CronTabs that run every hour lose and gain nothing by it.
func (n named) at(change time.Time) []ClockRun {
	const around = 3 * time.Hour // longer than any change
	if n.Count(change.Add(-around), change.Add(time.Hour-around)) > 0 && n.Count(change.Add(around-time.Hour), change.Add(around)) > 0 {
		return nil
	}
	var found []ClockRun
	for _, omission := range n.Omissions(change.Add(-around), change.Add(around)) {
		if omission.Reason == cron.HourSkipped || omission.Reason == cron.HourRepeated {
			found = append(found, ClockRun{Time: omission.First, CronTab: n.name, Omitted: omission.Reason, Note: OmissionNotes[omission.Reason], Count: omission.Count})
		}
	}
	counts := map[cron.Clocks]ClockRun{}
	for run := range n.Between(change.Add(-around), change.Add(around)) {
		if clocks := n.ClocksAt(run); clocks == cron.ClocksSkipped || clocks == cron.ClocksSecond {
			first, known := counts[clocks]
			if !known {
				first = ClockRun{Time: run, CronTab: n.name, Clocks: clocks, Note: ClocksNotes[clocks]}
			}
			first.Count++
			counts[clocks] = first
		}
	}
	return append(found, slices.Collect(maps.Values(counts))...)
}
