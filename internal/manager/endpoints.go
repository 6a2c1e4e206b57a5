package manager

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// lastRequests is how long requests that are under way at the stop may take. A profile may take
// as long as its reader wants.
var lastRequests = 2 * time.Second

// endpoints are the addresses that the manager serves. Empty: not served.
type endpoints struct {
	health, metrics string
	listeners       []net.Listener
}

// addEndpoints listens on the addresses of the options, so that a port that is taken
// is an error now, and has m serve them from its start, before any cache is filled. Who
// reads metrics is checked through cfg.
func addEndpoints(m ctrl.Manager, cfg *rest.Config, o Options, r *readiness) (_ endpoints, err error) {
	var e endpoints
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	health := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{
		"/healthz": {"ping": healthz.Ping},
		"/readyz":  {"caches": r.check},
	} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		health.Handle(path, handler)
		health.Handle(path+"/", handler)
	}
	if e.health, err = e.serve(m, "health-probe-bind-address", o.HealthAddress, nil, health); err != nil {
		return e, err
	}
	registerBuildInfo()
	err = e.serveMetrics(m, cfg, o)
	return e, err
}

// serve listens on the address that the flag asks for and returns the one it got. Without
// a tlsConfig it serves plain HTTP.
func (e *endpoints) serve(m ctrl.Manager, flag, address string, tlsConfig *tls.Config, handler http.Handler) (string, error) {
	if !isOn(address) {
		return "", nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("--%s=%s: %w; choose another address, or 0 for none", flag, address, err)
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

// close frees the ports. The servers have closed them already, if they ever ran.
func (e *endpoints) close() error {
	var errs []error
	for _, listener := range e.listeners {
		if err := listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			errs = append(errs, fmt.Errorf("close %s: %w", listener.Addr(), err))
		}
	}
	return errors.Join(errs...)
}
