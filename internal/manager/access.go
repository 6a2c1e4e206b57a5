package manager

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/config/rbac"
	"github.com/keelson-dev/keelson/internal/access"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine"
	"github.com/keelson-dev/keelson/internal/manager/preflight"
	"github.com/keelson-dev/keelson/internal/manager/serving"
)

// accessTimeout limits the removal of the registration at the stop.
const accessTimeout = 5 * time.Second

// Access says whether, and how, the manager serves the access API: consoles, logs and ports of machines through the
// Kubernetes API.
type Access struct {
	// Address is where it is served to kube-apiserver, as host:port; port 0 takes a free one. Empty or Off: nowhere.
	Address string
	// ServiceNamespace and ServiceName name the Service by which kube-apiserver reaches the leader. An empty namespace is that
	// of the manager's Pod; outside of a Pod "keelson-system". The Secret with the authority of the certificates is there, too.
	ServiceNamespace, ServiceName string
	// Direct says that kube-apiserver reaches this process at Address, on loopback, and that it is the only one: then the
	// manager makes the APIService itself, and keeps its authority in memory.
	Direct bool

	// Times are those of the certificates.
	Times admission.Times
}

// NewAccess returns the defaults: it is not served.
func NewAccess() Access {
	return Access{Address: Off, ServiceName: access.ServiceName, Times: admission.DefaultTimes()}
}

// AddFlags adds the flags of the access API to fs, with the present values as defaults.
func (a *Access) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.Address, "access-bind-address", a.Address,
		"`host:port` of the access API of machines, for kube-apiserver only; 0 disables it")
	fs.StringVar(&a.ServiceName, "access-service", a.ServiceName,
		"name of the Service of the access API, which the leader points to itself")
}

func (a *Access) validate(selected []Controller, namespaces []string, wrong func(flag string, value any, why string, args ...any)) {
	if err := serving.CheckAddress(a.Address); err != nil {
		wrong("access-bind-address", a.Address, "%v", err)
		return
	}
	if problems := validation.IsDNS1035Label(a.ServiceName); len(problems) > 0 {
		wrong("access-service", a.ServiceName, "is not a valid name of a Service: %s", problems[0])
	}
	if a.ServiceNamespace != "" {
		if problems := validation.IsDNS1123Label(a.ServiceNamespace); len(problems) > 0 {
			wrong("access.serviceNamespace", a.ServiceNamespace, "is not a valid namespace: %s", problems[0])
		}
	}
	if !serving.IsOn(a.Address) || a.Direct {
		return
	}
	if len(namespaces) > 0 {
		wrong("access-bind-address", a.Address, "cannot be used with --namespaces: the access API is one for the whole cluster")
	}
	if !slices.ContainsFunc(selected, isVirtualMachine) {
		wrong("access-bind-address", a.Address, "needs the controller %s", virtualmachine.Name)
	}
	host, _, _ := net.SplitHostPort(a.Address)
	if ip, err := netip.ParseAddr(host); host != "" && err != nil || ip.IsLoopback() {
		wrong("access-bind-address", a.Address, "must have an IP address, or none, and not loopback: kube-apiserver connects to it through a Service")
	}
}

// accessServer serves the access API of a manager.
type accessServer struct {
	served
	server *access.Server
	http   *http.Server
	log    logr.Logger
}

// addAccess listens, and has m serve the access API and register it. It returns nil if it is off, or without the controller
// of VirtualMachines.
func addAccess(m ctrl.Manager, o *Options) (_ *served, err error) {
	access.RegisterMetrics()
	if !serving.IsOn(o.Access.Address) || o.drivers == nil {
		return nil, nil
	}
	s := &accessServer{log: o.Logger.WithName("access")}
	if s.listener, err = serving.Bind("access-bind-address", o.Access.Address); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	rotator, err := s.register(m, o)
	if err != nil {
		return nil, err
	}
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
	return &s.served, errors.Join(m.Add(rotator.Follower()), m.Add(rotator.Renewer()), m.Add(history), m.Add(s))
}

// register returns the rotation of the certificates, which registers the server with kube-apiserver.
func (s *accessServer) register(m ctrl.Manager, o *Options) (*admission.Rotator, error) {
	options := admission.Options{What: "Access", Times: o.Access.Times, Clock: clock.RealClock{}, Log: s.log}
	at := netip.MustParseAddrPort(s.listener.Addr().String())
	if o.Access.Direct {
		registration := &access.Registration{Client: m.GetClient(), Live: m.GetAPIReader(), Port: int32(at.Port())}
		options.Names, options.Store = []string{access.ServerName}, admission.NewMemoryStore()
		options.Trust, s.remove = registration.Install, registration.Remove
		rotator := admission.NewRotator(options)
		s.known = rotator.Known()
		return rotator, nil
	}
	address, err := advertised(at.Addr(), m.GetConfig())
	if err != nil {
		return nil, fmt.Errorf("--access-bind-address=%s: %w", o.Access.Address, err)
	}
	service := client.ObjectKey{Namespace: o.Access.ServiceNamespace, Name: o.Access.ServiceName}
	endpoint := &access.Endpoint{Client: m.GetClient(), Live: m.GetAPIReader(), Service: service, Address: netip.AddrPortFrom(address, at.Port())}
	secret := client.ObjectKey{Namespace: service.Namespace, Name: access.SecretName}
	options.Names = []string{service.Name + "." + service.Namespace + ".svc"}
	options.Store, options.Trust = admission.NewSecretStore(m.GetClient(), m.GetAPIReader(), secret), endpoint.Install
	s.remove = endpoint.Remove
	return admission.NewRotator(options), nil
}

// advertised returns the address by which kube-apiserver reaches a server that listens on an address: that address, or for
// all addresses of the host the one from which this host connects to kube-apiserver. In a Pod, that is the address of the Pod.
func advertised(bound netip.Addr, config *rest.Config) (netip.Addr, error) {
	const howto = "name an address of this host that kube-apiserver reaches"
	if !bound.IsUnspecified() {
		return bound.Unmap(), nil
	}
	server, _, err := rest.DefaultServerURL(config.Host, config.APIPath, schema.GroupVersion{}, true)
	if err != nil {
		return netip.Addr{}, err
	}
	port := cmp.Or(server.Port(), "443")
	connection, err := net.Dial("udp", net.JoinHostPort(server.Hostname(), port)) // sends nothing
	if err != nil {
		return netip.Addr{}, fmt.Errorf("find the address of this host: %w; %s", err, howto)
	}
	defer connection.Close() //nolint:errcheck // it was not used
	found := netip.MustParseAddrPort(connection.LocalAddr().String()).Addr().Unmap().WithZone("")
	if found.IsLoopback() {
		return netip.Addr{}, fmt.Errorf("this host reaches kube-apiserver on loopback: %s", howto)
	}
	return found, nil
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

// requirements are the permissions that the access API needs with the selected controllers.
func (a *Access) requirements(selected []Controller) ([]preflight.Requirement, error) {
	if !serving.IsOn(a.Address) || !slices.ContainsFunc(selected, isVirtualMachine) {
		return nil, nil
	}
	if a.Direct {
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
		}, nil
	}
	everywhere, home, err := rbac.ForAccess()
	if err != nil {
		return nil, err
	}
	for i := range home {
		if slices.Contains(home[i].Resources, "services") || slices.Contains(home[i].Resources, "endpointslices") {
			home[i].ResourceNames = slices.Clone(home[i].ResourceNames)
			for j := range home[i].ResourceNames {
				home[i].ResourceNames[j] = a.ServiceName
			}
		}
	}
	return []preflight.Requirement{
		{Owner: "access API", Role: "keelson-access", Rules: everywhere},
		{Owner: "access API in its namespace", Role: "keelson-access-" + a.ServiceNamespace, Rules: home, Namespaces: []string{a.ServiceNamespace}},
	}, nil
}

func isVirtualMachine(c Controller) bool { return c.Name == virtualmachine.Name }
