// Package tracing tells a collector of OpenTelemetry what a reconcile does and how long each step takes.
//
// It is off unless somebody asks for it, and then costs nothing: whoever makes a span asks the context for the one around
// it, and there is none.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// scope is the name of the instrumentation in every span.
const scope = "github.com/keelson-dev/keelson"

// complainEvery is how often a collector that does not take spans is worth a line in the log.
const complainEvery = time.Minute

// Options say where spans go.
type Options struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP, such as http://localhost:4318. Empty:
	// what the variables of OpenTelemetry say, see Enabled.
	Endpoint string
	// Version is that of the program.
	Version string
	// Log is told of spans that cannot be delivered.
	Log logr.Logger
}

// Enabled reports whether these options, with the environment, ask for traces: by their endpoint, else by
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT. OTEL_SDK_DISABLED=true and
// OTEL_TRACES_EXPORTER=none win. The error says which variable asks for what this program does not have.
func (o Options) Enabled() (bool, error) {
	if o.Endpoint == "" && os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" && os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" {
		return false, nil
	}
	if os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return false, nil
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return false, nil
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER=%s: there are otlp and none", exporter)
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := os.Getenv(name); protocol != "" && protocol != "http/protobuf" {
			return false, fmt.Errorf("%s=%s: there is http/protobuf only, usually on port 4318", name, protocol)
		}
	}
	return true, nil
}

// CheckEndpoint returns an error if text is no URL of a collector.
func CheckEndpoint(text string) error {
	endpoint, err := url.Parse(text)
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" {
		return errors.New("must be a URL, such as http://localhost:4318")
	}
	return nil
}

// Provider makes spans and delivers them.
type Provider struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
}

// Start returns a Provider that delivers spans as the options say; nil, which is one that does nothing, if they ask for
// none. A collector that is not there is no error: spans are dropped, and the log tells.
func Start(ctx context.Context, o Options) (*Provider, error) {
	enabled, err := o.Enabled()
	if err != nil || !enabled {
		return nil, err
	}
	var exporterOptions []otlptracehttp.Option
	if o.Endpoint != "" {
		if err := CheckEndpoint(o.Endpoint); err != nil {
			return nil, fmt.Errorf("deliver traces to %s: the endpoint %w", o.Endpoint, err)
		}
		endpoint, err := url.Parse(o.Endpoint)
		if err != nil {
			return nil, err
		}
		// As the variable for all signals has it: the path of traces is below it.
		exporterOptions = append(exporterOptions, otlptracehttp.WithEndpointURL(endpoint.JoinPath("v1", "traces").String()))
	}
	exporter, err := otlptracehttp.New(ctx, exporterOptions...)
	if err != nil {
		return nil, fmt.Errorf("deliver traces: %w", err)
	}
	otel.SetErrorHandler(&complainer{log: o.Log})
	return New(sdktrace.NewBatchSpanProcessor(exporter), o.Version), nil
}

// New returns a Provider that hands its spans to a processor. Whether a reconcile is traced is for the sampler that
// OTEL_TRACES_SAMPLER names; all are by default.
func New(processor sdktrace.SpanProcessor, version string) *Provider {
	about := []attribute.KeyValue{attribute.String("service.name", "keelson"), attribute.String("service.version", version)}
	if host, err := os.Hostname(); err == nil {
		about = append(about, attribute.String("service.instance.id", host))
	}
	described := resource.NewSchemaless(about...)
	// What the environment says of the service counts more.
	if merged, err := resource.Merge(described, resource.Environment()); err == nil {
		described = merged
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(processor), sdktrace.WithResource(described))
	return &Provider{provider: provider, tracer: provider.Tracer(scope, trace.WithInstrumentationVersion(version))}
}

// Shutdown delivers what is left.
func (p *Provider) Shutdown(ctx context.Context) error {
	if p == nil {
		return nil
	}
	if err := p.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("deliver the last traces: %w", err)
	}
	return nil
}

// providerKey is the key of the Provider in a context.
type providerKey struct{}

// NewContext returns ctx with the Provider that Reconciler uses; a nil one changes nothing.
func NewContext(ctx context.Context, p *Provider) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, providerKey{}, p)
}

// complainer logs what goes wrong in the background, not more often than complainEvery.
type complainer struct {
	log logr.Logger

	mu   sync.Mutex
	next time.Time
}

// Handle implements otel.ErrorHandler.
func (c *complainer) Handle(err error) {
	now := time.Now()
	c.mu.Lock()
	due := !now.Before(c.next)
	if due {
		c.next = now.Add(complainEvery)
	}
	c.mu.Unlock()
	if due {
		c.log.Error(err, "Traces cannot be delivered")
	}
}
