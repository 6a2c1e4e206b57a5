package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// forwardAPI returns what brings a connection that the node's components or Pods make to the API to the machine's loopback,
// which is another one than theirs.
func forwardAPI(port int) func(net.Conn) {
	target := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port)).String()
	return func(inner net.Conn) {
		outer, err := net.Dial("tcp", target)
		if err != nil {
			_ = inner.Close() // the API is away; the client tries again
			return
		}
		join(inner, outer)
	}
}

// join copies between two connections, both ways, until both have ended.
func join(a, b net.Conn) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		pass(a, b)
	}()
	pass(b, a)
	<-done
	_, _ = a.Close(), b.Close()
}

// pass copies from one connection to another, and then closes the other for writing. Either end may close at any time; then
// both are closed, because the other direction would wait forever.
func pass(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// errLoopback is why the proxy refuses an address.
var errLoopback = errors.New("the machine's loopback is closed to its node")

// outward connects to anything but what listens on this machine's loopback: that was meant for this machine only.
var outward = &net.Dialer{
	Timeout: 30 * time.Second,
	Control: func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if ip := to.Addr().Unmap(); ip.IsLoopback() || ip.IsUnspecified() {
			return fmt.Errorf("%s: %w", address, errLoopback)
		}
		return nil
	},
}

// newProxy returns an HTTP proxy through which the container runtime pulls images. So it needs neither a route to the
// outside nor the machine's firewall to be changed, and names are resolved as everywhere on the machine.
func newProxy() *http.Server {
	plain := &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {}, // the URL of a request to a proxy is the target's already
		Transport: &http.Transport{DialContext: outward.DialContext, TLSHandshakeTimeout: 10 * time.Second},
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodConnect:
			tunnel(w, r, outward.DialContext)
		case r.URL.IsAbs():
			plain.ServeHTTP(w, r)
		default:
			http.Error(w, "this is a proxy", http.StatusBadRequest)
		}
	})
	return &http.Server{Handler: handler, ReadHeaderTimeout: 30 * time.Second}
}

// tunnel connects a client to what it asks for.
func tunnel(w http.ResponseWriter, r *http.Request, dial func(ctx context.Context, network, address string) (net.Conn, error)) {
	outer, dialErr := dial(r.Context(), "tcp", r.Host)
	inner, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		if outer != nil {
			_ = outer.Close()
		}
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if dialErr != nil {
		// Of a refusal clients show the words after the code only: there they find the reason instead of "Bad Gateway".
		_, _ = fmt.Fprintf(inner, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", http.StatusBadGateway, oneLine(dialErr.Error()))
		_ = inner.Close()
		return
	}
	if _, err := io.WriteString(inner, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		_, _ = inner.Close(), outer.Close()
		return
	}
	// What the client has sent without waiting for our answer.
	if early, err := buffered.Peek(buffered.Reader.Buffered()); err == nil {
		_, _ = outer.Write(early) // if it is gone, copying ends at once
	}
	join(inner, outer)
}

// oneLine returns a text without what would end a line.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
