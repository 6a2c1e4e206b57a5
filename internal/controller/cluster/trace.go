package cluster

import (
	"context"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/tracing"
)

// traced wraps the engines so that their calls are spans in the trace of a reconcile.
func traced(engines map[v1alpha1.Engine]Engine) map[v1alpha1.Engine]Engine {
	all := make(map[v1alpha1.Engine]Engine, len(engines))
	for name, engine := range engines {
		all[name] = &tracedEngine{engine, string(name)}
	}
	return all
}

// orphanStopperOf returns the engine as an OrphanStopper, or nil. Its calls are not traced, as they belong to no reconcile.
func orphanStopperOf(engine Engine) OrphanStopper {
	if traced, ok := engine.(*tracedEngine); ok {
		engine = traced.Engine
	}
	orphans, _ := engine.(OrphanStopper)
	return orphans
}

type tracedEngine struct {
	Engine
	name string
}

func (e *tracedEngine) begin(ctx context.Context, call string) (context.Context, tracing.Span) {
	return tracing.Begin(ctx, call, "keelson.engine", e.name)
}

// Observe implements Engine.
func (e *tracedEngine) Observe(ctx context.Context, r Request) (Observation, error) {
	ctx, span := e.begin(ctx, "Engine.Observe")
	seen, err := e.Engine.Observe(ctx, r)
	span.End(err)
	return seen, err
}

// Apply implements Engine.
func (e *tracedEngine) Apply(ctx context.Context, r Request) error {
	ctx, span := e.begin(ctx, "Engine.Apply")
	err := e.Engine.Apply(ctx, r)
	span.End(err)
	return err
}

// Delete implements Engine.
func (e *tracedEngine) Delete(ctx context.Context, r Request) error {
	ctx, span := e.begin(ctx, "Engine.Delete")
	err := e.Engine.Delete(ctx, r)
	span.End(err)
	return err
}

// Abandon implements Engine.
func (e *tracedEngine) Abandon(ctx context.Context, r Request) error {
	ctx, span := e.begin(ctx, "Engine.Abandon")
	err := e.Engine.Abandon(ctx, r)
	span.End(err)
	return err
}
