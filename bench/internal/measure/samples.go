// Package measure has what the benchmarks share: samples and what sums them up, rounds in which what is compared
// takes turns, the processor time and memory of other processes, metrics of other programs, and tables of results.
package measure

import (
	"cmp"
	"slices"
	"time"
)

// Distribution sums up durations.
type Distribution struct {
	Count int           `json:"count"`
	Min   time.Duration `json:"minNanoseconds"`
	P50   time.Duration `json:"p50Nanoseconds"`
	P90   time.Duration `json:"p90Nanoseconds"`
	P99   time.Duration `json:"p99Nanoseconds"`
	Max   time.Duration `json:"maxNanoseconds"`
}

// Distribute sums up samples, in any order; of none it returns zeros.
func Distribute(samples []time.Duration) Distribution {
	if len(samples) == 0 {
		return Distribution{}
	}
	sorted := slices.Sorted(slices.Values(samples))
	return Distribution{
		Count: len(sorted),
		Min:   sorted[0],
		P50:   percentile(sorted, 50),
		P90:   percentile(sorted, 90),
		P99:   percentile(sorted, 99),
		Max:   sorted[len(sorted)-1],
	}
}

// percentile returns the smallest of the sorted samples that at least p percent of them do not exceed (nearest rank),
// so that it is always a time that was measured.
func percentile(sorted []time.Duration, p int) time.Duration {
	rank := (len(sorted)*p + 99) / 100
	return sorted[max(rank, 1)-1]
}

// Number is what there is a median of.
type Number interface {
	cmp.Ordered
	~int | ~int64 | ~float64
}

// Median returns the middle of the values, of an even number of them the mean of the two middle ones, of none zero.
func Median[T Number](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return sorted[middle-1] + (sorted[middle]-sorted[middle-1])/2
}

// MedianOf returns the median of one number of each of the items.
func MedianOf[I any, T Number](items []I, number func(I) T) T {
	values := make([]T, 0, len(items))
	for _, item := range items {
		values = append(values, number(item))
	}
	return Median(values)
}

// Spread is a value that was measured several times.
type Spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

// NewSpread sums up values; of none it returns zeros.
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Min: slices.Min(values), Median: Median(values), Max: slices.Max(values)}
}
