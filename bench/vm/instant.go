package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/manager"
)

// measureInstant measures machines that start from a template, after one has booted, so that there is a template.
func (b *bench) measureInstant(ctx context.Context) (err error) {
	if len(*b.sizes) == 0 {
		return nil
	}
	m, err := b.startManager(ctx, "--vm-instant-start")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop(), b.endMachines(ctx)) }()
	return m.During(ctx, func(ctx context.Context) error {
		if err := b.makeTemplate(ctx); err != nil {
			return fmt.Errorf("make a template: %w", err)
		}
		for _, n := range *b.sizes {
			err := b.InTurns(b.rounds(n), n, []string{instant}, "ready", func(s *harness.Sample) error {
				ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
				defer cancel()
				return b.burst(ctx, s)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// makeTemplate creates a machine and waits until there is a template for others.
func (b *bench) makeTemplate(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	s := &harness.Sample{Size: 1}
	machines, err := b.create(ctx, s, "")
	if err != nil {
		return err
	}
	err = harness.Until(ctx, 100*time.Millisecond, func() error {
		found, err := filepath.Glob(filepath.Join(manager.MachinesDir(b.stateDir()), "templates", "*", "template.json"))
		if err == nil && len(found) == 0 {
			err = errors.New("there is none yet")
		}
		return err
	})
	return errors.Join(err, b.remove(ctx, s, machines.namespace))
}
