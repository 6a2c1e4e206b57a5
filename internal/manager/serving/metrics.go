package serving

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keelson-dev/keelson/internal/manager/flags"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/version"
)

const (
	// scrapesAtOnce limits concurrent scrapes.
	scrapesAtOnce = 8
	// selfSignedLife is the lifetime of a self-signed certificate.
	selfSignedLife = 365 * 24 * time.Hour
)

// Options configure access to the metrics.
type Options struct {
	// Secure serves them over TLS, to users who can get /metrics according to the API server. Nil: true unless the address is on
	// loopback.
	Secure *bool
	// CertDir is a directory with tls.crt and tls.key, which are reloaded when they change. Empty: a self-signed
	// certificate.
	CertDir string
	// Profiling serves /debug/pprof/ at the same address, with the same access control.
	Profiling bool
}

// AddFlags adds a flag for every option to fs, with the present values as defaults.
func (s *Options) AddFlags(fs *pflag.FlagSet) {
	flags.OptionalBool(fs, &s.Secure, "metrics-secure",
		"serve metrics over TLS, to users who can get /metrics (default: true unless the address is on loopback)")
	fs.StringVar(&s.CertDir, "metrics-cert-dir", s.CertDir,
		"`directory` with tls.crt and tls.key of the metrics server (default: a self-signed certificate)")
}

// IsSecure reports whether metrics at this address are served over TLS.
func (s *Options) IsSecure(address string) bool {
	if s.Secure != nil {
		return *s.Secure
	}
	return !isLoopback(address)
}

// Validate calls wrong for each invalid flag, for metrics at the address.
func (s *Options) Validate(address string, wrong func(flag string, value any, why string, args ...any)) {
	if !IsOn(address) {
		if s.Profiling {
			wrong("metrics.profiling", true, "needs --metrics-bind-address, where it is served")
		}
		return
	}
	secure := s.IsSecure(address)
	if s.CertDir != "" && !secure {
		wrong("metrics.certDir", s.CertDir, "needs metrics.secure: true")
	}
	if s.Profiling && !secure && !isLoopback(address) {
		wrong("metrics.profiling", true, "anybody could read the memory of the manager: it needs metrics.secure: true, or an address on loopback")
	}
}

// isLoopback reports whether only this host can reach an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// ReviewRules are the permissions for checking access to the metrics.
func ReviewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
}

// metricsHandler serves the metrics and, if enabled, profiles.
func (s *Options) metricsHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics.Registry, promhttp.HandlerOpts{
		ErrorHandling:       promhttp.HTTPErrorOnError,
		MaxRequestsInFlight: scrapesAtOnce,
	}))
	if s.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// serveMetrics listens on the address of the metrics. It checks access with cfg, which must allow writes on standby replicas,
// because they are scraped, too.
func (e *Endpoints) serveMetrics(m ctrl.Manager, cfg *rest.Config, c Config) error {
	const flag = "metrics-bind-address"
	handler := c.Metrics.metricsHandler()
	var err error
	if !IsOn(c.MetricsAddress) || !c.Metrics.IsSecure(c.MetricsAddress) {
		e.Metrics, err = e.serve(m, flag, c.MetricsAddress, nil, handler)
		return err
	}
	if handler, err = newAccessFilter(cfg, handler, c.Log.WithName("metrics")); err != nil {
		return err
	}
	tlsConfig, err := c.Metrics.tlsConfig(m)
	if err != nil {
		return err
	}
	e.Metrics, err = e.serve(m, flag, c.MetricsAddress, tlsConfig, handler)
	return err
}

// tlsConfig returns the TLS configuration of the metrics; m watches the certificate.
func (s *Options) tlsConfig(m ctrl.Manager) (*tls.Config, error) {
	// Without HTTP/2, which a scrape does not need, so that a client without access cannot open streams.
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.CertDir == "" {
		config.GetCertificate = new(selfSigned).get
		return config, nil
	}
	watcher, err := certwatcher.New(filepath.Join(s.CertDir, "tls.crt"), filepath.Join(s.CertDir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("metrics.certDir: %s: %w; it must have tls.crt and tls.key", s.CertDir, err)
	}
	config.GetCertificate = watcher.GetCertificate
	if err := m.Add(watcher); err != nil {
		return nil, fmt.Errorf("watch metrics.certDir: %s: %w", s.CertDir, err)
	}
	return config, nil
}

// selfSigned is a self-signed certificate, created on first use.
type selfSigned struct {
	mu      sync.Mutex
	current *tls.Certificate
}

// get returns the certificate, and renews it after half of its lifetime.
func (s *selfSigned) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.current != nil && !pki.NeedsRenewal(s.current.Leaf, now) {
		return s.current, nil
	}
	made, err := newSelfSigned(now)
	if err != nil {
		return nil, fmt.Errorf("create a certificate for the metrics: %w", err)
	}
	s.current = made
	return made, nil
}

func newSelfSigned(now time.Time) (*tls.Certificate, error) {
	key, err := pki.NewKey()
	if err != nil {
		return nil, err
	}
	made, err := pki.Template{
		CommonName: "keelson-metrics", Names: []string{"localhost", "127.0.0.1", "::1"},
		Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, Lifetime: selfSignedLife,
	}.Issue(key, pki.Pair{}, now)
	if err != nil {
		return nil, err
	}
	return made.TLS(), nil
}

// registerBuildInfo adds keelson_build_info to the registry, which is global to the process.
var registerBuildInfo = sync.OnceFunc(func() {
	info := version.Get()
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "keelson_build_info",
		Help: "Always 1; the labels have the version of Keelson, Go and Kubernetes.",
		ConstLabels: prometheus.Labels{
			"version": info.Keelson, "goversion": info.Go, "kubernetes": info.Kubernetes,
		},
	})
	gauge.Set(1)
	metrics.Registry.MustRegister(gauge)
})
