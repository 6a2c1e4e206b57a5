// Package manager runs the controllers: selection, API access, permissions and shutdown. `keelson manager` on a
// cluster and `keelson up` share it.
package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/manager/election"
	"github.com/keelson-dev/keelson/internal/manager/serving"
	"github.com/keelson-dev/keelson/internal/tracing"
	"github.com/keelson-dev/keelson/internal/version"
)

const (
	// shutdownTimeout limits running reconciles after a stop was requested; see also graceful.Grace, which is
	// shorter.
	shutdownTimeout = 30 * time.Second

	// lastTraces limits the delivery of traces after that.
	lastTraces = 2 * time.Second

	// The backoff of failed reconciles doubles from the first to the second.
	firstRetry = 5 * time.Millisecond
	lastRetry  = 5 * time.Minute
)

// Manager runs a selection of controllers.
type Manager struct {
	ctrl.Manager
	readiness *readiness
	endpoints serving.Endpoints
	webhook   *served
	access    *served
	closers   []func() error
	ready     chan struct{}
	onReady   func()
	log       logr.Logger
	// identity is the name of this replica in the Lease; empty without leader election.
	identity string
	fence    *election.Fence
}

// Run runs the preflight and then the selected controllers, until ctx is cancelled. Then running reconciles
// finish, the Lease is released, and the result is nil. A *preflight.Error describes missing prerequisites.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	return run(ctx, cfg, o, controllers)
}

func run(ctx context.Context, cfg *rest.Config, o Options, all []Controller) error {
	if err := prepare(&o, all); err != nil {
		return err
	}
	if err := checkAPI(ctx, cfg, o, all); err != nil {
		if ctx.Err() != nil {
			// Stopped before anything started: there is nothing to finish.
			return nil
		}
		return err
	}
	traces, err := tracing.Start(ctx, tracing.Options{
		Endpoint: o.TracingEndpoint, Version: version.Get().Keelson, Log: o.Logger.WithName("tracing"),
	})
	if err != nil {
		return err
	}
	o.Tracing = traces
	m, err := newManager(cfg, o, all)
	if err != nil {
		return errors.Join(err, traces.Shutdown(ctx))
	}
	err = m.Start(ctx)
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTraces)
	defer cancel()
	if lost := traces.Shutdown(last); lost != nil {
		o.Logger.Error(lost, "Traces are lost")
	}
	return err
}

// New returns a manager for the selected controllers, without a preflight. It already listens on its addresses,
// and serves them after Start.
func New(cfg *rest.Config, o Options) (*Manager, error) {
	if err := prepare(&o, controllers); err != nil {
		return nil, err
	}
	return newManager(cfg, o, controllers)
}

// prepare completes and checks options.
func prepare(o *Options, all []Controller) error {
	if err := o.Complete(); err != nil {
		return err
	}
	return o.validate(all)
}

func newManager(cfg *rest.Config, o Options, all []Controller) (*Manager, error) {
	selected, err := selectControllers(all, o.Controllers)
	if err != nil {
		return nil, err
	}
	scheme, err := newScheme(all)
	if err != nil {
		return nil, err
	}
	cfg = clientConfig(cfg)
	if o.Tracing != nil {
		cfg.Wrap(tracing.Transport)
	}
	options := controllerRuntime(&o, scheme, selected)
	unfenced := cfg
	cfg, fence, err := election.Configure(&options, cfg, o.LeaderElection)
	if err != nil {
		return nil, err
	}
	inner, err := ctrl.NewManager(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("build the manager: %w", err)
	}
	m := &Manager{readiness: newReadiness(), ready: make(chan struct{}), onReady: o.OnReady, log: o.Logger}
	if options.LeaderElection {
		m.identity, m.fence = o.LeaderElection.Identity, fence
	}
	m.Manager = &trackingManager{Manager: inner, readiness: m.readiness, log: o.Logger}
	for _, c := range selected {
		if err := c.add(m.Manager, &o); err != nil {
			return nil, fmt.Errorf("set up controller %s: %w", c.Name, err)
		}
	}
	m.closers = o.closers
	if m.webhook, err = addWebhook(inner, unfenced, &o, all, selected); err != nil {
		return nil, err
	}
	if m.access, err = addAccess(inner, &o); err != nil {
		return nil, errors.Join(err, m.webhook.close())
	}
	if m.webhook != nil {
		m.readiness.webhook = m.webhook.check
	}
	m.endpoints, err = serving.Listen(inner, unfenced, serving.Config{
		HealthAddress: o.HealthAddress, MetricsAddress: o.MetricsAddress, Metrics: o.Serving, Ready: m.readiness.check, Log: o.Logger,
	})
	if err != nil {
		return nil, errors.Join(err, m.webhook.close(), m.access.close())
	}
	return m, nil
}

// controllerRuntime returns the options for controller-runtime, without leader election.
func controllerRuntime(o *Options, scheme *runtime.Scheme, selected []Controller) ctrl.Options {
	quiet := libraryLogger(o.Logger)
	return ctrl.Options{
		Scheme: scheme,
		Logger: quiet,
		// Code without its own logger uses the one in its context.
		BaseContext: func() context.Context {
			return tracing.NewContext(logr.NewContext(context.Background(), quiet), o.Tracing)
		},
		Cache: cacheOptions(o.Namespaces, selected),
		// Package serving serves both, because controller-runtime's servers do not return their port.
		Metrics:                 server.Options{BindAddress: Off},
		HealthProbeBindAddress:  Off,
		GracefulShutdownTimeout: ptr.To(shutdownTimeout),
		Controller: config.Controller{
			// The list has no duplicates, and controller-runtime's check covers all managers that a process
			// ever had.
			SkipNameValidation: ptr.To(true),
			// Standby replicas keep their caches warm.
			EnableWarmup: ptr.To(true),
			Logger:       o.Logger,
		},
	}
}

// Start runs the controllers until ctx is cancelled. Then running reconciles finish, the Lease is released, and
// the result is nil. It can be called once.
func (m *Manager) Start(ctx context.Context) error {
	m.log.Info("Starting manager", "version", version.Get().Keelson, "server", m.GetConfig().Host,
		"metrics", m.MetricsAddress(), "health", m.HealthAddress(), "webhook", m.WebhookAddress())
	ctx, cancel := context.WithCancel(ctx)
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		m.announce(ctx)
	}()
	context.AfterFunc(ctx, m.readiness.stop)
	err := errors.Join(m.Manager.Start(ctx), m.endpoints.Close(), m.webhook.close(), m.access.close())
	// Only now, because controller-runtime has no kind of Runnable that it stops after the reconciles.
	for _, closer := range m.closers {
		err = errors.Join(err, closer())
	}
	cancel()
	<-announced
	switch {
	case err == nil:
		m.log.Info("Manager has stopped")
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("stop the manager: reconciles were still running after %v and were cut off: %w", shutdownTimeout, err)
	default:
		return fmt.Errorf("run the manager: %w", err)
	}
}

// announce closes ready, and logs it, when everything has happened that the workers wait for.
func (m *Manager) announce(ctx context.Context) {
	select {
	case <-m.readiness.synced:
	case <-ctx.Done():
		return
	}
	if m.identity != "" {
		m.log.Info("Caches have synced, waiting for the lease", "identity", m.identity)
	}
	select {
	case <-m.Elected():
	case <-ctx.Done():
		return
	}
	if m.identity != "" {
		m.log.Info("Took the lease", "identity", m.identity, "before", m.fence.Previous())
	}
	m.webhook.wait(ctx)
	m.access.wait(ctx)
	if ctx.Err() != nil {
		return
	}
	m.log.Info("Manager is ready")
	close(m.ready)
	if m.onReady != nil {
		m.onReady()
	}
}

// Ready returns a channel that is closed when the caches of all selected
// controllers have synced and their workers run. On a replica that is not the
// leader, that is when it becomes the leader.
func (m *Manager) Ready() <-chan struct{} { return m.ready }

// MetricsAddress returns host:port of /metrics, or "" if it is off.
func (m *Manager) MetricsAddress() string { return m.endpoints.Metrics }

// HealthAddress returns host:port of /healthz and /readyz, or "" if they are off.
func (m *Manager) HealthAddress() string { return m.endpoints.Health }

// WebhookAddress returns host:port of the admission webhook, or "" if it is off.
func (m *Manager) WebhookAddress() string { return m.webhook.address() }

// clientConfig returns a copy of cfg with the common settings of our clients.
func clientConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = version.UserAgent()
	// The API server has priority and fairness for this; with the client's limit of 5 requests a second, 1000
	// objects would take minutes.
	cfg.QPS = -1
	cfg.RateLimiter = nil
	cfg.Wrap(withResponseTimeout)
	return cfg
}

func newScheme(all []Controller) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	for _, c := range all {
		if err := c.AddToScheme(scheme); err != nil {
			return nil, fmt.Errorf("register the types of controller %s: %w", c.Name, err)
		}
	}
	return scheme, nil
}

func cacheOptions(namespaces []string, selected []Controller) cache.Options {
	options := cache.Options{
		// Managed fields are half of an object with many managers, and no controller reads them from a cache.
		DefaultTransform:         cache.TransformStripManagedFields(),
		DefaultWatchErrorHandler: kube.WatchFailed,
	}
	if len(namespaces) > 0 {
		options.DefaultNamespaces = make(map[string]cache.Config, len(namespaces))
		for _, namespace := range namespaces {
			options.DefaultNamespaces[namespace] = cache.Config{}
		}
	}
	for _, c := range selected {
		if c.Cache != nil {
			c.Cache(&options)
		}
	}
	return options
}

func controllerOptions(threads int) controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: threads,
		// Each object has its own backoff. The default limiter also has a bucket of 10 retries a second for all
		// objects, in which a thousand conflicts would queue for minutes.
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry),
	}
}
