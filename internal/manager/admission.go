package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/manager/serving"
)

// served is what a manager serves to the API server: the admission webhook or the access API; nil if that is off.
type served struct {
	listener net.Listener
	// check returns an error while the webhook cannot answer.
	check func() error
	// remove removes the registration of the access API.
	remove func(context.Context) error
	// known is closed when the API server has the configuration or the registration, if this manager has to wait for it.
	known <-chan struct{}
}

// addWebhook listens on the address of the options, so that a port in use is an error now, and has m serve the webhooks of the
// selected controllers on every replica. The webhooks send dry runs to the API server of cfg. It returns nil if no webhook is served.
func addWebhook(m ctrl.Manager, cfg *rest.Config, o *Options, all, selected []Controller) (_ *served, err error) {
	mux, names, err := newWebhookMux(m, cfg, o, all, selected)
	// A direct manager creates the configuration itself, without the kinds that it does not run.
	if err != nil || len(names) == 0 && o.Webhook.Direct || !serving.IsOn(o.Webhook.Address) {
		return nil, err
	}
	s := &served{}
	if s.listener, err = serving.Bind("webhook-bind-address", o.Webhook.Address); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	certificate, err := s.addCertificates(m, o, names)
	if err != nil {
		return nil, err
	}
	// The only clients are API servers, which all support this version.
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, GetCertificate: certificate}
	err = m.Add(&manager.Server{
		Name: "webhook", Server: serving.NewWebhookServer(mux, o.Logger.WithName("webhook")), Listener: tls.NewListener(serving.LimitConnections(s.listener), config),
	})
	if err != nil {
		return nil, fmt.Errorf("serve the webhook: %w", err)
	}
	return s, nil
}

// newWebhookMux returns the handlers of all webhooks, and the names of those of the selected controllers. The configuration of an
// installation has all webhooks. The webhooks of other controllers allow everything: their rules depend on the flags of the
// manager that runs them, and without a response the API server would reject the request.
func newWebhookMux(m ctrl.Manager, cfg *rest.Config, o *Options, all, selected []Controller) (*http.ServeMux, []string, error) {
	mux := http.NewServeMux()
	dryRun, err := newDryRun(m, cfg)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, c := range all {
		if c.Webhook == nil {
			continue
		}
		name := c.webhookName()
		path := admission.Path(name)
		var handler http.Handler
		if slices.ContainsFunc(selected, func(s Controller) bool { return s.Name == c.Name }) {
			names = append(names, name)
			handler, err = c.Webhook(hook{Options: o, scheme: m.GetScheme(), path: path, dryRun: dryRun, live: m.GetAPIReader()})
		} else {
			handler, err = admission.NoObjection(path, o.Logger.WithName("webhook"))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("set up the webhook of controller %s: %w", c.Name, err)
		}
		mux.Handle(path, handler)
	}
	return mux, names, nil
}

// newDryRun returns a client for dry-run writes to the API server of cfg. Nothing is stored, so every replica may use
// it.
func newDryRun(m ctrl.Manager, cfg *rest.Config) (client.Writer, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandlerWithContext = kube.WarningsToContext{}
	c, err := client.New(cfg, client.Options{
		Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), DryRun: ptr.To(true), FieldOwner: kube.FieldManager,
	})
	if err != nil {
		return nil, fmt.Errorf("build the dry-run client of the webhooks: %w", err)
	}
	return c, nil
}

// addCertificates adds the certificate rotation to m, and returns the source of the current certificate.
func (s *served) addCertificates(m ctrl.Manager, o *Options, names []string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	w := &o.Webhook
	if w.CertDir != "" {
		watcher, err := certwatcher.New(filepath.Join(w.CertDir, "tls.crt"), filepath.Join(w.CertDir, "tls.key"))
		if err != nil {
			return nil, fmt.Errorf("--webhook-cert-dir=%s: %w", w.CertDir, err)
		}
		s.check = func() error { return nil }
		return watcher.GetCertificate, m.Add(watcher)
	}
	options := admission.Options{
		Names: w.names(s.listener.Addr()), Clock: clock.RealClock{}, Times: w.Times, Log: o.Logger.WithName("webhook"),
	}
	if w.Direct {
		wanted, err := admission.Configuration(w.ConfigurationName, names, o.Namespaces, s.listener.Addr().String())
		if err != nil {
			return nil, err
		}
		options.Store, options.Trust = admission.NewMemoryStore(), admission.InstallTrust(m.GetClient(), m.GetAPIReader(), wanted)
	} else {
		options.Store = admission.NewSecretStore(m.GetClient(), m.GetAPIReader(), client.ObjectKey{Namespace: w.ServiceNamespace, Name: admission.SecretName})
		options.Trust = admission.UpdateTrust(m.GetClient(), m.GetAPIReader(), w.ConfigurationName)
	}
	rotator := admission.NewRotator(options)
	if w.Direct {
		s.known = rotator.Known()
	}
	s.check = rotator.Check
	return rotator.GetCertificate, errors.Join(m.Add(rotator.Follower()), m.Add(rotator.Renewer()))
}

// names returns the names under which the API server reaches a manager that listens on an address.
func (w *Webhook) names(address net.Addr) []string {
	service := w.ServiceName + "." + w.ServiceNamespace + ".svc"
	names := []string{service, service + ".cluster.local"}
	if tcp, ok := address.(*net.TCPAddr); ok && !tcp.IP.IsUnspecified() {
		names = append(names, tcp.IP.String())
	}
	return names
}

// wait waits until the API server knows the server, if this manager has to wait for that.
func (s *served) wait(ctx context.Context) {
	if s == nil || s.known == nil {
		return
	}
	select {
	case <-s.known:
	case <-ctx.Done():
	}
}

// address returns host:port, or "" if it is off.
func (s *served) address() string {
	if s == nil {
		return ""
	}
	return s.listener.Addr().String()
}

// close frees the port. The server has closed it already, if it ever ran.
func (s *served) close() error {
	if s == nil {
		return nil
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close %s: %w", s.listener.Addr(), err)
	}
	return nil
}
