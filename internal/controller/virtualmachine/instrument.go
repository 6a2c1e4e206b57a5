package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// instrument returns driver with metrics and traces of its calls.
func instrument(driver Driver) Driver { return &instrumentedDriver{driver} }

type instrumentedDriver struct{ Driver }

// storeOf returns a store of a driver, such as its backend.DiskStore; nil if it has none.
func storeOf[T any](driver Driver) T {
	if instrumented, ok := driver.(*instrumentedDriver); ok {
		driver = instrumented.Driver
	}
	store, _ := driver.(T)
	return store
}

// startSpan starts a span in the trace of a reconcile.
func (c *instrumentedDriver) startSpan(ctx context.Context, name string) (context.Context, tracing.Span) {
	return tracing.Begin(ctx, name, "keelson.driver", c.Name())
}

func (c *instrumentedDriver) recordResult(span tracing.Span, call string, err error) error {
	result := resultOf(err)
	driverCalls.WithLabelValues(c.Name(), call, result).Inc()
	if result == "in_progress" || result == "not_found" {
		span.EndAs(result) // not a failure
	} else {
		span.End(err)
	}
	return err
}

func resultOf(err error) string {
	switch {
	case err == nil:
		return "ok"
	case isInProgress(err):
		return "in_progress"
	case errors.Is(err, backend.ErrNotFound):
		return "not_found"
	case errors.Is(err, backend.ErrInvalid):
		return "invalid"
	case errors.Is(err, backend.ErrUnavailable):
		return "unavailable"
	}
	return "error"
}

func isInProgress(err error) bool { return errors.Is(err, backend.ErrInProgress) }

// DiskUsage implements backend.DiskMeter.
func (c *instrumentedDriver) DiskUsage(ctx context.Context) (map[types.UID]backend.DiskUsage, error) {
	meter, ok := c.Driver.(backend.DiskMeter)
	if !ok {
		return nil, nil
	}
	return meter.DiskUsage(ctx)
}

// Retained implements backend.Retainer.
func (c *instrumentedDriver) Retained(ctx context.Context) ([]backend.RetainedDisk, error) {
	if retainer, ok := c.Driver.(backend.Retainer); ok {
		return retainer.Retained(ctx)
	}
	return nil, nil
}

// Networks implements backend.Networker.
func (c *instrumentedDriver) Networks(ctx context.Context) ([]backend.Network, error) {
	if networker, ok := c.Driver.(backend.Networker); ok {
		return networker.Networks(ctx)
	}
	return nil, nil
}

// Dial implements backend.Dialer. Probes call it often, so it has neither metrics nor traces.
func (c *instrumentedDriver) Dial(ctx context.Context, id backend.Identity, port uint16) (net.Conn, error) {
	if dialer, ok := c.Driver.(backend.Dialer); ok {
		return dialer.Dial(ctx, id, port)
	}
	return nil, fmt.Errorf("%w: the driver %s cannot connect to machines", backend.ErrInvalid, c.Name())
}

// Observe implements Driver.
func (c *instrumentedDriver) Observe(ctx context.Context, id backend.Identity) (backend.Server, error) {
	ctx, span := c.startSpan(ctx, "Driver.Observe")
	server, err := c.Driver.Observe(ctx, id)
	return server, c.recordResult(span, "observe", err)
}

// Create implements Driver.
func (c *instrumentedDriver) Create(ctx context.Context, machine backend.Machine) error {
	ctx, span := c.startSpan(ctx, "Driver.Create")
	return c.recordResult(span, "create", c.Driver.Create(ctx, machine))
}

// Start implements Driver.
func (c *instrumentedDriver) Start(ctx context.Context, machine backend.Machine) error {
	ctx, span := c.startSpan(ctx, "Driver.Start")
	return c.recordResult(span, "start", c.Driver.Start(ctx, machine))
}

// Stop implements Driver.
func (c *instrumentedDriver) Stop(ctx context.Context, id backend.Identity, grace time.Duration) error {
	ctx, span := c.startSpan(ctx, "Driver.Stop")
	return c.recordResult(span, "stop", c.Driver.Stop(ctx, id, grace))
}

// Pause implements Driver.
func (c *instrumentedDriver) Pause(ctx context.Context, id backend.Identity) error {
	ctx, span := c.startSpan(ctx, "Driver.Pause")
	return c.recordResult(span, "pause", c.Driver.Pause(ctx, id))
}

// Resume implements Driver.
func (c *instrumentedDriver) Resume(ctx context.Context, id backend.Identity) error {
	ctx, span := c.startSpan(ctx, "Driver.Resume")
	return c.recordResult(span, "resume", c.Driver.Resume(ctx, id))
}

// Sleep implements Driver.
func (c *instrumentedDriver) Sleep(ctx context.Context, id backend.Identity, options backend.SleepOptions) error {
	ctx, span := c.startSpan(ctx, "Driver.Sleep")
	return c.recordResult(span, "sleep", c.Driver.Sleep(ctx, id, options))
}

// Reconfigure implements Driver.
func (c *instrumentedDriver) Reconfigure(ctx context.Context, machine backend.Machine) error {
	ctx, span := c.startSpan(ctx, "Driver.Reconfigure")
	return c.recordResult(span, "reconfigure", c.Driver.Reconfigure(ctx, machine))
}

// restoreServer restores a server with the backend.SnapshotStore of its driver.
func restoreServer(ctx context.Context, driver Driver, id backend.Identity, request backend.Restore) error {
	store := storeOf[backend.SnapshotStore](driver)
	c, ok := driver.(*instrumentedDriver)
	if !ok {
		return store.RestoreServer(ctx, id, request)
	}
	ctx, span := c.startSpan(ctx, "Driver.RestoreServer")
	return c.recordResult(span, "restore", store.RestoreServer(ctx, id, request))
}

// Delete implements Driver.
func (c *instrumentedDriver) Delete(ctx context.Context, id backend.Identity, options backend.DeleteOptions) error {
	ctx, span := c.startSpan(ctx, "Driver.Delete")
	return c.recordResult(span, "delete", c.Driver.Delete(ctx, id, options))
}
