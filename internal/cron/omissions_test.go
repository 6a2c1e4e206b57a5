package cron

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// slowOmissions tests every minute of an interval, and returns the groups without their order.
func slowOmissions(o Options, from, to time.Time) []Omission {
	found := map[string]*Omission{}
	add := func(group string, reason OmissionReason, t time.Time) {
		g := found[group]
		if g == nil {
			g = &Omission{Reason: reason, First: t}
			found[group] = g
		}
		g.Last, g.Count = t, g.Count+1
	}
	open := o
	open.NotBefore, open.NotAfter, open.ExcludeDates = time.Time{}, time.Time{}, nil
	inGap := 0 // the number of the present group of excluded times
	for t := from; !t.After(to); t = t.Add(time.Minute) {
		excluded := slowExcluded(o, t)
		if !excluded {
			inGap++
		}
		would := slices.ContainsFunc(o.Schedules, func(s *Schedule) bool { return slowRunsAt(open, s, t) })
		switch early, late := t.Before(o.NotBefore), !o.NotAfter.IsZero() && t.After(o.NotAfter); {
		case would && early:
			add("early", TooEarly, t)
		case would && late:
			add("late", TooLate, t)
		case would && excluded:
			add(fmt.Sprint("excluded", inGap), Excluded, t)
		case !would && !excluded && slices.ContainsFunc(o.Schedules, func(s *Schedule) bool {
			return s.every == 0 && !s.wildcard && o.DaylightSaving == Once && slowMatch(s, wallOf(t)) && !slowRunsAt(open, s, t)
		}):
			add(fmt.Sprint("repeated", wallOf(t).YearDay()), HourRepeated, t)
		}
		previous := t.Add(-time.Second)
		_, offset := previous.Zone()
		skipped := wallOf(t).Sub(wallOf(previous)) - time.Second
		for back := skipped; back > 0 && !excluded; back -= time.Minute {
			if slices.ContainsFunc(o.Schedules, func(s *Schedule) bool {
				return s.every == 0 && (skipped >= 3*time.Hour || s.wildcard || o.DaylightSaving == Literal) && slowMatch(s, wallOf(t).Add(-back))
			}) {
				add(fmt.Sprint("skipped", t), HourSkipped, wallOf(t).Add(-back-time.Duration(offset)*time.Second).In(time.FixedZone("", offset)))
			}
		}
	}
	var all []Omission
	for _, g := range found {
		all = append(all, *g)
	}
	slices.SortFunc(all, byFirst)
	return all
}

// byFirst orders omissions by time, and those that begin together by reason.
func byFirst(a, b Omission) int {
	if order := a.First.Compare(b.First); order != 0 {
		return order
	}
	return strings.Compare(string(a.Reason), string(b.Reason))
}

func TestOmissionsAgreeWithSlowOmissions(t *testing.T)     { compareOmissions(t, 200) }
func TestLongOmissionsAgreeWithSlowOmissions(t *testing.T) { compareOmissions(t, 2000) }

// compareOmissions compares omissions with slowOmissions, in as many cases as there are seeds: some for each reason.
func compareOmissions(t *testing.T, seeds uint64) {
	reasons := map[OmissionReason]int{}
	for seed := range seeds {
		o, from, to, step := randomCase(t, rand.New(rand.NewPCG(seed, 4)))
		if step == 1 {
			continue
		}
		want, got := slowOmissions(o, from, to), mustNew(t, o).Omissions(from.Add(-time.Second), to)
		if !slices.IsSortedFunc(got, func(a, b Omission) int { return a.First.Compare(b.First) }) {
			t.Errorf("seed %d: not in the order of their times: %v", seed, got)
		}
		slices.SortFunc(got, byFirst) // those that begin together have no order
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("seed %d: %v in %s (%s), excluded %v, from %s to %s (-want +got):\n%s", seed, o.Schedules, o.Location, o.DaylightSaving, o.ExcludeDates,
				from.Format(time.RFC3339), to.Format(time.RFC3339), diff)
		}
		for _, omission := range got {
			reasons[omission.Reason]++
		}
	}
	for _, reason := range []OmissionReason{Excluded, TooEarly, TooLate, HourSkipped, HourRepeated} {
		if reasons[reason] == 0 {
			t.Errorf("no case is %s", reason)
		}
	}
}

// Another schedule may have a run at a time that is held back.
func TestOmissionsLeaveOutRunsOfOthers(t *testing.T) {
	o := Options{Location: mustLoad(t, "America/New_York"), Schedules: []*Schedule{mustParse(t, "0,30 1 * * *", ""), mustParse(t, "30 * * * *", "")}}
	from, to := at(t, "2026-11-01T04:00:00Z"), at(t, "2026-11-01T12:00:00Z")
	held := at(t, "2026-11-01T06:00:00Z")
	if diff := cmp.Diff([]Omission{{HourRepeated, held, held, 1}}, mustNew(t, o).Omissions(from, to)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
