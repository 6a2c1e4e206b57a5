package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
)

// idle is what was found out about a manager with many Foos.
type idle struct {
	// Fill is how the Foos came into being, with the requests that it took.
	Fill *burst `json:"fill"`
	// Requests are those in the time that the Foos were watched; none is wanted. Processor is the processor time of
	// the manager meanwhile.
	Requests  *requests     `json:"requests"`
	Processor time.Duration `json:"processorNanoseconds"`
	// Memory is that of the manager's process after that time, Heap what Go has in use of it; nil if it cannot be told.
	Memory *measure.Memory `json:"memory,omitempty"`
	Heap   int64           `json:"heapBytes"`
	// Repair are the times from when the deletion of a Deployment was sent until its successor was seen.
	// RepairFloor are those of a plain client that creates the successor itself.
	Repair      measure.Distribution `json:"repair"`
	RepairFloor measure.Distribution `json:"repairFloor"`
}

// measureIdle fills a namespace with Foos and looks at the manager.
func (b *bench) measureIdle(ctx context.Context) (err error) {
	if b.options.IdleFoos == 0 {
		return nil
	}
	n := b.options.IdleFoos
	b.Say("Creating %d Foos", n)
	namespace, err := b.cluster.Namespace(ctx)
	if err != nil {
		return err
	}
	m, err := b.startManager(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	ctx, cancel := m.During(ctx)
	defer cancel()
	count, err := b.startCount(ctx, m)
	if err != nil {
		return err
	}
	result := &idle{}
	if result.Fill, err = b.create(ctx, m.Program, namespace, n, b.creator(keelson, namespace)); err != nil {
		return fmt.Errorf("create %d Foos: %w", n, err)
	}
	result.Fill.Contestant = keelson
	if result.Fill.Requests, err = b.awaitSteady(ctx, count, namespace, n); err != nil {
		return err
	}
	if err := b.watchIdle(ctx, m, result); err != nil {
		return err
	}
	b.Say("Deleting %d Deployments, one after the other", b.options.Repairs)
	if err := b.measureRepair(ctx, namespace, result); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	b.results.Idle = result
	return nil
}

// watchIdle counts requests for a while in which nothing happens, and then looks at the memory.
func (b *bench) watchIdle(ctx context.Context, m *program.Manager, result *idle) error {
	b.Say("Watching them for %s", b.options.Idle)
	count, err := b.startCount(ctx, m)
	if err != nil {
		return err
	}
	processes := measure.Processes{m.Name: m.PID()}
	before := processes.Processor()
	if err := measure.Pause(ctx, b.options.Idle); err != nil {
		return err
	}
	result.Processor = processes.ProcessorSince(before)[m.Name]
	if result.Requests, err = b.end(ctx, count); err != nil {
		return err
	}
	metrics, err := m.Scrape(ctx)
	if err != nil {
		return err
	}
	result.Heap = int64(metrics.Value("go_memstats_heap_inuse_bytes"))
	memory, err := measure.MemoryOf(m.PID())
	if err == nil {
		result.Memory = &memory
	} else if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// measureRepair deletes Deployments of Foos one after the other, and in turns with them one that has no Foo, which
// the client itself creates again.
func (b *bench) measureRepair(ctx context.Context, namespace string, result *idle) error {
	o, err := cluster.Observe(ctx, "Deployments", b.cluster.Observer.Kube.AppsV1().Deployments(namespace))
	if err != nil {
		return err
	}
	defer o.Stop()
	writer := b.cluster.Writers[0]
	deployments := writer.Kube.AppsV1().Deployments(namespace)
	plain := newPlainDeployment(namespace, "plain")
	if err := createDeployment(ctx, writer, plain); err != nil {
		return err
	}
	if _, err := o.Await(ctx, 1); err != nil {
		return err
	}
	replace := func(name string, create func() error) (time.Duration, error) {
		began := time.Now()
		if err := deployments.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return 0, err
		}
		if err := create(); err != nil {
			return 0, err
		}
		seen, err := o.Await(ctx, 1)
		if err != nil {
			return 0, err
		}
		at, found := seen[name]
		if !found {
			return 0, fmt.Errorf("a Deployment appeared that is not %s", name)
		}
		return at.Sub(began), nil
	}
	var repair, floor []time.Duration
	err = measure.Interleave(b.options.Repairs, []string{keelson, "floor"}, func(round int, contestant string) error {
		if contestant == keelson {
			// Spread over all Foos.
			name := objectName(round * b.options.IdleFoos / b.options.Repairs)
			took, err := replace(name, func() error { return nil })
			repair = append(repair, took)
			return err
		}
		took, err := replace(plain.Name, func() error { return createDeployment(ctx, writer, plain) })
		floor = append(floor, took)
		return err
	})
	result.Repair, result.RepairFloor = measure.Distribute(repair), measure.Distribute(floor)
	return err
}
