package manager

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

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/keelson-dev/keelson/internal/manager/flags"
	"github.com/keelson-dev/keelson/internal/pki"
)

const (
	// scrapesAtOnce bounds the work that whoever may read metrics can cause.
	scrapesAtOnce = 8
	// selfSignedLife is how long a certificate lives that the manager makes for itself.
	selfSignedLife = 365 * 24 * time.Hour
)

// Serving says how metrics are served; where is Options.MetricsAddress.
type Serving struct {
	// Secure serves them over TLS, to those alone whom the API server knows and lets get
	// /metrics. Nil: unless the address is on loopback.
	Secure *bool
	// CertDir is a folder with tls.crt and tls.key, which are read again when they change.
	// Empty: the manager makes a certificate, which nobody vouches for.
	CertDir string
	// Profiling serves /debug/pprof/ beside the metrics, in the same way.
	Profiling bool
}

// AddFlags adds a flag for every option to fs, with the present values as defaults.
func (s *Serving) AddFlags(fs *pflag.FlagSet) {
	flags.OptionalBool(fs, &s.Secure, "metrics-secure",
		"serve metrics over TLS, to users who may get /metrics (default: true unless the address is on loopback)")
	fs.StringVar(&s.CertDir, "metrics-cert-dir", s.CertDir,
		"`directory` with tls.crt and tls.key of the metrics server (default: a self-signed certificate)")
	fs.BoolVar(&s.Profiling, "profiling", s.Profiling, "also serve /debug/pprof/ on the metrics address")
}

// isSecure reports whether metrics at this address are served over TLS.
func (s *Serving) isSecure(address string) bool {
	if s.Secure != nil {
		return *s.Secure
	}
	return !isLoopback(address)
}

func (s *Serving) validate(address string, wrong func(flag string, value any, why string, args ...any)) {
	if !isOn(address) {
		if s.Profiling {
			wrong("profiling", true, "needs --metrics-bind-address, where it is served")
		}
		return
	}
	secure := s.isSecure(address)
	if s.CertDir != "" && !secure {
		wrong("metrics-cert-dir", s.CertDir, "needs --metrics-secure")
	}
	if s.Profiling && !secure && !isLoopback(address) {
		wrong("profiling", true, "anybody could read the memory of the manager: it needs --metrics-secure, or an address on loopback")
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

// reviewRules are what the manager needs to ask the API server who wants to read metrics,
// and whether that is allowed.
func reviewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	}
}

// metricsHandler serves the metrics, and profiles if they are asked for.
func (s *Serving) metricsHandler() http.Handler {
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

// serveMetrics listens on the address of the metrics. Who asks for them is checked through
// cfg, which must let a replica write that is not the leader: its metrics are read, too.
func (e *endpoints) serveMetrics(m ctrl.Manager, cfg *rest.Config, o Options) error {
	const flag = "metrics-bind-address"
	handler := o.Serving.metricsHandler()
	var err error
	if !isOn(o.MetricsAddress) || !o.Serving.isSecure(o.MetricsAddress) {
		e.metrics, err = e.serve(m, flag, o.MetricsAddress, nil, handler)
		return err
	}
	if handler, err = newGate(cfg, handler, o.Logger.WithName("metrics")); err != nil {
		return err
	}
	tlsConfig, err := o.Serving.tlsConfig(m)
	if err != nil {
		return err
	}
	e.metrics, err = e.serve(m, flag, o.MetricsAddress, tlsConfig, handler)
	return err
}

// tlsConfig returns how metrics are served over TLS; m keeps the certificate fresh.
func (s *Serving) tlsConfig(m ctrl.Manager) (*tls.Config, error) {
	// Without HTTP/2: a scrape has no use for it, and who is not let in yet none for its
	// streams.
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	if s.CertDir == "" {
		config.GetCertificate = new(selfSigned).get
		return config, nil
	}
	watcher, err := certwatcher.New(filepath.Join(s.CertDir, "tls.crt"), filepath.Join(s.CertDir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("--metrics-cert-dir=%s: %w; it must have tls.crt and tls.key", s.CertDir, err)
	}
	config.GetCertificate = watcher.GetCertificate
	if err := m.Add(watcher); err != nil {
		return nil, fmt.Errorf("watch --metrics-cert-dir=%s: %w", s.CertDir, err)
	}
	return config, nil
}

// selfSigned is a certificate that signs itself. It is made when it is first asked for.
type selfSigned struct {
	mu      sync.Mutex
	current *tls.Certificate
}

// get returns the certificate, a new one at half of its life.
func (s *selfSigned) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.current != nil && !pki.NeedsRenewal(s.current.Leaf, now) {
		return s.current, nil
	}
	made, err := newSelfSigned(now)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for the metrics: %w", err)
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
