package measure

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHistogram(t *testing.T) {
	read := func(counts string) []Bucket {
		m, err := ParseMetrics(strings.NewReader("# TYPE lag histogram\n" + counts))
		if err != nil {
			t.Fatal(err)
		}
		return m.Histogram("lag")
	}
	before := read(`lag_bucket{le="1"} 1
lag_bucket{le="2"} 1
lag_bucket{le="+Inf"} 1
lag_sum 1
lag_count 1
`)
	after := read(`lag_bucket{le="1"} 1
lag_bucket{le="2"} 4
lag_bucket{le="+Inf"} 5
lag_sum 9
lag_count 5
`)
	got := HistogramIncrease(before, after)
	want := []Bucket{{1, 0}, {2, 3}, {math.Inf(1), 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, tc := range []struct{ part, above, upTo float64 }{{0.5, 1, 2}, {0.75, 1, 2}, {1, 2, math.Inf(1)}, {0, 1, 2}} {
		if above, upTo, count := Within(got, tc.part); above != tc.above || upTo != tc.upTo || count != 4 {
			t.Errorf("%v of 4 samples are above %v and up to %v of %v, want %v and %v", tc.part, above, upTo, count, tc.above, tc.upTo)
		}
	}
	if _, _, count := Within(nil, 0.5); count != 0 {
		t.Errorf("no histogram has %v samples", count)
	}
}
