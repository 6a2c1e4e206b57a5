package tracing_test

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/internal/tracing"
)

var request = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "name"}}

// work is a reconcile with two steps, of which one fails.
func work(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	inner, first := tracing.Begin(ctx, "Driver.Create", "keelson.driver", "fake")
	_, within := tracing.Begin(inner, "PUT", "url.path", "/x")
	within.End(nil)
	first.EndAs("in_progress")
	_, second := tracing.Begin(ctx, "Driver.Stop", "keelson.driver", "fake")
	err := errors.New("it is away")
	second.End(err)
	return reconcile.Result{RequeueAfter: time.Second}, err
}

func TestAReconcileAndItsSteps(t *testing.T) {
	recorded := tracetest.NewSpanRecorder()
	p := tracing.New(recorded, "v1")
	_, err := tracing.Reconciler("foo", reconcile.Func(work)).Reconcile(tracing.NewContext(t.Context(), p), request)
	if err == nil || err.Error() != "it is away" {
		t.Errorf("the error of the reconcile became %v", err)
	}
	type span struct {
		Parent, Status string
		Attributes     map[string]string
	}
	names := map[string]string{}
	for _, s := range recorded.Ended() {
		names[s.SpanContext().SpanID().String()] = s.Name()
	}
	got := map[string]span{}
	for _, s := range recorded.Ended() {
		attributes := map[string]string{}
		for _, a := range s.Attributes() {
			attributes[string(a.Key)] = a.Value.String()
		}
		got[s.Name()] = span{names[s.Parent().SpanID().String()], s.Status().Code.String() + s.Status().Description, attributes}
	}
	want := map[string]span{
		"Reconcile foo": {"", "Errorit is away", map[string]string{
			"keelson.controller": "foo", "keelson.namespace": "ns", "keelson.name": "name", "keelson.reconcile_id": "",
			"keelson.requeue_after_seconds": "1",
		}},
		"Driver.Create": {"Reconcile foo", "Unset", map[string]string{"keelson.driver": "fake", "keelson.result": "in_progress"}},
		"PUT":           {"Driver.Create", "Unset", map[string]string{"url.path": "/x"}},
		"Driver.Stop":   {"Reconcile foo", "Errorit is away", map[string]string{"keelson.driver": "fake"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spans (-want +got):\n%s", diff)
	}
	service := map[string]string{}
	for _, a := range recorded.Ended()[0].Resource().Attributes() {
		service[string(a.Key)] = a.Value.String()
	}
	if service["service.name"] != "keelson" || service["service.version"] != "v1" {
		t.Errorf("the service is %v", service)
	}
}

// Nobody asked for traces: not an allocation more, and the same context.
func TestNothingIsPaidForNoTraces(t *testing.T) {
	ctx := t.Context()
	inner := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		ctx, span := tracing.Begin(ctx, "Driver.Create", "keelson.driver", "fake")
		span.EndAs("ok")
		_, span = tracing.Begin(ctx, "Driver.Stop", "keelson.driver", "fake")
		span.End(nil)
		return reconcile.Result{}, nil
	})
	wrapped := tracing.Reconciler("foo", inner)
	if n := testing.AllocsPerRun(100, func() {
		_, _ = wrapped.Reconcile(ctx, request) // it cannot fail
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if got := tracing.NewContext(ctx, nil); got != ctx {
		t.Error("without a Provider the context is another one")
	}
	var none *tracing.Provider
	if err := none.Shutdown(ctx); err != nil {
		t.Error(err)
	}
}

func BenchmarkReconcile(b *testing.B) {
	inner := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		_, span := tracing.Begin(ctx, "Driver.Create", "keelson.driver", "fake")
		span.End(nil)
		return reconcile.Result{}, nil
	})
	traced := tracing.NewContext(b.Context(), tracing.New(sdktrace.NewSimpleSpanProcessor(tracetest.NewNoopExporter()), "v1"))
	for _, bb := range []struct {
		name string
		ctx  context.Context
		r    reconcile.Reconciler
	}{
		{"bare", b.Context(), inner},
		{"off", b.Context(), tracing.Reconciler("foo", inner)},
		{"on", traced, tracing.Reconciler("foo", inner)},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = bb.r.Reconcile(bb.ctx, request) // it cannot fail
			}
		})
	}
}

// receiver is a collector that takes OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	names    []string
	services []string
	status   int // of its answers
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: http.StatusOK}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.WriteHeader(r.status)
		body := io.Reader(request.Body)
		if request.Header.Get("Content-Encoding") == "gzip" {
			var err error
			if body, err = gzip.NewReader(body); err != nil {
				t.Error(err)
				return
			}
		}
		raw, err := io.ReadAll(body)
		var got collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(raw, &got)
		}
		if err != nil || request.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", request.URL, err)
		}
		for _, resource := range got.ResourceSpans {
			for _, a := range resource.Resource.Attributes {
				if a.Key == "service.name" {
					r.services = append(r.services, a.Value.GetStringValue())
				}
			}
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					r.names = append(r.names, span.Name)
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func TestSpansAreDelivered(t *testing.T) {
	for name, test := range map[string]struct {
		environment map[string]string
		endpoint    bool
		service     string
	}{
		"by the flag":             {endpoint: true, service: "keelson"},
		"by the environment":      {environment: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "URL"}, service: "keelson"},
		"by that of traces":       {environment: map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "URL/v1/traces"}, service: "keelson"},
		"under another name":      {environment: map[string]string{"OTEL_SERVICE_NAME": "other"}, endpoint: true, service: "other"},
		"the flag is what counts": {environment: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, endpoint: true, service: "keelson"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReceiver(t)
			for variable, value := range test.environment {
				t.Setenv(variable, strings.ReplaceAll(value, "URL", r.URL))
			}
			o := tracing.Options{Version: "v1", Log: logr.Discard()}
			if test.endpoint {
				o.Endpoint = r.URL
			}
			p, err := tracing.Start(t.Context(), o)
			if err != nil || p == nil {
				t.Fatalf("Start: %v, %v", p, err)
			}
			_, _ = tracing.Reconciler("foo", reconcile.Func(work)).Reconcile(tracing.NewContext(t.Context(), p), request)
			if err := p.Shutdown(t.Context()); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
			if diff := cmp.Diff([]string{"PUT", "Driver.Create", "Driver.Stop", "Reconcile foo"}, r.names); diff != "" {
				t.Errorf("spans (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{test.service}, r.services); diff != "" {
				t.Errorf("service (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhoAsksForTraces(t *testing.T) {
	const endpoint = "http://127.0.0.1:1"
	for name, test := range map[string]struct {
		environment map[string]string
		endpoint    string
		want        bool
		says        string
	}{
		"nobody":                        {},
		"the flag":                      {endpoint: endpoint, want: true},
		"switched off":                  {endpoint: endpoint, environment: map[string]string{"OTEL_SDK_DISABLED": "true"}},
		"no exporter":                   {environment: map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_TRACES_EXPORTER": "none"}},
		"an exporter that there is not": {endpoint: endpoint, environment: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, says: "OTEL_TRACES_EXPORTER=zipkin"},
		"a protocol that there is not":  {endpoint: endpoint, environment: map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, says: "http/protobuf only"},
		"the protocol that there is":    {endpoint: endpoint, environment: map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			for variable, value := range test.environment {
				t.Setenv(variable, value)
			}
			got, err := tracing.Options{Endpoint: test.endpoint}.Enabled()
			if got != test.want || (err != nil) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %t, %v", got, err)
			}
		})
	}
}

// A collector that refuses spans, or is not there, is told in the log, once a minute, and harms nobody.
func TestACollectorThatIsAway(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	log := funcr.New(func(_, line string) {
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, line)
	}, funcr.Options{})
	r := newReceiver(t)
	r.status = http.StatusForbidden
	p, err := tracing.Start(t.Context(), tracing.Options{Endpoint: r.URL, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = tracing.Reconciler("foo", reconcile.Func(work)).Reconcile(tracing.NewContext(t.Context(), p), request)
	if err := p.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	for range 3 {
		otel.Handle(errors.New("refused"))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(lines) != 1 || !strings.Contains(lines[0], "Traces cannot be delivered") {
		t.Errorf("the log has %q", lines)
	}
}

// Requests of a traced reconcile are steps of it, and say so to the server; others are left alone.
func TestTransport(t *testing.T) {
	var headers []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = append(headers, r.Header.Get("Traceparent"))
		w.WriteHeader(http.StatusConflict)
	}))
	defer server.Close()
	client := &http.Client{Transport: tracing.Transport(http.DefaultTransport)}
	get := func(ctx context.Context) {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close() // there is none
	}
	recorded := tracetest.NewSpanRecorder()
	ctx := tracing.NewContext(t.Context(), tracing.New(recorded, "v1"))
	get(ctx)
	_, err := tracing.Reconciler("foo", reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		get(ctx)
		return reconcile.Result{}, nil
	})).Reconcile(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	spans := recorded.Ended()
	if len(spans) != 2 || spans[0].Name() != "GET" || spans[0].Parent().SpanID() != spans[1].SpanContext().SpanID() || spans[0].Status().Description != "409 Conflict" {
		t.Fatalf("spans: %v", spans)
	}
	want := []string{"", "00-" + spans[0].SpanContext().TraceID().String() + "-" + spans[0].SpanContext().SpanID().String() + "-01"}
	if diff := cmp.Diff(want, headers); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
}
