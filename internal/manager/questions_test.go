package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		var active, answered atomic.Int32
		handler := bounded(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			active.Add(1)
			<-answer
			active.Add(-1)
			answered.Add(1)
		}))
		ask := func(ctx context.Context) {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody))
		}
		var asking sync.WaitGroup
		for range 3 * questionsAtOnce {
			asking.Go(func() { ask(t.Context()) })
		}
		synctest.Wait()
		if n := active.Load(); n != questionsAtOnce {
			t.Errorf("%d are worked on at a time, want %d", n, questionsAtOnce)
		}
		short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		ask(short) // whoever gives up does not wait
		close(answer)
		asking.Wait()
		if n := answered.Load(); n != 3*questionsAtOnce {
			t.Errorf("%d were answered, want %d", n, 3*questionsAtOnce)
		}
	})
}

func TestQuestionsThatAreTooLarge(t *testing.T) {
	for _, test := range []struct {
		size int
		want bool
	}{{questionSize, true}, {questionSize + 1, false}} {
		var read int
		var err error
		bounded(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var raw []byte
			raw, err = io.ReadAll(r.Body)
			read = len(raw)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", test.size))))
		if got := err == nil; got != test.want || read != questionSize {
			t.Errorf("of %d bytes %d were read: %v", test.size, read, err)
		}
	}
}

// Whoever connects and says nothing takes a place that others wait for, and no more.
func TestWebhookHasFewConnections(t *testing.T) {
	_, m := startAsked(t, newWebhookClient(t), env.Namespace(t))
	greets := func(patience time.Duration) error {
		dialer := &net.Dialer{Timeout: patience}
		connection, err := tls.DialWithDialer(dialer, "tcp", m.WebhookAddress(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err
		}
		return connection.Close()
	}
	if err := greets(time.Second); err != nil {
		t.Fatal(err)
	}
	var silent []net.Conn
	for range connectionsAtOnce {
		connection, err := net.Dial("tcp", m.WebhookAddress())
		if err != nil {
			t.Fatal(err)
		}
		silent = append(silent, connection)
	}
	var timeout net.Error
	if err := greets(200 * time.Millisecond); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("beside %d connections there is another: %v", connectionsAtOnce, err)
	}
	for _, connection := range silent {
		if err := connection.Close(); err != nil {
			t.Error(err)
		}
	}
	harness.Eventually(t, "there is room again", func() bool { return greets(time.Second) == nil })
}
