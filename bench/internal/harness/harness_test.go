package harness

import (
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
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
		"":                               {[]int{1, 10}, 5},
		"--quick":                        {[]int{1}, 1},
		"--sizes=7,3,0,7 --quick":        {[]int{3, 7}, 1},
		"--quick --rounds=3":             {[]int{1}, 3},
		"--sizes=0":                      {nil, 5},
		"--sizes=many":                   nil,
		"--sizes=-1":                     nil,
		"--sizes=101":                    nil,
		"--rounds=0":                     nil,
		"--quick --rounds=0":             nil,
		"extra":                          nil,
		"--nonsense":                     nil,
		"--rounds=-1 --strict --json=no": nil,
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
	r := NewRun("test", io.Discard)
	r.Flags.SetOutput(io.Discard)
	r.Sizes("sizes", "things", 100)
	if err := r.Parse([]string{"--help"}, 5, ""); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help: error %v", err)
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
		"few values":       {[]float64{1, 2, 3, 4, 5}, 1, 3, 5, 5, 3},
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
	if diff := cmp.Diff(Spread{1, 2, 3}, r.Samples.Differences("ours", "floor", 2, "ready", Last)); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	if got := r.Samples.Ratios("ours", "nobody", 2, "ready", Last); got != (Spread{}) {
		t.Errorf("ratios to a missing contestant: %v", got)
	}
	r.SampleTable(2, []string{"ours", "nobody", "floor"}, Column{"last", "ready", Last, Seconds, ""},
		Column{"× floor", "ready", Last, nil, "floor"}, Column{"gone", "gone", Last, Seconds, ""})
	want := "\n" +
		"|       |   last | × floor | gone |\n" +
		"| ----- | -----: | ------: | ---: |\n" +
		"| ours  | 4.00 s |   2.00× |      |\n" +
		"| floor | 2.00 s |   1.00× |      |\n"
	if diff := cmp.Diff(want, r.text.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestInterleaveBeginsEachRoundWithAnother(t *testing.T) {
	var got []string
	err := Interleave(3, []string{"a", "b"}, func(_ int, contestant string) error {
		got = append(got, contestant)
		return nil
	})
	if diff := cmp.Diff([]string{"a", "b", "b", "a", "a", "b"}, got); err != nil || diff != "" {
		t.Errorf("error %v, (-want +got):\n%s", err, diff)
	}
}

func TestFinish(t *testing.T) {
	r := NewRun("test", io.Discard)
	r.file = filepath.Join(t.TempDir(), "results.json")
	r.Target("writes a Foo", "≤", 2, 2, "", "")
	r.Target("repair", "<", 30, 30, " ms", "")
	r.Target("as fast as the other", "≥", 3, 2.9, "×", "")
	r.RatioTarget("as fast as another", "≥", 3, Spread{2, 3, 4})
	r.RatioTarget("not measured", "≥", 3, Spread{})
	var got strings.Builder
	if err := r.Finish(&got); err != nil {
		t.Fatal(err)
	}
	var met []bool
	for _, target := range r.Targets {
		met = append(met, target.Met())
	}
	if diff := cmp.Diff([]bool{true, false, false, true}, met); diff != "" {
		t.Errorf("targets met (-want +got):\n%s", diff)
	}
	for _, want := range []string{"# bench-test\n", "≤ 2 |", "PASS", "< 30 ms |", "MISS", "≥ 3× |", "rounds from 2.00 to 4.00"} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, got.String())
		}
	}
	if data, err := os.ReadFile(r.file); err != nil || !strings.Contains(string(data), `"name": "repair"`) {
		t.Errorf("the file contains %q, %v", data, err)
	}
}

func TestServed(t *testing.T) {
	metrics, err := parseMetrics(strings.NewReader(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="foos",subresource="status",verb="PUT",version="v1"} 4
apiserver_request_total{code="200",resource="foos",subresource="status",verb="PUT",version="v2"} 1
apiserver_request_total{code="409",resource="foos",subresource="status",verb="PUT",version="v1"} 2
apiserver_request_total{code="201",resource="foos",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="200",resource="foos",subresource="",verb="LIST",version="v1"} 1
apiserver_request_total{code="0",resource="events",subresource="",verb="WATCH",version="v1"} 5
apiserver_request_total{code="201",resource="pods",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="200",resource="",subresource="/readyz",verb="GET",version=""} 9
`))
	if err != nil {
		t.Fatal(err)
	}
	got := served(metrics, []string{"foos", "events"}, []string{"POST foos"}).Since(Requests{"PUT foos/status": 1})
	if diff := cmp.Diff(Requests{"PUT foos/status": 4, "PUT foos/status (409)": 2, "LIST foos": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if none := Requests(nil).Since(got).Writes(); none.Total() != 0 {
		t.Errorf("no requests are %v", none)
	}
	if got.Total() != 7 || got.Writes().Total() != 6 {
		t.Errorf("%v requests and %v writes, want 7 and 6", got.Total(), got.Writes().Total())
	}
	if got, want := got.Each(2), "LIST foos 0.50, PUT foos/status 2.00, PUT foos/status (409) 1.00"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestObserver(t *testing.T) {
	w := watch.NewFake()
	o := Observe(func(event watch.EventType, _ metav1.Object) ([]string, error) { return []string{string(event)}, nil }, w)
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
	if _, err := o.Await(t.Context(), "DELETED", 1); err != nil || !o.Seen("ADDED")["a"].Equal(first["a"]) {
		t.Errorf("error %v; a was first seen %v, and then %v", err, first, o.Seen("ADDED"))
	}
	o.Forget()
	w.Stop()
	if _, err := o.Await(t.Context(), "ADDED", 1); err == nil {
		t.Error("waiting for an object after the end of the watch gives no error")
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
	memory, err := MemoryOf(os.Getpid())
	if err != nil || memory.PSS <= 0 || memory.PSS > memory.RSS || memory.File <= 0 || memory.File > memory.RSS || memory.Peak < memory.RSS/2 {
		t.Errorf("memory %+v, error %v: want 0 < PSS, File <= RSS, and a peak of that order", memory, err)
	}
	if parent, err := ParentOf(os.Getpid()); parent != os.Getppid() {
		t.Errorf("the parent is %d, %v, want %d", parent, err, os.Getppid())
	}
}
