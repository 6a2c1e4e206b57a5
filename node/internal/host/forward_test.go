package host

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestForwardAPI(t *testing.T) {
	api, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = api.Close() }()
	go func() {
		for {
			c, err := api.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				said, _ := io.ReadAll(c) // until the client has no more to say
				_, _ = c.Write(append([]byte("you said: "), said...))
			}()
		}
	}()
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		serveEach(inner, forwardAPI(api.Addr().(*net.TCPAddr).Port))
	}()
	for range 3 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		if err := c.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(c)
		if err != nil || string(answer) != "you said: hello" {
			t.Errorf("got %q, %v", answer, err)
		}
	}
	if err := inner.Close(); err != nil {
		t.Fatal(err)
	}
	<-done
}

// What listens on the machine's loopback was meant for the machine only.
func TestOutwardRefusesLoopback(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, address := range []string{"127.0.0.1:9", "127.1.2.3:9", "[::1]:9", "[::ffff:127.0.0.1]:9", "0.0.0.0:9", "localhost:9"} {
		if c, err := outward.DialContext(ctx, "tcp", address); !errors.Is(err, errLoopback) {
			if err == nil {
				_ = c.Close()
			}
			t.Errorf("%s: got %v", address, err)
		}
	}
}

func TestProxy(t *testing.T) {
	address := ownAddress(t)
	listener, err := net.Listen("tcp4", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	registry := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "path "+r.URL.Path)
	}))
	registry.Listener = listener
	registry.StartTLS()
	defer registry.Close()
	plain := httptest.NewUnstartedServer(registry.Config.Handler)
	if plain.Listener, err = net.Listen("tcp4", net.JoinHostPort(address, "0")); err != nil {
		t.Fatal(err)
	}
	plain.Start()
	defer plain.Close()
	inner, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	proxy := newProxy()
	go func() { _ = proxy.Serve(inner) }()
	defer func() { _ = proxy.Close() }()

	client := registry.Client()
	client.Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com" // what the certificate is good for
	client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: inner.Addr().String()})
	for _, base := range []string{registry.URL, plain.URL} {
		response, err := client.Get(base + "/v2/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || string(body) != "path /v2/" {
			t.Errorf("%s: got %q, %v", base, body, err)
		}
	}
	// What cannot be reached: the client learns why.
	response, err := client.Get("https://127.0.0.1:1/v2/")
	if err == nil {
		_ = response.Body.Close()
		t.Fatal("the machine's loopback is reached")
	}
	if want := errLoopback.Error(); !strings.Contains(err.Error(), want) {
		t.Errorf("the client learns %v, want %s", err, want)
	}
}

func TestOneLine(t *testing.T) {
	if got, want := oneLine("no\r\nsuch\thost"), "no  such host"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// ownAddress returns an address of this machine that is not on loopback: the proxy refuses those.
func ownAddress(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.To4() != nil && !network.IP.IsLoopback() {
			return network.IP.String()
		}
	}
	t.Skip("this machine has no address but loopback")
	return ""
}

// A client that is gone takes the connection to the server with it, also while that has nothing to say.
func TestJoinEndsWithEitherEnd(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	pair := func() (net.Conn, net.Conn) {
		t.Helper()
		ours, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return ours, theirs
	}
	client, inner := pair()
	outer, server := pair()
	defer func() { _ = server.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		join(inner, outer)
	}()
	reset(client)
	<-done
	if _, err := server.Read(make([]byte, 1)); err == nil {
		t.Error("the server has been told something")
	}
}
