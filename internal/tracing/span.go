package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Reconciler returns inner with a span around each reconcile, if the context has a Provider, see NewContext. name is that
// of the controller.
func Reconciler(name string, inner reconcile.Reconciler) reconcile.Reconciler {
	return &reconciler{inner: inner, name: name, span: "Reconcile " + name}
}

type reconciler struct {
	inner      reconcile.Reconciler
	name, span string
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	p, _ := ctx.Value(providerKey{}).(*Provider)
	if p == nil {
		return r.inner.Reconcile(ctx, request)
	}
	ctx, span := p.tracer.Start(ctx, r.span, trace.WithNewRoot(), trace.WithAttributes(
		attribute.String("keelson.controller", r.name),
		attribute.String("keelson.namespace", request.Namespace),
		attribute.String("keelson.name", request.Name),
		// The log has it, too.
		attribute.String("keelson.reconcile_id", string(controller.ReconcileIDFromContext(ctx))),
	))
	defer span.End() // also when inner panics
	result, err := r.inner.Reconcile(ctx, request)
	if result.RequeueAfter > 0 {
		span.SetAttributes(attribute.Float64("keelson.requeue_after_seconds", result.RequeueAfter.Seconds()))
	}
	fail(span, err)
	return result, err
}

// Span is a step of a reconcile that is traced; the zero value is one of a reconcile that is not.
type Span struct{ span trace.Span }

// Begin begins a step within the span of ctx, if that is recorded; attribute key has the value. End ends it.
func Begin(ctx context.Context, name, key, value string) (context.Context, Span) {
	around := trace.SpanFromContext(ctx)
	if !around.IsRecording() {
		return ctx, Span{}
	}
	ctx, span := around.TracerProvider().Tracer(scope).Start(ctx, name, trace.WithAttributes(attribute.String(key, value)))
	return ctx, Span{span}
}

// End ends a step, with the error that it ended with.
func (s Span) End(err error) {
	if s.span == nil {
		return
	}
	fail(s.span, err)
	s.span.End()
}

// EndAs ends a step that went as result says, which is no failure.
func (s Span) EndAs(result string) {
	if s.span == nil {
		return
	}
	s.span.SetAttributes(attribute.String("keelson.result", result))
	s.span.End()
}

func fail(span trace.Span, err error) {
	if err != nil {
		span.RecordError(err)
		span.SetStatus(codes.Error, err.Error())
	}
}

// Transport returns inner with a span around each request that a traced reconcile makes. The server is told of it as the
// W3C has it, so that the spans of an API server that traces, too, are parts of it.
func Transport(inner http.RoundTripper) http.RoundTripper { return &transport{inner} }

type transport struct{ inner http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, span := Begin(request.Context(), request.Method, "url.path", request.URL.Path)
	if span.span == nil {
		return t.inner.RoundTrip(request)
	}
	request = request.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	response, err := t.inner.RoundTrip(request)
	if err == nil {
		span.span.SetAttributes(attribute.Int("http.response.status_code", response.StatusCode))
		if response.StatusCode >= http.StatusBadRequest {
			span.span.SetStatus(codes.Error, response.Status)
		}
	}
	span.End(err)
	return response, err
}

// WrappedRoundTripper returns the inner transport, which client-go looks for to close its connections.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.inner }
