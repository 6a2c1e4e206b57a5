package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// lagMetric is the manager's own histogram: from the time of a run until the create of its Job was answered, in seconds.
const lagMetric = "crontab_start_lag_seconds"

// ownLag is what the manager says of a burst. A histogram knows only between which two bounds a value lies.
type ownLag struct {
	Count int `json:"count"`
	// First, P50 and Last are the bounds around these.
	First bounds `json:"first"`
	P50   bounds `json:"p50"`
	Last  bounds `json:"last"`
}

// bounds are those around a value; UpTo is 0 if there is none.
type bounds struct {
	Above time.Duration `json:"aboveNanoseconds"`
	UpTo  time.Duration `json:"upToNanoseconds"`
}

// String returns the bounds for a table.
func (b bounds) String() string {
	if b.UpTo == 0 {
		return "> " + measure.Milliseconds(b.Above)
	}
	return fmt.Sprintf("%s to %s", measure.Milliseconds(b.Above), measure.Milliseconds(b.UpTo))
}

// readOwn returns the histogram of the manager until now; nil for others.
func (c *controller) readOwn(ctx context.Context) ([]measure.Bucket, error) {
	if c == nil || c.manager == nil {
		return nil, nil
	}
	metrics, err := c.manager.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	buckets := metrics.Histogram(lagMetric)
	if len(buckets) == 0 {
		return nil, fmt.Errorf("the manager's metrics have no histogram %s", lagMetric)
	}
	return buckets, nil
}

// ownSince returns what came into that histogram since before.
func (c *controller) ownSince(ctx context.Context, before []measure.Bucket) (*ownLag, error) {
	after, err := c.readOwn(ctx)
	if err != nil || after == nil {
		return nil, err
	}
	grown := measure.HistogramIncrease(before, after)
	around := func(part float64) bounds {
		above, upTo, _ := measure.Within(grown, part)
		b := bounds{Above: seconds(above)}
		if !math.IsInf(upTo, 1) {
			b.UpTo = seconds(upTo)
		}
		return b
	}
	_, _, count := measure.Within(grown, 0)
	return &ownLag{Count: int(count), First: around(0), P50: around(0.5), Last: around(1)}, nil
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
