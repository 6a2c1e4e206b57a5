package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// served are the requests that kube-apiserver has served, by "VERB resource" or "VERB resource/subresource". Only one
// contestant runs at a time, and this benchmark asks for none of these resources while it counts, so that they are
// that contestant's (and the controller's of Jobs, if it runs).
type served map[string]float64

// counted are the resources that a contestant has to do with.
var counted = []string{"crontabs", "cronjobs", "jobs", "pods", "events"}

// served returns all requests until now.
func (b *bench) served(ctx context.Context) (served, error) { return b.cluster.Served(ctx, counted...) }

// since returns those that were served after others.
func (s served) since(before served) served { return measure.Increase(before, s) }

func isWatch(what string) bool { return strings.HasPrefix(what, "WATCH ") }

func isRead(what string) bool {
	return strings.HasPrefix(what, "GET ") || strings.HasPrefix(what, "LIST ") || isWatch(what)
}

// writes returns the number of those that change something, dry runs and failures included.
func (s served) writes() float64 {
	sum := 0.0
	for what, n := range s {
		if !isRead(what) {
			sum += n
		}
	}
	return sum
}

// total returns the number of all, but for watches: these are counted when they end, and another follows.
func (s served) total() float64 {
	sum := 0.0
	for what, n := range s {
		if !isWatch(what) {
			sum += n
		}
	}
	return sum
}

// each lists how many there are for each of n objects.
func (s served) each(n int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(s)) {
		if !isWatch(what) {
			parts = append(parts, fmt.Sprintf("%s %.2f", what, s[what]/float64(n)))
		}
	}
	return strings.Join(parts, ", ")
}

// awaitQuiet waits until nothing has been served for as long as the options say, and returns all requests until then
// and the time of the last look that found a new one.
func (b *bench) awaitQuiet(ctx context.Context) (served, time.Time, error) {
	var last served
	changed := time.Now()
	err := cluster.Until(ctx, func(ctx context.Context) error {
		now, err := b.served(ctx)
		if err != nil {
			return err
		}
		for what := range now {
			if isWatch(what) {
				delete(now, what)
			}
		}
		if !maps.Equal(now, last) {
			last, changed = now, time.Now()
		}
		if time.Since(changed) < b.options.quiet {
			return fmt.Errorf("there are still requests: %v", now)
		}
		return nil
	})
	return last, changed, err
}
