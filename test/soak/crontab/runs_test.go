package crontab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// at returns a fixed whole second plus a number of seconds.
func at(seconds float64) time.Time {
	return time.Unix(1_000_000, 0).Add(time.Duration(seconds * float64(time.Second)))
}

func span(from, to float64) Span { return Span{From: at(from), To: at(to)} }

// ran is a run that was created in the second of its time, or some seconds later.
func ran(nominal int, later ...int) Run {
	run := Run{Nominal: at(float64(nominal)), UID: fmt.Sprintf("uid-%d", nominal), Created: at(float64(nominal))}
	for _, seconds := range later {
		run.Created = run.Created.Add(time.Duration(seconds) * time.Second)
	}
	return run
}

// every2 is a CronTab that ran every 2 s from second 2 to 10 and was suspended soon after.
func every2(policy Policy, most int) Object {
	return Object{Name: "ct", Policy: policy, Most: most, Anchor: at(0), Step: 2 * time.Second, Until: at(10), Last: at(12)}
}

// calm has one manager; in replaced, it is replaced between 3.5 and 7.5.
var (
	calm     = History{Prompt: time.Second, Managers: []Span{span(-5, 20)}}
	replaced = History{Prompt: time.Second, Outages: []Span{span(3.5, 7.7)}, Managers: []Span{span(-5, 3.5), span(7.5, 20)}}
	// afterTrial is like replaced, but the Job of second 6 was rejected.
	afterTrial = History{
		Prompt: time.Second, Outages: replaced.Outages, Managers: replaced.Managers, Tried: map[int64]bool{1000006: true},
	}
)

func TestJudge(t *testing.T) {
	twice := ran(4)
	twice.UID = "another"
	for _, tc := range []struct {
		name    string
		object  Object
		history History
		runs    []Run
		want    Verdict
	}{
		{
			name: "every time has its Job", object: every2(All, 0), history: calm,
			runs: []Run{ran(2), ran(4), ran(6), ran(8), ran(10)}, want: Verdict{Times: 5, Bound: 5},
		},
		{
			name: "the order of the record does not matter, and a run before the suspension is optional", object: every2(All, 0), history: calm,
			runs: []Run{ran(12), ran(4), ran(2), ran(10), ran(8), ran(6)}, want: Verdict{Times: 5, Bound: 5},
		},
		{
			name: "a time without a Job", object: every2(Latest, 0), history: calm,
			runs: []Run{ran(2), ran(4), ran(8), ran(10)},
			want: Verdict{Times: 5, Missed: 1, Bound: 5, Problems: []string{"ct, 1000006 (13:46:46): has no Job, without an outage"}},
		},
		{
			name: "the last time without a Job", object: every2(Latest, 0), history: calm,
			runs: []Run{ran(2), ran(4), ran(6), ran(8)},
			want: Verdict{Times: 5, Missed: 1, Bound: 5, Problems: []string{"ct, 1000010 (13:46:50): has no Job, without an outage"}},
		},
		{
			name: "a time with two Jobs", object: every2(Latest, 0), history: calm,
			runs: []Run{ran(2), ran(4), twice, ran(6), ran(8), ran(10)},
			want: Verdict{Times: 5, Bound: 5, Problems: []string{"ct, 1000004 (13:46:44): ran twice: Jobs another and uid-4"}},
		},
		{
			name: "the record itself is wrong", object: every2(All, 0), history: calm,
			runs: []Run{ran(2), ran(4), ran(4), ran(6), ran(8), ran(10)},
			want: Verdict{Times: 5, Bound: 5, Problems: []string{"ct, 1000004 (13:46:44): the record has the Job uid-4 twice"}},
		},
		{
			name: "a time outside the schedule", object: every2(All, 0), history: calm,
			runs: []Run{ran(2), ran(4), ran(5), ran(6), ran(8), ran(10)},
			want: Verdict{Times: 5, Bound: 5, Problems: []string{
				"ct, 1000005 (13:46:45): is not a time of this schedule, which starts at 1000000 (13:46:40) in steps of 2s",
			}},
		},
		{
			name: "the moment of the anchor is before the first time", object: every2(All, 0), history: calm,
			runs: []Run{ran(0), ran(2), ran(4), ran(6), ran(8), ran(10)},
			want: Verdict{Times: 5, Bound: 5, Problems: []string{
				"ct, 1000000 (13:46:40): is not a time of this schedule, which starts at 1000000 (13:46:40) in steps of 2s",
			}},
		},
		{
			name: "after the suspension", object: every2(Skip, 0), history: calm,
			runs: []Run{ran(2), ran(4), ran(6), ran(8), ran(10), ran(14)},
			want: Verdict{Times: 5, Bound: 5, Problems: []string{
				"ct, 1000014 (13:46:54): ran although the last possible time is 1000012 (13:46:52)",
			}},
		},
		{
			name: "before its time", object: every2(All, 0), history: calm,
			runs: []Run{ran(2), ran(4), ran(6, -1), ran(8), ran(10)},
			want: Verdict{Times: 5, Bound: 5, Problems: []string{"ct, 1000006 (13:46:46): was created early, at 1000005 (13:46:45)"}},
		},
		{
			name: "All runs missed times", object: every2(All, 0), history: replaced,
			runs: []Run{ran(2), ran(4, 3), ran(6, 1), ran(8), ran(10)}, want: Verdict{Times: 5, Bound: 5},
		},
		{
			name: "All skips missed times", object: every2(All, 0), history: replaced,
			runs: []Run{ran(2), ran(6, 1), ran(8), ran(10)},
			want: Verdict{Times: 5, Missed: 1, Bound: 5, Problems: []string{"ct, 1000004 (13:46:44): has no Job, without an outage"}},
		},
		{
			name: "All with a limit of 1 skips one of two", object: every2(All, 1), history: replaced,
			runs: []Run{ran(2), ran(6, 1), ran(8), ran(10)}, want: Verdict{Times: 5, Missed: 1, Bound: 3},
		},
		{
			name: "All with a limit of 2 skips one of three", object: every2(All, 2),
			history: History{Prompt: time.Second, Outages: []Span{span(3.5, 9.7)}, Managers: []Span{span(-5, 3.5), span(9.5, 20)}},
			runs:    []Run{ran(2), ran(6, 3), ran(8, 1), ran(10)}, want: Verdict{Times: 5, Missed: 1, Bound: 2},
		},
		{
			name: "All with a limit of 2 skips one of two", object: every2(All, 2), history: replaced,
			runs: []Run{ran(2), ran(6, 1), ran(8), ran(10)},
			want: Verdict{Times: 5, Missed: 1, Bound: 3, Problems: []string{
				"ct, 1000006 (13:46:46): ran at 1000007 (13:46:47) while 1 times from 1000004 (13:46:44) on were skipped: at that moment fewer than 3 were missed",
			}},
		},
		{
			name: "Latest runs the last missed time", object: every2(Latest, 0), history: replaced,
			runs: []Run{ran(2), ran(6, 1), ran(8), ran(10)}, want: Verdict{Times: 5, Missed: 1, Bound: 3},
		},
		{
			name: "Latest runs an older missed time, too", object: every2(Latest, 0), history: replaced,
			runs: []Run{ran(2), ran(4, 3), ran(6, 1), ran(8), ran(10)},
			want: Verdict{Times: 5, Bound: 3, Problems: []string{
				"ct, 1000004 (13:46:44): ran at 1000007 (13:46:47) by a manager that was started 3.5s after its time: Latest skips it",
			}},
		},
		{
			name: "Latest skips a time that was not missed", object: every2(Latest, 0), history: replaced,
			runs: []Run{ran(2), ran(6, 1), ran(8)},
			want: Verdict{Times: 5, Missed: 2, Bound: 3, Problems: []string{"ct, 1000010 (13:46:50): has no Job, without an outage"}},
		},
		{
			name: "Skip skips missed times", object: every2(Skip, 0), history: replaced,
			runs: []Run{ran(2), ran(8), ran(10)}, want: Verdict{Times: 5, Missed: 2, Bound: 3},
		},
		{
			name: "Skip runs the last missed time", object: every2(Skip, 0), history: replaced,
			runs: []Run{ran(2), ran(6, 1), ran(8), ran(10)},
			want: Verdict{Times: 5, Missed: 1, Bound: 3, Problems: []string{
				"ct, 1000006 (13:46:46): ran at 1000007 (13:46:47) by a manager that was started 1.5s after its time: Skip skips it",
			}},
		},
		{
			name: "Skip continues with a timely attempt", object: every2(Skip, 0), history: afterTrial,
			runs: []Run{ran(2), ran(6, 1), ran(8), ran(10)}, want: Verdict{Times: 5, Missed: 1, Bound: 3},
		},
		{
			name: "another client creates a Job", object: every2(Skip, 0), history: replaced,
			runs: []Run{ran(2), ran(4, 1), ran(8), ran(10)},
			want: Verdict{Times: 5, Missed: 1, Bound: 3, Problems: []string{
				"ct, 1000004 (13:46:44): was created at 1000005 (13:46:45), when no manager was running",
			}},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.object.Judge(tc.runs, tc.history)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestJudgeFindsEveryFault generates faultless histories and introduces one fault: any duplicate,
// missing, early, unscheduled or late run must be found.
func TestJudgeFindsEveryFault(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 15 {
		object := Object{
			Name: fmt.Sprintf("ct-%d", round), Policy: []Policy{All, Latest, Skip}[round%3], Anchor: at(0),
			Step: time.Duration(1+random.IntN(5)) * time.Second, Until: at(300), Last: at(301),
		}
		history := randomHistory(random)
		runs, bound := play(object, history)
		if got := object.Judge(runs, history); len(got.Problems) > 0 {
			t.Fatalf("seed %d, round %d: problems in a faultless history: %s", seed, round, got.Problems)
		}
		spoiled := map[string][]Run{}
		for i, run := range runs {
			if bound[run.Nominal.Unix()] {
				spoiled[fmt.Sprintf("%d is missing", i)] = slices.Delete(slices.Clone(runs), i, i+1)
			}
			again := run
			again.UID += "-again"
			spoiled[fmt.Sprintf("%d is doubled", i)] = append(slices.Clone(runs), again)
			early := slices.Clone(runs)
			early[i].Created = run.Nominal.Add(-time.Second)
			spoiled[fmt.Sprintf("%d is early", i)] = early
			if object.Step > time.Second {
				stray := run
				stray.Nominal, stray.UID = run.Nominal.Add(time.Second), "stray"
				spoiled[fmt.Sprintf("one beside %d", i)] = append(slices.Clone(runs), stray)
			}
		}
		spoiled["one after the end"] = append(slices.Clone(runs), ran(305))
		for what, runs := range spoiled {
			if got := object.Judge(runs, history); len(got.Problems) == 0 {
				t.Fatalf("seed %d, round %d, %s of %d (%s, every %s) is not found", seed, round, what, len(runs), object.Policy, object.Step)
			}
		}
	}
}

// randomHistory has a manager that is replaced at random, with some seconds in between, for 310 s.
func randomHistory(random *rand.Rand) History {
	h := History{Prompt: time.Second}
	began := -1.0
	for second := 0.0; second < 270; {
		second += 1 + 20*random.Float64()
		away := 6 * random.Float64()
		h.Managers = append(h.Managers, span(began, second))
		h.Outages = append(h.Outages, span(second, second+away))
		second += away
		began = second
	}
	h.Managers = append(h.Managers, span(began, 310))
	return h
}

// play returns the runs of a faultless controller, and the times with mandatory runs, by
// definition: with a manager every time runs immediately, and a new manager applies the policy to
// missed ones.
func play(o Object, history History) (runs []Run, bound map[int64]bool) {
	bound = map[int64]bool{}
	next := o.Anchor.Add(o.Step)
	for _, manager := range history.Managers {
		var missed []time.Time
		for ; next.Before(manager.From) && !next.After(o.Last); next = next.Add(o.Step) {
			missed = append(missed, next)
		}
		for i, nominal := range missed {
			if o.Policy == All || o.Policy == Latest && i == len(missed)-1 {
				runs = append(runs, Run{Nominal: nominal, UID: "late-" + clock(nominal), Created: manager.From.Truncate(time.Second)})
				bound[nominal.Unix()] = o.Policy == All
			}
		}
		for ; !next.After(manager.To) && !next.After(o.Last); next = next.Add(o.Step) {
			runs = append(runs, Run{Nominal: next, UID: clock(next), Created: next})
			excused := slices.ContainsFunc(history.Outages, func(s Span) bool { return !s.From.After(next.Add(history.Prompt)) && !s.To.Before(next) })
			bound[next.Unix()] = !next.After(o.Until) && (o.Policy == All || !excused)
		}
	}
	return runs, bound
}

func TestProblemsNameTheTime(t *testing.T) {
	got := every2(Latest, 0).Judge(nil, calm)
	if len(got.Problems) != 5 || !strings.HasPrefix(got.Problems[0], "ct, 1000002 (") {
		t.Errorf("got %q, want one for each of 5 times, sorted", got.Problems)
	}
}
