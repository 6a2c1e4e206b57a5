package qemu

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

	"github.com/keelson-dev/keelson/internal/egress"
)

// redirectLimit is the maximum number of redirects of a download.
const redirectLimit = 5

// addressFilter allows downloads from the public Internet and from these networks. Otherwise users
// could have the manager request what only its host can reach.
type addressFilter struct{ networks []netip.Prefix }

// errAddress means that downloads from an address are not allowed.
var errAddress = errors.New("images are not downloaded from there")

func (g addressFilter) allows(ip netip.Addr) bool {
	return egress.Filter{Networks: g.networks}.Allows(ip)
}

// control checks the address of each connection before it is made, after name resolution: so it
// covers redirects and names that change their address.
func (g addressFilter) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	there, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is not an address", errAddress, address)
	}
	if !g.allows(there.Addr()) {
		return fmt.Errorf("%w: %s is neither on the public Internet nor in virtualMachines.imageNetworks", errAddress, there.Addr().Unmap())
	}
	return nil
}

// newClient returns a client that applies the filter. A proxy from the environment resolves names
// and decides itself.
func (g addressFilter) newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	guarded := &net.Dialer{Timeout: stallTimeout, ControlContext: g.control, Resolver: g.resolver()}
	direct := &net.Dialer{Timeout: stallTimeout}
	proxies := proxyAddresses(os.Getenv)
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		if slices.Contains(proxies, address) {
			return direct.DialContext(ctx, network, address)
		}
		return guarded.DialContext(ctx, network, address)
	}
	transport.ResponseHeaderTimeout = stallTimeout
	// A few bytes must not expand to gigabytes on the disk.
	transport.DisableCompression = true
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}
}

// lookup is the resolver; tests replace it.
var lookup *net.Resolver

func (addressFilter) resolver() *net.Resolver { return lookup }

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
