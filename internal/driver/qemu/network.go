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

// redirectLimit is how often a download may be sent elsewhere.
const redirectLimit = 5

// specialNetworks are networks that are no part of the public Internet although their addresses look like it, and addresses that
// clouds answer at with secrets of a machine. RFC 6890 and what followed it.
var specialNetworks = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("192.88.99.0/24"), netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("168.63.129.16/32"), // Azure's
	netip.MustParsePrefix("2001::/23"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("3fff::/20"),
}

// publicIPv6 is what was ever given to the Internet of IPv6. All else is unassigned, of one site only, or leads to an IPv4
// address that is written in it, as ::127.0.0.1 and 64:ff9b::127.0.0.1 do. RFC 4291 and the registry of IANA.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

// isPublic reports whether an address is one of the public Internet.
func isPublic(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if ip.Is6() && !publicIPv6.Contains(ip) {
		return false
	}
	return ip.IsGlobalUnicast() && !ip.IsPrivate() &&
		!slices.ContainsFunc(specialNetworks, func(network netip.Prefix) bool { return network.Contains(ip) })
}

// addressFilter decides which addresses images are downloaded from: those of the public Internet, and of these networks. Who names
// an image in the API could else have the manager ask what only its host can reach.
type addressFilter struct{ networks []netip.Prefix }

// errAddress says that nothing is downloaded from an address.
var errAddress = errors.New("images are not downloaded from there")

func (g addressFilter) allows(ip netip.Addr) bool {
	plain := ip.Unmap().WithZone("")
	return isPublic(plain) || slices.ContainsFunc(g.networks, func(network netip.Prefix) bool { return network.Contains(plain) })
}

// control is called with the address of every connection that is about to be made, after the name was looked up: whatever
// a name led to before, and wherever an answer sends a download, counts this.
func (g addressFilter) control(_ context.Context, _, address string, _ syscall.RawConn) error {
	there, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %q is no address", errAddress, address)
	}
	if !g.allows(there.Addr()) {
		return fmt.Errorf("%w: %s is not on the public Internet, and in no network of --vm-image-networks", errAddress, there.Addr().Unmap())
	}
	return nil
}

// newClient returns a client that keeps to the guard. Through a proxy that the environment names, the proxy has the
// addresses and decides.
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
	// A few bytes must not become gigabytes on their way to the disk.
	transport.DisableCompression = true
	return &http.Client{Transport: transport, CheckRedirect: checkRedirect}
}

// lookup is the resolver of tests.
var lookup *net.Resolver

func (addressFilter) resolver() *net.Resolver { return lookup }

func checkRedirect(request *http.Request, via []*http.Request) error {
	if len(via) > redirectLimit {
		return fmt.Errorf("the server sends the download elsewhere more than %d times", redirectLimit)
	}
	if scheme := request.URL.Scheme; scheme != "http" && scheme != "https" {
		return fmt.Errorf("the server sends the download to %q: there are http and https", scheme)
	}
	return nil
}

// proxyAddresses returns the addresses, as host:port, of the proxies that the variables of the environment name.
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
			continue // the transport will say so
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
