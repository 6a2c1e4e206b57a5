// Package console serves the console: a page for a browser, and a narrow way through to a Kubernetes API. The page has no
// rights of its own: every request goes to the API with the credentials of the user who started the console, or of a console
// for many users with those of each user.
//
// Whoever opens the console of one user needs a one-time token from the user's terminal. It becomes a session of a cookie and a key. The
// cookie alone opens nothing, because browsers send it to all ports of a host, also to that of a guest.
package console

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Options configure a Console.
type Options struct {
	// Config is the API with the user's credentials.
	Config *rest.Config
	// Port is the port on loopback; 0 for any free one.
	Port int
	// Cluster names the API for the user, such as the context of a kubeconfig.
	Cluster string
	// Version is the version of the program, for the user.
	Version string
	// Host is the name of this host if the API is that of Keelson on it: the console then shows its capacity, too.
	Host string
	// SSHKey returns the public key with which keelson vm ssh of this user logs in; nil for a console of many users.
	SSHKey func() (string, error)
	// Shared is set for a console of many users. Config has no credentials then.
	Shared *Shared
}

// Shared configures a console of many users, who log in with a token each, or come through a proxy that adds it.
type Shared struct {
	// Address is where it listens, as host:port.
	Address string
	// URLs are those under which browsers open it: schemes and hosts, without paths.
	URLs []*url.URL
}

// Console serves the page and the API on loopback. Listen makes one.
type Console struct {
	listener net.Listener
	origins  map[string]string // accepted values of the header Origin, by those of Host
	address  string            // URL without a token
	shared   bool
	cookie   string // name of the session cookie
	sessions *sessions
	rules    *rules
	// What the rules do not name, but the discovery of the API.
	discovered discovered
	server     *url.URL // of the API
	client     *http.Client
	forward    *httputil.ReverseProxy
	about      about
	sshKey     func() (string, error) // may be nil
	// documented is what the documentation says about reasons.
	documented []remedy
	page       *page
	host       *host // nil if the API is not that of this host
	config     *rest.Config
	// One element for each open connection with watches, and for each terminal or screen.
	watchers, terminals chan struct{}
}

// Listen binds the port. Serve serves it.
func Listen(ctx context.Context, o Options) (*Console, error) {
	rules, err := newRules()
	if err != nil {
		return nil, err
	}
	page, err := loadPage()
	if err != nil {
		return nil, err
	}
	documented, err := readRemedies()
	if err != nil {
		return nil, err
	}
	c := &Console{rules: rules, page: page, documented: documented, sessions: newSessions(time.Now), origins: map[string]string{}, shared: o.Shared != nil}
	page.isSecure = c.isSecure
	if c.shared {
		err = c.listenForAll(ctx, o.Shared)
	} else {
		err = c.listenOnLoopback(ctx, o.Port)
	}
	if err != nil {
		return nil, err
	}

	c.about, c.config = about{Cluster: o.Cluster, Version: o.Version, Kinds: rules.kinds}, o.Config
	c.sshKey = o.SSHKey
	c.watchers, c.terminals = make(chan struct{}, maxConnections), make(chan struct{}, maxTerminals)
	c.sessions.link = newLink(c.address)
	if o.Host != "" {
		c.host = &host{name: o.Host}
		_, _ = c.host.measure(time.Now()) // the beginning of the first interval; errors show when somebody asks
	}
	if err := c.connect(o.Config); err != nil {
		return nil, errors.Join(err, c.listener.Close())
	}
	return c, nil
}

func (c *Console) listenOnLoopback(ctx context.Context, port int) (err error) {
	c.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("serve the console on port %d: %w: choose another one", port, err)
	}
	port = c.listener.Addr().(*net.TCPAddr).Port
	for _, name := range []string{"127.0.0.1", "localhost"} {
		host := fmt.Sprintf("%s:%d", name, port)
		c.origins[host] = "http://" + host
	}
	c.address = fmt.Sprintf("http://127.0.0.1:%d", port)
	// Cookies are not separated by port, so two consoles of one host need different names.
	c.cookie = fmt.Sprintf("keelson-console-%d", port)
	return nil
}

func (c *Console) listenForAll(ctx context.Context, shared *Shared) (err error) {
	c.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", shared.Address)
	if err != nil {
		return fmt.Errorf("serve the console at %s: %w: choose another with --bind-address", shared.Address, err)
	}
	c.cookie = "keelson-console"
	for _, u := range shared.URLs {
		c.origins[u.Host] = u.Scheme + "://" + u.Host
	}
	c.address = c.origins[shared.URLs[0].Host]
	return nil
}

// isSecure reports whether the browser reaches a host with TLS.
func (c *Console) isSecure(host string) bool { return strings.HasPrefix(c.origins[host], "https://") }

// URL returns a URL with a new one-time token.
func (c *Console) URL() string { return c.Link().URL() }

// Link returns the link that makes such URLs, also in other processes.
func (c *Console) Link() Link { return c.sessions.link }

// Address returns the URL without a token.
func (c *Console) Address() string { return c.address }

const (
	readTimeout = 10 * time.Second // for the header of a request
	idleTimeout = 2 * time.Minute
	maxHeader   = 32 << 10
	stopTimeout = time.Second
)

// Serve serves until the context ends.
func (c *Console) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: c.handler(), ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		// Ends the watches as well.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stopped := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // the connections of the rest
		}
	})
	defer stopped()
	if err := server.Serve(c.listener); err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}

// about is what the page has to know before it asks the API.
type about struct {
	Cluster string `json:"cluster"`
	Version string `json:"version"`
	Kinds   []Kind `json:"kinds"`
	// SSHKey is the SSH key that new machines accept by default; empty if there is none.
	SSHKey string `json:"sshKey,omitempty"`
}
