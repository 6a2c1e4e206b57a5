package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
)

// steady is what machines cost that run and have nothing to do.
type steady struct {
	// Ready is how long it took until all were ready, Settled until the last write, and Filling what was written until
	// then.
	Ready   time.Duration `json:"readyNanoseconds"`
	Settled time.Duration `json:"settledNanoseconds"`
	Filling writes        `json:"filling"`
	// Writes are those in the time that the machines were watched; Processor is the processor time of the manager,
	// and Guests that of all machines meanwhile.
	Writes    writes        `json:"writes"`
	Watched   time.Duration `json:"watchedNanoseconds"`
	Processor time.Duration `json:"processorNanoseconds"`
	Guests    time.Duration `json:"guestsNanoseconds"`
	// Overhead is the memory of a machine besides that of its guest.
	Overhead overhead `json:"overhead"`
	// Empty is the memory of a manager without machines, Full that with them.
	Empty, Full footprint
	// Restarts are those of the manager.
	Restarts []restart `json:"restarts"`
	// Gone is from the first delete until no machine was left.
	Gone time.Duration `json:"goneNanoseconds"`
}

// restart is one of the manager, after it was killed.
type restart struct {
	// InCharge is from the start of the new one until the monitor and the guest agent of every machine have answered
	// it, and Started until it said that it is ready.
	InCharge time.Duration `json:"inChargeNanoseconds"`
	Started  time.Duration `json:"startedNanoseconds"`
	// Writes are those that it made, of which none is needed.
	Writes writes `json:"writes"`
	// Same says that the machines have the same processes as before.
	Same bool `json:"same"`
}

// footprint is the memory of a manager that had nothing to do for a while, in bytes.
type footprint struct {
	// Process is what the kernel sees.
	Process measure.Memory `json:"process"`
	// Live is what was left of the heap after the last collection of garbage, Stacks is that of goroutines.
	Live   float64 `json:"liveBytes"`
	Stacks float64 `json:"stackBytes"`
	// Goroutines is how many there are.
	Goroutines float64 `json:"goroutines"`
}

// each returns how many bytes more one manager uses than another for each of n machines.
func (f footprint) each(n int, without footprint) float64 {
	return (f.Live + f.Stacks - without.Live - without.Stacks) / float64(n)
}

// measureSteady looks at a manager without machines, and then with many, and then kills it.
func (b *bench) measureSteady(ctx context.Context) (err error) {
	n := b.options.Steady
	if n == 0 {
		return nil
	}
	result := &steady{}
	if err := b.watchEmpty(ctx, result); err != nil {
		return err
	}
	manager, err := b.startManager(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, manager.Stop(), b.endMachines(ctx)) }()
	b.Say("Creating %d machines", n)
	group, err := b.fill(ctx, manager, n, result)
	if err != nil {
		return fmt.Errorf("create %d machines: %w", n, err)
	}
	machines, err := group.machines()
	if err != nil {
		return err
	}
	if err := b.watchFull(ctx, manager, machines, result); err != nil {
		return err
	}
	for i := range b.options.Restarts {
		next, took, err := b.restartManager(ctx, manager, group, machines)
		if next != nil {
			manager = next
		}
		if err != nil {
			return fmt.Errorf("restart the manager: %w", err)
		}
		result.Restarts = append(result.Restarts, took)
		b.Say("Restart %d of %d: in charge of %d machines after %s", i+1, b.options.Restarts, n, measure.Milliseconds(took.InCharge))
	}
	if result.Gone, err = group.remove(ctx); err != nil {
		return err
	}
	b.results.Steady = result
	return nil
}

// watchEmpty takes the memory of a manager without machines.
func (b *bench) watchEmpty(ctx context.Context, result *steady) error {
	b.Say("Watching a manager without machines for %s", b.options.Idle)
	return b.withManager(ctx, func(ctx context.Context, manager *program.Manager) (err error) {
		if err := measure.Pause(ctx, b.options.Idle); err != nil {
			return err
		}
		result.Empty, err = footprintOf(ctx, manager)
		return err
	})
}

// fill creates machines and waits until nothing is written any more.
func (b *bench) fill(ctx context.Context, manager *program.Manager, n int, result *steady) (*group, error) {
	ctx, cancel := manager.During(ctx)
	defer cancel()
	ctx, stop := context.WithTimeoutCause(ctx, b.options.Patience, errPatience)
	defer stop()
	before, err := b.writes(ctx)
	if err != nil {
		return nil, err
	}
	group, err := b.create(ctx, n)
	if err != nil {
		return nil, err
	}
	result.Ready = slices.Max(group.ready)
	after, last, err := b.awaitQuiet(ctx)
	result.Settled, result.Filling = last.Sub(group.began), after.since(before)
	return group, err
}

// watchFull watches machines that have nothing to do.
func (b *bench) watchFull(ctx context.Context, manager *program.Manager, machines []machine, result *steady) error {
	ctx, cancel := manager.During(ctx)
	defer cancel()
	b.Say("Watching them for %s", b.options.Idle)
	processes, guests := measure.Processes{"manager": manager.PID()}, measure.Processes{}
	for _, m := range machines {
		guests[fmt.Sprint(m.qemu)] = m.qemu
	}
	used, guestsUsed := processes.Processor(), guests.Processor()
	before, err := b.writes(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := measure.Pause(ctx, b.options.Idle); err != nil {
		return err
	}
	after, err := b.writes(ctx)
	if err != nil {
		return err
	}
	result.Watched, result.Writes = time.Since(began), after.since(before)
	result.Processor = processes.ProcessorSince(used)["manager"]
	for used := range maps.Values(guests.ProcessorSince(guestsUsed)) {
		result.Guests += used
	}
	if result.Overhead, err = overheadOf(machines); err != nil {
		return err
	}
	result.Full, err = footprintOf(ctx, manager)
	return err
}

// restartManager kills the manager and starts another. It returns that, if it runs, also with an error.
func (b *bench) restartManager(ctx context.Context, manager *program.Manager, group *group, before []machine) (*program.Manager, restart, error) {
	var result restart
	ctx, stop := context.WithTimeoutCause(ctx, b.options.Patience, errPatience)
	defer stop()
	written, err := b.writes(ctx)
	if err != nil {
		return nil, result, err
	}
	if err := manager.Kill(); err != nil {
		return nil, result, err
	}
	began := time.Now()
	if manager, err = b.startManager(context.WithoutCancel(ctx)); err != nil {
		return nil, result, err
	}
	result.Started = time.Since(began)
	running, cancel := manager.During(ctx)
	defer cancel()
	if err := awaitInCharge(running, manager, len(before)); err != nil {
		return manager, result, err
	}
	result.InCharge = time.Since(began)
	after, _, err := b.awaitQuiet(running)
	if err != nil {
		return manager, result, err
	}
	result.Writes = after.since(written)
	now, err := group.machines()
	if err != nil {
		return manager, result, err
	}
	result.Same = slices.EqualFunc(before, now, func(a, b machine) bool { return a.qemu == b.qemu })
	return manager, result, nil
}

// awaitInCharge waits until the manager has figures of the guests of so many machines: for these it must have reached
// the monitor of each, and its guest agent.
func awaitInCharge(ctx context.Context, manager *program.Manager, n int) error {
	const metric = "keelson_virtualmachine_cpu_seconds_total"
	ticker := time.NewTicker(50 * time.Millisecond) // to write the metrics takes time, too
	defer ticker.Stop()
	for {
		metrics, err := manager.Scrape(ctx)
		if err != nil {
			return err
		}
		known := len(metrics.By(metric, "namespace", "name"))
		if known >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the new manager knows of %d of %d machines: %w", known, n, context.Cause(ctx))
		case <-ticker.C:
		}
	}
}

// footprintOf returns the memory of a manager. The metrics come last: to write those of many machines takes memory.
func footprintOf(ctx context.Context, manager *program.Manager) (f footprint, err error) {
	if f.Process, err = measure.MemoryOf(manager.PID()); err != nil {
		return f, err
	}
	metrics, err := manager.Scrape(ctx)
	if err != nil {
		return f, err
	}
	f.Live, f.Stacks = metrics.Value("go_gc_heap_live_bytes"), metrics.Value("go_memstats_stack_inuse_bytes")
	f.Goroutines = metrics.Value("go_goroutines")
	return f, nil
}
