package manager

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/manager/serving"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// grip is a way to hold a connection of the webhook for as long as possible.
type grip struct {
	hold func(net.Conn)
	// cheap says that the server computes nothing for it, so that many can do it: to keep the processors busy is not the point.
	cheap bool
}

func grips() []grip {
	// until writes, and then waits for the end of the connection.
	until := func(w io.ReadWriter, text string) {
		if _, err := io.WriteString(w, text); err == nil {
			_, _ = io.Copy(io.Discard, w) // it ends when the server has had enough
		}
	}
	// trickle writes a byte at a time.
	trickle := func(w io.Writer, text string) {
		for i := range len(text) {
			if _, err := io.WriteString(w, text[i:i+1]); err != nil {
				return
			}
			<-time.After(100 * time.Millisecond)
		}
	}
	greeted := func(c net.Conn) *tls.Conn { return tls.Client(c, &tls.Config{InsecureSkipVerify: true}) }
	question := "POST " + admission.Path("crontabs.stable.example.com") + " HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\n"
	return []grip{
		// Nothing, half a greeting, a slow one.
		{func(c net.Conn) { until(c, "") }, true},
		{func(c net.Conn) { until(c, "\x16\x03\x01") }, true},
		{func(c net.Conn) { trickle(c, "\x16\x03\x01\x02\x00"+strings.Repeat("x", 512)) }, true},
		// No header, a slow one.
		{func(c net.Conn) { until(greeted(c), "") }, false},
		{func(c net.Conn) { trickle(greeted(c), question+strings.Repeat("X-A: b\r\n", 100)) }, false},
		// No body, a slow one.
		{func(c net.Conn) { until(greeted(c), question+"Content-Length: 1000\r\n\r\n") }, false},
		{func(c net.Conn) {
			trickle(greeted(c), question+"Content-Length: 1000\r\n\r\n"+strings.Repeat(" ", 1000))
		}, false},
		// Idle after a question, and questions whose answers are not read.
		{func(c net.Conn) { until(greeted(c), question+"Content-Length: 2\r\n\r\n{}") }, false},
		{func(c net.Conn) { trickle(greeted(c), strings.Repeat(question+"Content-Length: 2\r\n\r\n{}", 10)) }, false},
	}
}

// Whoever holds all of the webhook that can be had, in every way and from many addresses, keeps no API server from an answer.
func TestWebhookAnswersWhileItIsHeld(t *testing.T) {
	c, namespace := newWebhookClient(t), env.Namespace(t)
	_, m := startAsked(t, c, namespace)
	ctx, cancel := context.WithCancel(t.Context())
	var holding sync.WaitGroup
	defer holding.Wait()
	defer cancel()
	// It asks as an API server does that has no connection yet: one that has one goes on with it. The webhook closes a connection, or refuses
	// a request, that has waited for serving.QueueTimeout. An answer may take longer on a busy machine.
	api := &http.Client{Timeout: harness.WaitTimeout, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func(what string) {
		t.Helper()
		for range 20 {
			began := time.Now()
			response, err := api.Post("https://"+m.WebhookAddress()+admission.Path("crontabs.stable.example.com"), "application/json", strings.NewReader("{}"))
			if err != nil {
				t.Fatalf("%s: no answer within %v: %v", what, time.Since(began), err)
			}
			if response.Body.Close() != nil || response.StatusCode != http.StatusOK {
				t.Fatalf("%s: the answer is %s", what, response.Status)
			}
		}
		err := c.Create(t.Context(), newCronTab(namespace, "wrong", backwards), client.DryRunAll)
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: the API server had no answer: %v", what, err)
		}
	}
	// From few addresses each takes more than its share, and from many all together more than there is.
	const few, many = 2, 10
	for n := range many {
		from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+n))} // the API server has 127.0.0.1
		for _, h := range grips() {
			count, pause := 1, time.Second
			if h.cheap {
				count, pause = serving.MaxConnections/20, time.Millisecond
			}
			for range count {
				holding.Go(func() {
					for ctx.Err() == nil {
						holdOne(ctx, from, m.WebhookAddress(), h.hold)
						select {
						case <-time.After(pause):
						case <-ctx.Done():
						}
					}
				})
			}
		}
		if n+1 == few || n+1 == many {
			ask(fmt.Sprintf("held from %d addresses", n+1))
		}
	}
}

// holdOne holds one connection from an address.
func holdOne(ctx context.Context, from net.Addr, to string, hold func(net.Conn)) {
	dialer := &net.Dialer{LocalAddr: from}
	connection, err := dialer.DialContext(ctx, "tcp", to)
	if err != nil {
		return // it has no room for more
	}
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	hold(connection)
	_ = connection.Close() // mostly the server has done so
}
