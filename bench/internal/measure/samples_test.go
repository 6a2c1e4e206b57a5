package measure

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func durations(numbers ...int) []time.Duration {
	var all []time.Duration
	for _, n := range numbers {
		all = append(all, time.Duration(n))
	}
	return all
}

func TestDistribute(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, tc := range []struct {
		name    string
		samples []time.Duration
		want    Distribution
	}{
		{"no sample gives zeros", nil, Distribution{}},
		{"one sample is everything", durations(7), Distribution{1, 7, 7, 7, 7, 7}},
		{"of two, the first is what half do not exceed", durations(9, 5), Distribution{2, 5, 5, 9, 9, 9}},
		{"of a hundred, one exceeds p99", durations(hundred...), Distribution{100, 1, 50, 90, 99, 100}},
		{"of few samples, p99 is the largest", durations(1, 2, 3, 4, 5), Distribution{5, 1, 3, 5, 5, 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, Distribute(tc.samples)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64
		want   float64
	}{
		{"none", nil, 0},
		{"the middle one, in any order", []float64{9, 1, 5}, 5},
		{"the mean of the middle two", []float64{4, 1, 2, 100}, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := Median(tc.values); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
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
