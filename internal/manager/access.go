package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/keelson-dev/keelson/internal/access"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine"
	"github.com/keelson-dev/keelson/internal/manager/preflight"
)

// accessTimeout limits the removal of the registration at the stop.
const accessTimeout = 5 * time.Second

// accessServer serves the access API of a manager.
type accessServer struct {
	listener     net.Listener
	server       *access.Server
	http         *http.Server
	registration *access.Registration
	// remove removes the registration.
	remove func(context.Context) error
	// known is closed when kube-apiserver has the registration.
	known <-chan struct{}
	log   logr.Logger
}

// addAccess listens on loopback, and has m serve the access API and register it. It returns nil if it is off, or without
// the controller of VirtualMachines.
func addAccess(m ctrl.Manager, o *Options) (_ *accessServer, err error) {
	access.RegisterMetrics()
	if !o.Access || o.drivers == nil {
		return nil, nil
	}
	s := &accessServer{log: o.Logger.WithName("access")}
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("listen for the access API: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.registration = &access.Registration{
		Client: m.GetClient(), Live: m.GetAPIReader(), Port: int32(s.listener.Addr().(*net.TCPAddr).Port), //nolint:gosec // a port
	}
	s.remove = s.registration.Remove
	rotator := admission.NewRotator(admission.Options{
		What: "Access", Names: []string{access.ServerName}, Store: admission.NewMemoryStore(), Trust: s.registration.Install,
		Times: admission.DefaultTimes(), Clock: clock.RealClock{}, Log: s.log,
	})
	s.known = rotator.Known()
	history := virtualmachine.NewUsageHistory(o.drivers, clock.RealClock{})
	var clusters access.Clusters
	if o.hasClusters {
		clusters = cluster.NewLocator(m.GetClient(), m.GetAPIReader(), o.SecretNamespace)
	}
	s.server = access.NewServer(access.Options{
		Clusters: clusters,
		Usage:    history.Samples,
		Machines: virtualmachine.NewLocator(m.GetClient(), m.GetAPIReader(), o.drivers), Reader: m.GetAPIReader(),
		Review: func(ctx context.Context, review *authorizationv1.SubjectAccessReview) error {
			return m.GetClient().Create(ctx, review)
		},
		Limits: access.DefaultLimits(), Log: s.log,
	})
	s.http = &http.Server{
		Handler: s.server, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(logr.ToSlogHandler(s.log.V(1)), slog.LevelInfo),
		TLSConfig: &tls.Config{
			// The only client is kube-apiserver. A request without its certificate gets a Status, not an error of TLS.
			MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, ClientAuth: tls.RequestClientCert,
			GetCertificate: rotator.GetCertificate,
		},
	}
	return s, errors.Join(m.Add(rotator.Follower()), m.Add(rotator.Renewer()), m.Add(history), m.Add(s))
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*accessServer) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable.
func (s *accessServer) Start(ctx context.Context) error {
	stopped := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), accessTimeout)
		defer cancel()
		if err := s.remove(grace); err != nil {
			s.log.Error(err, "Failed to remove the registration of the access API: the next manager replaces it")
		}
		s.server.Close()
		if s.http.Shutdown(grace) != nil {
			_ = s.http.Close() // the connections of the rest
		}
	})
	err := s.http.ServeTLS(s.listener, "", "")
	if ctx.Err() == nil {
		return fmt.Errorf("serve the access API: %w", err)
	}
	<-stopped
	return nil
}

// wait waits until kube-apiserver has the registration.
func (s *accessServer) wait(ctx context.Context) {
	if s == nil {
		return
	}
	select {
	case <-s.known:
	case <-ctx.Done():
	}
}

// close frees the port. The server has closed it already, if it ever ran.
func (s *accessServer) close() error {
	if s == nil {
		return nil
	}
	if err := s.listener.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close %s: %w", s.listener.Addr(), err)
	}
	return nil
}

// accessRequirements are the permissions that the access API needs.
func accessRequirements(o *Options, selected []Controller) []preflight.Requirement {
	if !o.Access || !slices.ContainsFunc(selected, func(c Controller) bool { return c.Name == virtualmachine.Name }) {
		return nil
	}
	return []preflight.Requirement{
		{Owner: "access API", Role: "keelson-access", Rules: access.ClusterRules()},
		{
			Owner: "access API in its namespace", Role: "keelson-access-" + access.ServiceNamespace, Rules: access.NamespaceRules(),
			Namespaces: []string{access.ServiceNamespace},
		},
		{
			Owner: "access API in " + access.ConfigMapNamespace, Role: "keelson-access-authentication", Rules: access.ConfigMapRules(),
			Namespaces: []string{access.ConfigMapNamespace},
		},
	}
}
