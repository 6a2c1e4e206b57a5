package harness

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Sample is what one contestant did in one round. Each figure has one value, or one for each object. Times are in
// seconds, memory in bytes.
type Sample struct {
	Contestant string
	Round      int
	Size       int
	Figures    map[string][]float64
	Writes     Writes
	// Lead is how long before it is due the work of a burst is prepared, for a few objects.
	Lead time.Duration
}

// Set sets a figure.
func (s *Sample) Set(figure string, values ...float64) {
	if s.Figures == nil {
		s.Figures = map[string][]float64{}
	}
	s.Figures[figure] = values
}

// SetTimes sets a figure to times.
func (s *Sample) SetTimes(figure string, times ...time.Duration) {
	s.Set(figure)
	for _, t := range times {
		s.Figures[figure] = append(s.Figures[figure], t.Seconds())
	}
}

// AtOnce calls do for all of 0 to s.Size-1 at the same time. It sets a figure to how long after a moment each has returned.
func (s *Sample) AtOnce(ctx context.Context, figure string, since time.Time, do func(ctx context.Context, i int) error) error {
	took := make([]time.Duration, s.Size)
	group, ctx := errgroup.WithContext(ctx)
	for i := range took {
		group.Go(func() error {
			err := do(ctx, i)
			took[i] = time.Since(since)
			return err
		})
	}
	err := group.Wait()
	s.SetTimes(figure, took...)
	return err
}

// SetSeen sets a figure to how long after a moment each object was seen.
func (s *Sample) SetSeen(figure string, since time.Time, seen map[string]time.Time) {
	s.Set(figure)
	for _, at := range seen {
		s.Figures[figure] = append(s.Figures[figure], at.Sub(since).Seconds())
	}
}

// Samples are those of a run, or some of them.
type Samples []*Sample

// Of returns the samples of a contestant and size.
func (all Samples) Of(contestant string, size int) Samples {
	return all.only(func(s *Sample) bool { return s.Contestant == contestant && s.Size == size })
}

func (all Samples) only(keep func(*Sample) bool) Samples {
	return slices.DeleteFunc(slices.Clone(all), func(s *Sample) bool { return !keep(s) })
}

// Pool returns all values of a figure.
func (all Samples) Pool(figure string) []float64 {
	var values []float64
	for _, s := range all {
		values = append(values, s.Figures[figure]...)
	}
	return values
}

// Median returns the median over the samples of a statistic of a figure.
func (all Samples) Median(figure string, stat Stat) float64 {
	var values []float64
	for _, s := range all {
		if len(s.Figures[figure]) > 0 {
			values = append(values, stat(s.Figures[figure]))
		}
	}
	return NewSpread(values).Median
}

// Ratios compares two contestants round by round, so that whatever else the machine did in a round affects both alike.
func (all Samples) Ratios(one, other string, size int, figure string, stat Stat) Spread {
	rounds := map[int]bool{}
	for _, s := range all {
		rounds[s.Round] = true
	}
	var ratios []float64
	for round := range rounds {
		isRound := func(s *Sample) bool { return s.Round == round }
		a := all.Of(one, size).only(isRound).Median(figure, stat)
		b := all.Of(other, size).only(isRound).Median(figure, stat)
		if a > 0 && b > 0 {
			ratios = append(ratios, a/b)
		}
	}
	return NewSpread(ratios)
}

// Stat is a statistic of the values of a figure, 0 if there are none.
type Stat func(values []float64) float64

// First returns the smallest value.
func First(values []float64) float64 { return percentile(values, 0) }

// P50 returns the median, as a value that was measured.
func P50(values []float64) float64 { return percentile(values, 50) }

// P99 returns the value that 1 % exceed.
func P99(values []float64) float64 { return percentile(values, 99) }

// Last returns the largest value.
func Last(values []float64) float64 { return percentile(values, 100) }

// percentile returns the smallest value that at least p percent do not exceed (nearest rank).
func percentile(values []float64, p int) float64 {
	if len(values) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(values))[max(1, (len(values)*p+99)/100)-1]
}

// Spread is a value that was measured several times.
type Spread struct{ Min, Median, Max float64 }

// NewSpread sums up values, of none as zeros. The median of an even number is the mean of the middle two.
func NewSpread(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	low, high := sorted[(len(sorted)-1)/2], sorted[len(sorted)/2]
	return Spread{Min: sorted[0], Median: (low + high) / 2, Max: sorted[len(sorted)-1]}
}

// NewSample adds a sample to the run.
func (r *Run) NewSample(contestant string, round, size int) *Sample {
	s := &Sample{Contestant: contestant, Round: round, Size: size}
	r.Samples = append(r.Samples, s)
	return s
}

// InTurns measures every contestant once a round, adds a sample for each, and reports one figure as progress. It begins each
// round with another contestant, so that the state of the machine and the traces of earlier contestants affect all alike.
func (r *Run) InTurns(rounds, size int, contestants []string, figure string, measure func(s *Sample) error) error {
	for turn := range rounds * len(contestants) {
		round, i := turn/len(contestants), turn%len(contestants)
		s := r.NewSample(contestants[(round+i)%len(contestants)], round, size)
		if err := measure(s); err != nil {
			return fmt.Errorf("%s, size %d, round %d: %w", s.Contestant, size, round+1, err)
		}
		r.Say("Size %d, round %d of %d, %s: %s p50 %s, last %s", size, round+1, rounds, s.Contestant, figure,
			Milliseconds(P50(s.Figures[figure])), Milliseconds(Last(s.Figures[figure])))
	}
	return nil
}
