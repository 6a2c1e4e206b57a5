package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// redirectLimit is the maximum number of redirects of a request.
const redirectLimit = 5

// ErrAddress means that the filter does not allow an address.
var ErrAddress = errors.New("the address is not allowed")

// NewClient returns a client for URLs of users that applies the filter to the address of each connection: otherwise users
// could have this process request what only its host can reach. option is the option with the networks, for errors; timeout
// limits the time to connect, and then the time until a server responds. A proxy from the environment resolves names and decides
// itself.
func (f Filter) NewClient(option string, timeout time.Duration) *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	guarded := &net.Dialer{Timeout: timeout, ControlContext: f.control(option), Resolver: lookup}
	direct := &net.Dialer{Timeout: timeout}
	proxies := proxyAddresses(os.Getenv)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(proxies, address) {
			return direct.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
	transport.ResponseHeaderTimeout = timeout
	// A few bytes must not expand to gigabytes on the disk.
	transport.DisableCompression = true
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}
}

// lookup is the resolver; tests replace it.
var lookup *net.Resolver

// control checks the address of each connection before it is made, after name resolution: so it
// covers redirects and names that change their address.
func (f Filter) control(option string) func(context.Context, string, string, syscall.RawConn) error {
	return func(_ context.Context, _, address string, _ syscall.RawConn) error {
		there, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %q is not an address", ErrAddress, address)
		}
		if !f.Allows(there.Addr()) {
			return fmt.Errorf("%w: %s is neither on the public Internet nor in %s", ErrAddress, there.Addr().Unmap(), option)
		}
		return nil
	}
}

func checkRedirect(request *http.Request, via []*http.Request) error {
	if len(via) > redirectLimit {
		return fmt.Errorf("more than %d redirects", redirectLimit)
	}
	if scheme := request.URL.Scheme; scheme != "http" && scheme != "https" {
		return fmt.Errorf("redirect to scheme %q: only http and https are supported", scheme)
	}
	return nil
}

// proxyAddresses returns the addresses of the proxies in the environment, as host:port.
func proxyAddresses(variable func(string) string) []string {
	var all []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY"} {
		text := variable(name)
		if text == "" {
			text = variable(strings.ToLower(name))
		}
		if text == "" {
			continue
		}
		if !strings.Contains(text, "://") {
			text = "http://" + text
		}
		proxy, err := url.Parse(text)
		if err != nil || proxy.Host == "" {
			continue // the transport reports it
		}
		port := proxy.Port()
		if port == "" {
			port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[proxy.Scheme]
		}
		if port == "" {
			port = "80"
		}
		all = append(all, net.JoinHostPort(proxy.Hostname(), port))
	}
	return all
}
