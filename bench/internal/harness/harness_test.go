package harness

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
)

func TestParse(t *testing.T) {
	type options struct {
		Sizes  []int
		Rounds int
	}
	for line, want := range map[string]*options{
		"":                        {[]int{1, 10}, 5},
		"--quick":                 {[]int{1}, 1},
		"--sizes=7,3,0,7 --quick": {[]int{3, 7}, 1},
		"--quick --rounds=3":      {[]int{1}, 3},
		"--sizes=0":               {nil, 5},
		"--sizes=many":            nil,
		"--sizes=101":             nil,
		"--rounds=0":              nil,
		"extra":                   nil,
	} {
		r := NewRun("test", io.Discard)
		r.Flags.SetOutput(io.Discard)
		sizes := r.Sizes("sizes", "things", 100, 1, 10)
		err := r.Parse(strings.Fields(line), 5, "--sizes=1 --rounds=1")
		if want == nil {
			if !errors.Is(err, errUsage) {
				t.Errorf("%q: error %v, want %v", line, err, errUsage)
			}
			continue
		}
		if diff := cmp.Diff(*want, options{*sizes, r.Rounds}); err != nil || diff != "" {
			t.Errorf("%q: error %v (-want +got):\n%s", line, err, diff)
		}
	}
}

func TestStats(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for name, tc := range map[string]struct {
		values                        []float64
		first, p50, p99, last, median float64
	}{
		"no value":         {nil, 0, 0, 0, 0, 0},
		"one value":        {[]float64{7}, 7, 7, 7, 7, 7},
		"two values":       {[]float64{9, 5}, 5, 5, 9, 9, 7},
		"a hundred values": {hundred, 1, 50, 99, 100, 50.5},
	} {
		got := []float64{First(tc.values), P50(tc.values), P99(tc.values), Last(tc.values), NewSpread(tc.values).Median}
		if diff := cmp.Diff([]float64{tc.first, tc.p50, tc.p99, tc.last, tc.median}, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestRatios(t *testing.T) {
	r := NewRun("test", io.Discard)
	add := func(contestant string, round, size int, ready ...float64) {
		r.NewSample(contestant, round, size).Set("ready", ready...)
	}
	add("floor", 0, 2, 1, 2)
	add("ours", 0, 2, 1, 3)
	add("ours", 1, 2, 1, 4)
	add("ours", 1, 2, 1, 6) // twice in a round
	add("floor", 1, 2, 1, 2)
	add("floor", 2, 2, 1, 2) // ours is missing
	add("ours", 0, 1, 9)
	if diff := cmp.Diff(Spread{1.5, 2, 2.5}, r.Samples.Ratios("ours", "floor", 2, "ready", Last)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := r.Samples.Ratios("ours", "nobody", 2, "ready", Last); got != (Spread{}) {
		t.Errorf("ratios to a missing contestant: %v", got)
	}
	r.SampleTable(2, []string{"ours", "nobody", "floor"}, Column{"last", "ready", Last, Seconds, ""},
		Column{"× floor", "ready", Last, nil, "floor"}, Column{"gone", "gone", Last, Seconds, ""})
	want := "\n" +
		"|       | last   | × floor | gone |\n" +
		"| ---   | ---:   | ---:    | ---: |\n" +
		"| ours  | 4.00 s | 2.00×   |      |\n" +
		"| floor | 2.00 s | 1.00×   |      |\n"
	if diff := cmp.Diff(want, r.text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInTurnsBeginsEachRoundWithAnother(t *testing.T) {
	r := NewRun("test", io.Discard)
	var got []string
	err := r.InTurns(3, 7, []string{"a", "b"}, "ready", func(s *Sample) error {
		got = append(got, fmt.Sprintf("%d%s", s.Round, s.Contestant))
		return nil
	})
	if diff := cmp.Diff([]string{"0a", "0b", "1b", "1a", "2a", "2b"}, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}

func TestServed(t *testing.T) {
	all, err := served(strings.NewReader(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="foos",subresource="status",verb="PUT",version="v1"} 4
apiserver_request_total{code="200",resource="foos",subresource="status",verb="PUT",version="v2"} 1
apiserver_request_total{code="409",resource="foos",subresource="status",verb="PUT",version="v1"} 2
apiserver_request_total{code="201",resource="foos",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="200",resource="foos",subresource="",verb="LIST",version="v1"} 1
apiserver_request_total{code="0",resource="events",subresource="",verb="WATCH",version="v1"} 5
apiserver_request_total{code="201",resource="pods",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="200",resource="",subresource="/readyz",verb="GET",version=""} 9
`), []string{"foos", "events"}, []string{"POST foos"})
	if err != nil {
		t.Fatal(err)
	}
	got := all.Since(Writes{"PUT foos/status": 1})
	if got["LIST foos"] != 1 {
		t.Errorf("the reads are not counted: %v", got)
	}
	maps.DeleteFunc(got, isRead)
	if diff := cmp.Diff(Writes{"PUT foos/status": 4, "PUT foos/status (409)": 2}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	samples := Samples{{Size: 1}, {Size: 3}, {Size: 9}}
	samples[0].SetWrites(got)
	samples[1].SetWrites(got)
	if list := samples.Writes(); list != "PUT foos/status 2.00, PUT foos/status (409) 1.00" {
		t.Errorf("got %s", list)
	}
	if diff := cmp.Diff([]float64{6, 2}, samples.Pool("writes")); diff != "" {
		t.Errorf("writes for each (-want +got):\n%s", diff)
	}
}

func TestJudge(t *testing.T) {
	r := NewRun("test", io.Discard)
	for round, ready := range [][3]float64{{1, 1.5, 3}, {2, 3, 6}, {2, 3.5, 4}} {
		for i, contestant := range []string{"floor", "ours", "peer"} {
			r.NewSample(contestant, round, 2).Set("ready", ready[i]/2, ready[i])
		}
	}
	r.Judge(
		Target{Name: "over", Limit: 1.4, Contestant: "ours", Over: "floor", Size: 2, Figure: "ready", Stat: Last},
		Target{Name: "under", Limit: 2, AtLeast: true, Contestant: "peer", Over: "ours", Size: 2, Figure: "ready", Stat: Last},
		Target{Name: "above", Limit: 500, Contestant: "ours", Above: "floor", Size: 2, Figure: "ready", Stat: First, Unit: MS},
		Target{Name: "of itself", Limit: 2, AtLeast: true, Contestant: "ours", Size: 2, Figure: "ready", Stat: First, Unit: S, Note: "so"},
		Target{Name: "of another size", Contestant: "ours", Size: 3, Figure: "ready", Stat: Last},
		Target{Name: "another figure", Contestant: "ours", Size: 2, Figure: "gone", Stat: Last},
		Target{Name: "over nobody", Contestant: "ours", Over: "nobody", Size: 2, Figure: "ready", Stat: Last},
		Target{Name: "above nobody", Contestant: "ours", Above: "nobody", Size: 2, Figure: "ready", Stat: Last})
	want := `| target    | limit    | measured | verdict |                            |
| ---       | ---:     | ---:     | ---:    | ---:                       |
| over      | ≤ 1.4×   | 1.500×   | MISS    | rounds from 1.50 to 1.75   |
| under     | ≥ 2×     | 2.000×   | PASS    | rounds from 1.14 to 2.00   |
| above     | ≤ 500 ms | 500.0 ms | PASS    | 1500 ms, and floor 1000 ms |
| of itself | ≥ 2 s    | 1.500 s  | MISS    | so                         |
`
	if diff := cmp.Diff(want, targetTable(r.Targets)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestObserver(t *testing.T) {
	w := watch.NewFake()
	o := follow(w, Created)
	defer o.Stop()
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	began := time.Now()
	w.Add(foo)
	first, err := o.Await(t.Context(), "ADDED", 1)
	if err != nil || first["a"].Before(began) {
		t.Fatalf("seen %v, %v", first, err)
	}
	w.Add(foo)
	w.Delete(foo)
	if _, err := o.Await(t.Context(), "DELETED", 1); err != nil {
		t.Fatal(err)
	}
	if again, err := o.Await(t.Context(), "ADDED", 1); err != nil || !again["a"].Equal(first["a"]) {
		t.Errorf("error %v; a was first seen %v, and then %v", err, first, again)
	}
	w.Stop()
	if _, err := o.Await(t.Context(), "ADDED", 2); err == nil {
		t.Error("waiting for an object after the end of the watch gives no error")
	}
}

func TestScript(t *testing.T) {
	s := &Script{Dir: t.TempDir()}
	s.Process("mkdir 'a b' &&", "a b", []string{"sh", "-c", "echo \"it's here\"; sleep 1000"}, "log")
	s.Printf("read -r _")
	s.Process("", ".", []string{"sleep", "1000"}, "log")
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if err := s.Go(); err != nil {
		t.Fatal(err)
	}
	pids, err := s.PIDs(t.Context())
	if err != nil || len(pids) != 2 {
		t.Fatalf("processes %v, %v", pids, err)
	}
	err = Until(t.Context(), time.Millisecond, func() error {
		log, err := os.ReadFile(s.Dir + "/a b/log")
		if string(log) != "it's here\n" {
			return errors.Join(fmt.Errorf("the log is %q", log), err)
		}
		return nil
	})
	if err := errors.Join(err, s.Stop()); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if line, err := CommandLine(pid); err == nil {
			t.Errorf("still runs: %q", line)
		}
	}
}

// The process that is measured is this one.
func TestProcess(t *testing.T) {
	before, deadline := ProcessorTime(os.Getpid()), time.Now().Add(10*time.Second)
	for ProcessorTime(os.Getpid()) <= before {
		if time.Now().After(deadline) {
			t.Fatal("10 s of work count as no processor time")
		}
	}
	parent, err := Parent(os.Getpid())
	if memory, memoryErr := MemoryOf(os.Getpid()); err != nil || parent != os.Getppid() || memoryErr != nil || memory <= 0 {
		t.Errorf("parent %v, error %v; memory %v, error %v", parent, err, memory, memoryErr)
	}
}
