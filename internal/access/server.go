// Package access serves the access API, an aggregated API of kube-apiserver: the console, the log, the screen, the ports and
// the usage of machines, and the APIs of Clusters, as subresources. Package client has the protocol.
//
// kube-apiserver authenticates and authorizes each request before it passes it on. This server takes identities only from
// the certificate of its aggregator, and ends sessions when the permission or the machine is gone.
package access

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Machines finds the machines of VirtualMachines.
type Machines interface {
	// Locate returns the driver of a VirtualMachine and the identity of its server.
	Locate(ctx context.Context, namespace, name string) (backend.Driver, backend.Identity, error)
}

// Limits are those of sessions.
type Limits struct {
	// PerMachine and Total are how many sessions there may be at a time.
	PerMachine, Total int
	// PerCluster and TotalClusters are how many requests to the APIs of Clusters there may be at a time. A program may have
	// a watch for each kind.
	PerCluster, TotalClusters int
	// Idle is the time without any data after which a session ends.
	Idle time.Duration
	// Look is how often a session checks that its machine exists, Review how often that the user still has the
	// permission. Without an answer for three reviews, the session ends.
	Look, Review time.Duration
	// Stall is how long a client may take to read one message, and a guest to read its input.
	Stall time.Duration
	// MaxLag is how long output of a console, and with it the guest, waits for a viewer that has not read the last
	// megabyte. Then the viewer is dropped.
	MaxLag time.Duration
}

// DefaultLimits returns the limits that the documentation names.
func DefaultLimits() Limits {
	return Limits{
		PerMachine: 16, Total: 256, PerCluster: 256, TotalClusters: 1024,
		Idle: time.Hour, Look: 2 * time.Second, Review: 30 * time.Second, Stall: 20 * time.Second, MaxLag: 250 * time.Millisecond,
	}
}

// Options configure a Server.
type Options struct {
	Machines Machines
	// Clusters is nil if there are none.
	Clusters Clusters
	// Reader reads the ConfigMap of kube-apiserver.
	Reader kube.Reader
	// Review asks kube-apiserver whether a user has a permission, and completes the review.
	Review func(context.Context, *authorizationv1.SubjectAccessReview) error
	// Usage returns the usage of a machine in the last hour; isKept is false if there are too many machines.
	Usage  func(types.UID) (samples []backend.UsageSample, isKept bool)
	Limits Limits
	Log    logr.Logger
}

// Server serves the access API.
type Server struct {
	options  Options
	identity *authenticator
	handler  http.Handler

	// ctx ends with the server, and with it all sessions.
	ctx    context.Context
	cancel context.CancelCauseFunc

	running sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	sessions map[types.UID]int
	// totals are those of the resources.
	totals  map[string]int
	brokers map[types.UID]*broker
}

// NewServer returns a Server. Close ends its sessions.
func NewServer(o Options) *Server {
	s := &Server{
		options: o, identity: &authenticator{reader: o.Reader, now: time.Now},
		sessions: map[types.UID]int{}, totals: map[string]int{}, brokers: map[types.UID]*broker{},
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	mux := http.NewServeMux()
	addDiscovery(mux)
	mux.HandleFunc("GET /apis/"+groupVersion+"/namespaces/{namespace}/"+client.Resource+"/{name}/{subresource}", s.serveMachine)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			refuse(http.StatusMethodNotAllowed, "the method %s is not supported: subresources of virtualmachines in %s have GET only", r.Method, groupVersion).write(w)
			return
		}
		refuse(http.StatusNotFound, "there is no %s in %s", r.URL.Path, groupVersion).write(w)
	})
	s.handler = mux
	return s
}

type userKey struct{}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	found, err := s.identity.authenticate(r)
	if errors.Is(err, errAnonymous) {
		refuse(http.StatusUnauthorized, "%v", err).write(w)
		return
	}
	if err != nil {
		s.options.Log.Error(err, "Refusing requests to the access API")
		refuse(http.StatusServiceUnavailable, "%v", err).write(w)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), userKey{}, found))
	if name, path, isProxy := proxyPath(r.URL.EscapedPath()); isProxy {
		s.serveProxy(w, r, name, path) // not through the mux, which cleans paths
		return
	}
	s.handler.ServeHTTP(w, r)
}

// target is the machine of a request.
type target struct {
	backend.Identity
	driver backend.Driver
}

// serveMachine serves a subresource of a machine.
func (s *Server) serveMachine(w http.ResponseWriter, r *http.Request) {
	serve := map[string]func(http.ResponseWriter, *http.Request, *target) error{
		client.Console: s.serveConsole, client.Log: s.serveLog, client.PortForward: s.servePort, client.Usage: s.serveUsage,
		client.Screen: s.serveScreen, client.Screenshot: s.serveScreenshot,
	}[r.PathValue("subresource")]
	name := r.PathValue("name")
	err := error(refuse(http.StatusNotFound, "%s have no subresource %s", client.Resource, r.PathValue("subresource")))
	if serve != nil {
		var found *target
		if found, err = s.locate(r.Context(), r.PathValue("namespace"), name); err == nil {
			err = serve(w, r, found)
		}
	}
	if err != nil {
		why := *refusalOf(err)
		why.resource, why.object = client.Resource, name
		why.write(w)
	}
}

// locate returns a machine by its name.
func (s *Server) locate(ctx context.Context, namespace, name string) (*target, error) {
	driver, id, err := s.options.Machines.Locate(ctx, namespace, name)
	if apierrors.IsNotFound(err) {
		return nil, refuse(http.StatusNotFound, "VirtualMachine %s/%s does not exist", namespace, name)
	}
	if err != nil {
		return nil, err
	}
	return &target{Identity: id, driver: driver}, nil
}

// attend begins to use a machine, which is not idle until release is called. One that wakes on connection has been woken when attend
// returns. It returns an error if the machine does not run.
func (t *target) attend(ctx context.Context) (release func(), err error) {
	release = func() {}
	if attender, ok := t.driver.(backend.Attender); ok {
		if release, err = attender.Attend(ctx, t.Identity); err != nil {
			return nil, err
		}
	}
	server, err := t.driver.Observe(ctx, t.Identity)
	if err == nil && !server.IsOn() {
		verb := "start"
		if server.State == backend.StateAsleep {
			verb = "wake"
		}
		err = refuse(http.StatusConflict, "VirtualMachine %s/%s is not running (its machine is %s): %s it first", t.Namespace, t.Name, server.State, verb)
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// booleanOf returns a query parameter.
func booleanOf(r *http.Request, name string, usual bool) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return usual, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, refuse(http.StatusBadRequest, "the parameter %s must be true or false, not %q", name, text)
	}
	return value, nil
}

// upgrade makes a WebSocket of a request. It has answered if there is an error.
func upgrade(w http.ResponseWriter, r *http.Request, protocols ...string) (*websocket.Conn, error) {
	socket, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: protocols})
	if err == nil {
		socket.SetReadLimit(-1) // messages are passed on as they arrive
	}
	return socket, err
}

// isUpgrade returns an error if a request is not one for a WebSocket.
func isUpgrade(r *http.Request) error {
	if r.Header.Get("Upgrade") == "" {
		return refuse(http.StatusBadRequest, "this subresource is a WebSocket: use a client for it, such as keelson vm")
	}
	return nil
}

// Close ends all sessions, and returns when they have ended.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel(&ending{code: websocket.StatusGoingAway, reason: "The manager is stopping. The machine keeps running."})
	s.running.Wait()
}
