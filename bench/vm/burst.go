package main

import (
	"context"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// burst is what one contestant did in one round.
type burst struct {
	Contestant string `json:"contestant"`
	Round      int    `json:"round"`
	Machines   int    `json:"machines"`
	// Ready is from the start of the script, or from just before the first create, until each guest had answered:
	// to a client at its socket, or, as somebody sees who watches VirtualMachines, by their condition Ready. Its
	// maximum is the wall time of the burst.
	Ready measure.Distribution `json:"ready"`
	// UserSpace is from the start of the script until the first process of each guest has written to its console;
	// only of bare QEMUs.
	UserSpace *measure.Distribution `json:"userSpace,omitempty"`
	// Gone is from the first delete until no VirtualMachine was left; 0 of bare QEMUs, which are killed.
	Gone time.Duration `json:"goneNanoseconds,omitempty"`
	// Processor is the processor time of the machines until then.
	Processor time.Duration `json:"processorNanoseconds"`
	// Overhead is the memory of a machine besides that of its guest, at the end.
	Overhead overhead `json:"overhead"`
	// Load is the load of the host when it began.
	Load float64 `json:"load"`
}

// burst runs one contestant and removes everything after it.
func (b *bench) burst(ctx context.Context, contestant string, n int) (*burst, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.options.Patience, errPatience)
	defer cancel()
	load := measure.Load()
	run := b.burstOfKeelson
	if contestant == bare {
		run = b.burstOfBare
	}
	result, err := run(ctx, n)
	if err != nil {
		return nil, err
	}
	result.Load = load
	return result, nil
}

// costs fills in what machines have used.
func (r *burst) costs(machines []machine) error {
	for _, m := range machines {
		used, err := measure.ProcessorTime(m.qemu)
		if err != nil {
			return err
		}
		r.Processor += used
	}
	var err error
	r.Overhead, err = overheadOf(machines)
	return err
}
