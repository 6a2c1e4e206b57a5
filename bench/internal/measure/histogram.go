package measure

import (
	"cmp"
	"math"
	"slices"

	dto "github.com/prometheus/client_model/go"
)

// Bucket is a part of a histogram: how many samples there are in it, which are more than the bound of the bucket before
// and at most its own. The last has the bound +Inf.
type Bucket struct {
	Bound float64
	Count float64
}

// Histogram returns the buckets of a histogram, added up over all labels, in order; nil if there is none of that name.
func (m Metrics) Histogram(name string) []Bucket {
	counts := map[float64]float64{}
	for _, metric := range m[name].GetMetric() {
		below := 0.0
		for _, bucket := range metric.GetHistogram().GetBucket() {
			upTo := cumulative(bucket)
			counts[bucket.GetUpperBound()] += upTo - below
			below = upTo
		}
		counts[math.Inf(1)] += float64(metric.GetHistogram().GetSampleCount()) - below
	}
	buckets := make([]Bucket, 0, len(counts))
	for bound, count := range counts {
		buckets = append(buckets, Bucket{Bound: bound, Count: count})
	}
	slices.SortFunc(buckets, func(a, b Bucket) int { return cmp.Compare(a.Bound, b.Bound) })
	return buckets
}

func cumulative(bucket *dto.Bucket) float64 {
	if float := bucket.GetCumulativeCountFloat(); float > 0 {
		return float
	}
	return float64(bucket.GetCumulativeCount())
}

// HistogramIncrease returns what came into a histogram since before, whose bounds are the same.
func HistogramIncrease(before, after []Bucket) []Bucket {
	had := map[float64]float64{}
	for _, bucket := range before {
		had[bucket.Bound] = bucket.Count
	}
	increase := slices.Clone(after)
	for i := range increase {
		increase[i].Count -= had[increase[i].Bound]
	}
	return increase
}

// Within returns the bounds of the bucket in which the given part of all samples ends, such as 0.5 for the median, and
// the number of samples. Without any it returns zeros.
func Within(buckets []Bucket, part float64) (above, upTo, count float64) {
	for _, bucket := range buckets {
		count += bucket.Count
	}
	sum := 0.0
	for i, bucket := range buckets {
		sum += bucket.Count
		if bucket.Count > 0 && sum >= part*count {
			if i > 0 {
				above = buckets[i-1].Bound
			}
			return above, bucket.Bound, count
		}
	}
	return 0, 0, count
}
