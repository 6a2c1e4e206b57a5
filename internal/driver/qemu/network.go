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
)

// redirectLimit is the maximum number of redirects of a download.
const redirectLimit = 5

// specialNetworks are not part of the public Internet although their addresses look like it, or
// serve a machine's secrets in a cloud. RFC 6890 and its successors.
var specialNetworks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"),
}

// publicIPv6 is all allocated space of the IPv6 Internet. The rest is unassigned, site-local, or
// embeds an IPv4 address, as ::127.0.0.1 and 64:ff9b::127.0.0.1. RFC 4291 and the IANA registry.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

// isPublic reports whether an address belongs to the public Internet.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() && !publicIPv6.Contains(ip) {
		return false
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() &&
		!slices.ContainsFunc(specialNetworks, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// addressFilter allows downloads from the public Internet and from these networks. Otherwise users
// could have the manager request what only its host can reach.
type addressFilter struct{ networks []netip.Prefix }

// errAddress means that downloads from an address are not allowed.
var errAddress = errors.New("images are not downloaded from there")

func (g addressFilter) allows(ip netip.Addr) bool {
	plain := ip.Unmap().WithZone("")
	return isPublic(plain) || slices.ContainsFunc(g.networks, func(network netip.Prefix) bool { return network.Contains(plain) })
}

// control checks the address of each connection before it is made, after name resolution: so it
// covers redirects and names that change their address.
func (g addressFilter) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	there, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is not an address", errAddress, address)
	}
	if !g.allows(there.Addr()) {
		return fmt.Errorf("%w: %s is neither on the public Internet nor in --vm-image-networks", errAddress, there.Addr().Unmap())
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
