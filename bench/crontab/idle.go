package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// idle is what CronTabs cost that have nothing to do.
type idle struct {
	// Created is how long it took until all were there and the manager was done with them, and Filling what it sent
	// until then.
	Created time.Duration `json:"createdNanoseconds"`
	Filling served        `json:"filling"`
	// Requests are those in the time that the CronTabs were watched, none is wanted; Processor is the processor time
	// of the manager meanwhile.
	Requests  served        `json:"requests"`
	Processor time.Duration `json:"processorNanoseconds"`
	// Empty is the memory of a manager without CronTabs, Full that with them.
	Empty, Full footprint
}

// footprint is the memory of a manager that had nothing to do for a while.
type footprint struct {
	// Process is what the kernel sees; nil if it cannot be told.
	Process *measure.Memory `json:"process,omitempty"`
	// Live is what was left after the last collection of garbage, Heap what Go has in use of the heap, in bytes.
	Live float64 `json:"liveBytes"`
	Heap float64 `json:"heapBytes"`
}

// each returns how many bytes more one manager has than another for each of n objects.
func each(n int, with, without float64) float64 { return (with - without) / float64(n) }

// measureIdle looks at a manager without CronTabs, and then with many.
func (b *bench) measureIdle(ctx context.Context) (err error) {
	n := b.options.IdleCronTabs
	if n == 0 {
		return nil
	}
	namespace, err := b.cluster.Namespace(ctx)
	if err != nil {
		return err
	}
	result := &idle{}
	b.Say("Watching a manager without CronTabs for %s", b.options.Idle)
	if result.Empty, err = b.lookAtEmpty(ctx); err != nil {
		return err
	}
	c, err := b.start(ctx, keelson)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop(), b.empty(context.WithoutCancel(ctx), namespace)) }()
	running, cancel := c.During(ctx)
	defer cancel()
	b.Say("Creating %d CronTabs", n)
	if err := b.fill(running, namespace, n, result); err != nil {
		return fmt.Errorf("create %d CronTabs: %w", n, err)
	}
	b.Say("Watching them for %s", b.options.Idle)
	before, err := b.served(running)
	if err != nil {
		return err
	}
	processes := measure.Processes{c.Name: c.PID()}
	used := processes.Processor()
	if err := measure.Pause(running, b.options.Idle); err != nil {
		return err
	}
	result.Processor = processes.ProcessorSince(used)[c.Name]
	after, err := b.served(running)
	if err != nil {
		return err
	}
	result.Requests = after.since(before)
	if result.Full, err = c.footprint(running); err != nil {
		return err
	}
	b.results.Idle = result
	return nil
}

// lookAtEmpty returns the memory of a manager without CronTabs, after the same time.
func (b *bench) lookAtEmpty(ctx context.Context) (_ footprint, err error) {
	c, err := b.start(ctx, keelson)
	if err != nil {
		return footprint{}, err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	ctx, cancel := c.During(ctx)
	defer cancel()
	if err := measure.Pause(ctx, b.options.Idle); err != nil {
		return footprint{}, err
	}
	return c.footprint(ctx)
}

// fill creates CronTabs that are due once a day, at a time that is far away, and waits until the manager is done.
func (b *bench) fill(ctx context.Context, namespace string, n int, result *idle) error {
	before, err := b.served(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	far := began.Add(12 * time.Hour)
	err = b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
		return createDaily(ctx, writer, namespace, i, far)
	})
	if err != nil {
		return err
	}
	after, last, err := b.awaitQuiet(ctx)
	result.Created, result.Filling = last.Sub(began), after.since(before)
	return err
}

// footprint returns the memory of the manager. The metrics come last: to write those of many CronTabs takes memory.
func (c *controller) footprint(ctx context.Context) (f footprint, err error) {
	memory, err := measure.MemoryOf(c.PID())
	if err == nil {
		f.Process = &memory
	} else if !errors.Is(err, errors.ErrUnsupported) {
		return f, err
	}
	metrics, err := c.manager.Scrape(ctx)
	if err != nil {
		return f, err
	}
	f.Live, f.Heap = metrics.Value("go_gc_heap_live_bytes"), metrics.Value("go_memstats_heap_inuse_bytes")
	return f, nil
}
