// Package serving contains the servers of the manager: health, metrics with access control, and the limits of the
// webhook.
package serving

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Off is the bind address that disables an endpoint.
const Off = "0"

// IsOn reports whether an endpoint with this address is served.
func IsOn(address string) bool { return address != "" && address != Off }

// CheckAddress returns an error if the address is neither host:port nor Off.
func CheckAddress(address string) error {
	if !IsOn(address) {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("must be host:port, or 0 for off")
	}
	if number, err := strconv.Atoi(port); err != nil || number < 0 || number > 65535 {
		return fmt.Errorf("%q is not a port", port)
	}
	return nil
}

// Bind listens on the address of the flag.
func Bind(flag, address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--%s=%s: %w; choose another address, or 0 for none", flag, address, err)
	}
	return listener, nil
}

// lastRequests limits requests in progress at the stop. A client chooses the duration of a profile.
var lastRequests = 2 * time.Second

// Config configures the endpoints of a manager. An address is host:port, with port 0 for a free one; empty or Off disables the
// endpoint.
type Config struct {
	HealthAddress, MetricsAddress string
	Metrics                       Options
	// Ready is the check of /readyz.
	Ready healthz.Checker
	Log   logr.Logger
}

// Endpoints are the addresses of a manager's endpoints, except the webhook. Empty: disabled.
type Endpoints struct {
	Health, Metrics string
	listeners       []net.Listener
}

// Listen listens on the addresses, so that a port in use is an error now, and registers the servers with m, which starts them
// before any cache syncs. It checks access to the metrics with cfg.
func Listen(m ctrl.Manager, cfg *rest.Config, c Config) (_ Endpoints, err error) {
	var e Endpoints
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Close())
		}
	}()
	health := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping},
		"/readyz":  {"caches": c.Ready},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		health.Handle(path, handler)
		health.Handle(path+"/", handler)
	}
	if e.Health, err = e.serve(m, "health-probe-bind-address", c.HealthAddress, nil, health); err != nil {
		return e, err
	}
	registerBuildInfo()
	err = e.serveMetrics(m, cfg, c)
	return e, err
}

// serve listens on the address of the flag and returns the actual address. Without a tlsConfig it serves plain
// HTTP.
func (e *Endpoints) serve(m ctrl.Manager, flag, address string, tlsConfig *tls.Config, handler http.Handler) (string, error) {
	if !IsOn(address) {
		return "", nil
	}
	listener, err := Bind(flag, address)
	if err != nil {
		return "", err
	}
	if tlsConfig != nil {
		listener = tls.NewListener(listener, tlsConfig)
	}
	e.listeners = append(e.listeners, listener)
	err = m.Add(&manager.Server{
		Name: flag,
		Server: &http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 10 * time.Second,
			IdleTimeout:       90 * time.Second,
			MaxHeaderBytes:    1 << 16,
		},
		Listener:        listener,
		ShutdownTimeout: &lastRequests,
	})
	if err != nil {
		return "", fmt.Errorf("serve --%s=%s: %w", flag, address, err)
	}
	return listener.Addr().String(), nil
}

// Close frees the ports. The servers have closed them already, if they ever ran.
func (e *Endpoints) Close() error {
	var errs []error
	for _, listener := range e.listeners {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close %s: %w", listener.Addr(), err))
		}
	}
	return errors.Join(errs...)
}
