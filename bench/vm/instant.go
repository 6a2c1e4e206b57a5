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
func (b *bench) measureInstant(ctx context.Context) error {
	if len(*b.sizes) == 0 {
		return nil
	}
	return b.withManager(ctx, func(ctx context.Context) error {
		if err := b.makeTemplate(ctx); err != nil {
			return fmt.Errorf("make a template: %w", err)
		}
		if err := b.inSizes(ctx, []string{instant}, b.burst); err != nil {
			return err
		}
		return b.measureReached(ctx, reachedInstant)
	}, "--vm-instant-start=true")
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
