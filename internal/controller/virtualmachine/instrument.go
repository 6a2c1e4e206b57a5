package virtualmachine

import (
	"context"
	"errors"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// called makes a call of a driver. It counts the result, and a reconcile has a span of it in its trace.
func called(ctx context.Context, driver Driver, span, label string, do func(context.Context) error) error {
	ctx, step := tracing.Begin(ctx, span, "keelson.driver", driver.Name())
	err := do(ctx)
	result := resultOf(err)
	driverCalls.WithLabelValues(driver.Name(), label, result).Inc()
	if result == "in_progress" || result == "not_found" {
		step.EndAs(result) // not a failure
	} else {
		step.End(err)
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
