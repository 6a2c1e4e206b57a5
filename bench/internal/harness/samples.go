package harness

import (
	"fmt"
	"slices"
	"time"
)

// Sample is what one contestant did in one round. Each figure has one value, or one for each object. Times are in
// seconds, memory in bytes.
type Sample struct {
	Contestant string               `json:"contestant"`
	Round      int                  `json:"round"`
	Size       int                  `json:"size"`
	Load       float64              `json:"load"` // of the machine when it began
	Figures    map[string][]float64 `json:"figures"`
	Requests   Requests             `json:"requests,omitempty"`
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

// SetSeen sets a figure to how long after a moment each object was seen.
func (s *Sample) SetSeen(figure string, since time.Time, seen map[string]time.Time) {
	s.Set(figure)
	for _, at := range seen {
		s.Figures[figure] = append(s.Figures[figure], at.Sub(since).Seconds())
	}
}

// SetMemory sets the figures of MemoryColumns.
func (s *Sample) SetMemory(m Memory) {
	s.Set("RSS", m.RSS)
	s.Set("PSS", m.PSS)
	s.Set("file", m.File)
	s.Set("peak", m.Peak)
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
	return NewSpread(all.each(figure, stat)).Median
}

func (all Samples) each(figure string, stat Stat) []float64 {
	var values []float64
	for _, s := range all {
		if len(s.Figures[figure]) > 0 {
			values = append(values, stat(s.Figures[figure]))
		}
	}
	return values
}

// Ratios compares two contestants round by round, so that whatever else the machine did in a round affects both alike.
func (all Samples) Ratios(one, other string, size int, figure string, stat Stat) Spread {
	return all.compare(one, other, size, figure, stat, func(a, b float64) float64 { return a / b })
}

// Differences is as Ratios, with how much more the first contestant has.
func (all Samples) Differences(one, other string, size int, figure string, stat Stat) Spread {
	return all.compare(one, other, size, figure, stat, func(a, b float64) float64 { return a - b })
}

func (all Samples) compare(one, other string, size int, figure string, stat Stat, compared func(a, b float64) float64) Spread {
	var results []float64
	ours, theirs := all.Of(one, size), all.Of(other, size)
	for round := 0; round == 0 || len(ours)+len(theirs) > 0; round++ {
		isRound := func(s *Sample) bool { return s.Round == round }
		a, b := ours.only(isRound).Median(figure, stat), theirs.only(isRound).Median(figure, stat)
		if a > 0 && b > 0 {
			results = append(results, compared(a, b))
		}
		isLater := func(s *Sample) bool { return s.Round > round }
		ours, theirs = ours.only(isLater), theirs.only(isLater)
	}
	return NewSpread(results)
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

// Interleave runs every contestant once a round and begins each round with another one, so that the state of the machine
// and the traces of earlier contestants affect all of them alike. It ends with the first error.
func Interleave(rounds int, contestants []string, run func(round int, contestant string) error) error {
	for round := range rounds {
		for i := range contestants {
			contestant := contestants[(round+i)%len(contestants)]
			if err := run(round, contestant); err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, contestant, err)
			}
		}
	}
	return nil
}

// NewSample adds a sample to the run.
func (r *Run) NewSample(contestant string, round, size int) *Sample {
	s := &Sample{Contestant: contestant, Round: round, Size: size, Load: load()}
	r.Samples = append(r.Samples, s)
	return s
}

// InTurns measures contestants in turns and adds a sample for each. It reports one figure as progress.
func (r *Run) InTurns(rounds, size int, contestants []string, figure string, measure func(s *Sample) error) error {
	return Interleave(rounds, contestants, func(round int, contestant string) error {
		s := r.NewSample(contestant, round, size)
		if err := measure(s); err != nil {
			return fmt.Errorf("size %d: %w", size, err)
		}
		r.Say("Size %d, round %d of %d, %s: %s p50 %s, last %s", size, round+1, rounds, contestant, figure,
			Milliseconds(P50(s.Figures[figure])), Milliseconds(Last(s.Figures[figure])))
		return nil
	})
}
