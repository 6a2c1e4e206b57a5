package egress

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"
)

// get requests a URL, and returns the error.
func get(t *testing.T, client *http.Client, url string) error {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err == nil {
		err = response.Body.Close()
	}
	return err
}

// elsewhere is a server on a loopback address that is not allowed. It counts its requests.
func elsewhere(t *testing.T) (address string, visits *atomic.Int32) {
	t.Helper()
	visits = &atomic.Int32{}
	listener, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		visits.Add(1)
		fmt.Fprint(w, "secret")
	})}}
	server.Start()
	t.Cleanup(server.Close)
	return listener.Addr().String(), visits
}

func TestClientReachesThePublicInternetOnly(t *testing.T) {
	address, visits := elsewhere(t)
	redirect := httptest.NewServer(http.RedirectHandler("http://"+address+"/latest/meta-data", http.StatusFound))
	defer redirect.Close()
	loop := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path+"x", http.StatusFound) }))
	defer loop.Close()
	file := httptest.NewServer(http.RedirectHandler("file:///etc/passwd", http.StatusFound))
	defer file.Close()
	_, port, _ := net.SplitHostPort(address)
	here := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	tests := []struct {
		name, url, want string
		allowed         []netip.Prefix
	}{
		{"loopback", "http://" + address, "not allowed", nil},
		{"loopback by name", "http://localhost:" + port, "not allowed", nil},
		{"loopback as one number", "http://2130706434:" + port, "", nil},
		{"loopback as IPv6", "http://[::ffff:127.0.0.2]:" + port, "not allowed", nil},
		{"metadata of a cloud", "http://169.254.169.254/latest/meta-data", "169.254.169.254 is neither on the public Internet", nil},
		{"the private network", "https://10.0.0.1/x", "10.0.0.1 is neither on the public Internet", nil},
		{"redirected to loopback", redirect.URL, "127.0.0.2 is neither on the public Internet", here},
		{"redirect loop", loop.URL, "more than 5 redirects", here},
		{"redirected to a file", file.URL, "file", here},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := get(t, Filter{Networks: tt.allowed}.NewClient("an.option", time.Minute), tt.url)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("the forbidden server got %d requests", n)
	}
}

// A name that first resolves to an allowed address and then to another one is checked at each
// connection.
func TestDNSRebinding(t *testing.T) {
	address, visits := elsewhere(t)
	_, port, _ := net.SplitHostPort(address)
	var asked atomic.Int32
	answers := func() netip.Addr {
		if asked.Add(1) == 1 {
			return netip.MustParseAddr("127.0.0.3") // allowed, but nothing listens there
		}
		return netip.MustParseAddr("127.0.0.2")
	}
	lookup = newResolver(t, answers)
	defer func() { lookup = nil }()
	client := Filter{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.3/32")}}.NewClient("an.option", time.Minute)
	for _, want := range []string{"connection refused", "127.0.0.2 is neither on the public Internet nor in an.option"} {
		err := get(t, client, "http://rebind.example:"+port)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if n := visits.Load(); n > 0 {
		t.Errorf("the forbidden server got %d requests", n)
	}
}

// newResolver returns a resolver with a name server of this test, which resolves every name to an
// IPv4 address.
func newResolver(t *testing.T, answer func() netip.Addr) *net.Resolver {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() }) // ends the loop
	go func() {
		buffer := make([]byte, 512)
		for {
			n, from, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			var message dnsmessage.Message
			if message.Unpack(buffer[:n]) != nil || len(message.Questions) != 1 {
				continue
			}
			message.Response = true
			message.Additionals = nil
			if question := message.Questions[0]; question.Type == dnsmessage.TypeA {
				message.Answers = []dnsmessage.Resource{{
					Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class},
					Body:   &dnsmessage.AResource{A: answer().As4()},
				}}
			}
			if packed, err := message.Pack(); err == nil {
				_, _ = server.WriteTo(packed, from) // the client may have gone
			}
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server.LocalAddr().String())
	}}
}

func TestProxyAddresses(t *testing.T) {
	environment := map[string]string{"http_proxy": "http://user:password@proxy.example:3128", "HTTPS_PROXY": "https://secure.example"}
	got := proxyAddresses(func(name string) string { return environment[name] })
	if diff := cmp.Diff([]string{"proxy.example:3128", "secure.example:443"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
