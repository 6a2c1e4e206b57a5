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

// writes are the requests that kube-apiserver has served and that change something, by "VERB resource" or
// "VERB resource/subresource"; those that it has refused, which cost as much, have the code of the answer behind. Creates and deletes of VirtualMachines are this benchmark's and do not count: all others
// are the manager's.
type writes map[string]float64

// counted are the resources that the manager has to do with.
var counted = []string{"virtualmachines", "events", "secrets"}

// writes returns all until now.
func (b *bench) writes(ctx context.Context) (writes, error) {
	all, err := b.cluster.Served(ctx, counted...)
	maps.DeleteFunc(all, func(what string, _ float64) bool {
		verb, _, _ := strings.Cut(what, " ")
		return !isWrite(verb) || what == "POST virtualmachines" || what == "DELETE virtualmachines"
	})
	return all, err
}

func isWrite(verb string) bool {
	return !slices.Contains([]string{"GET", "LIST", "WATCH", "CONNECT"}, verb)
}

// since returns those after others.
func (w writes) since(before writes) writes { return measure.Increase(before, w) }

// total returns how many there are.
func (w writes) total() float64 {
	sum := 0.0
	for _, n := range w {
		sum += n
	}
	return sum
}

// each lists how many there are for each of n machines.
func (w writes) each(n int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, fmt.Sprintf("%s %.2f", what, w[what]/float64(n)))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

// awaitQuiet waits until nothing has been written for as long as the options say, and returns all until then and the
// time of the last look that found something new.
func (b *bench) awaitQuiet(ctx context.Context) (writes, time.Time, error) {
	var last writes
	changed := time.Now()
	err := cluster.Until(ctx, func(ctx context.Context) error {
		now, err := b.writes(ctx)
		if err != nil {
			return err
		}
		if !maps.Equal(now, last) {
			last, changed = now, time.Now()
		}
		if time.Since(changed) < b.options.quiet {
			return fmt.Errorf("there are still writes: %v", now)
		}
		return nil
	})
	return last, changed, err
}
