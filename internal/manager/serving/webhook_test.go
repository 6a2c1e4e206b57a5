package serving

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuestionsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		var active, answered atomic.Int32
		handler := limitRequests(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			active.Add(1)
			<-answer
			active.Add(-1)
			answered.Add(1)
		}))
		ask := func(ctx context.Context, from string) int {
			request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", http.NoBody)
			request.RemoteAddr = from
			recorder := httptest.NewRecorder()
			handler.ServeHTTP(recorder, request)
			return recorder.Code
		}
		var asking sync.WaitGroup
		for i, from := range []string{"10.0.0.1:1", "10.0.0.2:1"} {
			for range 3 * requestsAtOnce / 2 {
				asking.Go(func() { ask(t.Context(), from) })
			}
			synctest.Wait()
			if n, want := int(active.Load()), (i+1)*requestsAtOnce/2; n != want {
				t.Errorf("of %d addresses %d are worked on at a time, want %d", i+1, n, want)
			}
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		ask(short, "10.0.0.3:1") // whoever gives up does not wait
		close(answer)
		asking.Wait()
		if n := answered.Load(); n != 3*requestsAtOnce {
			t.Errorf("%d were answered, want %d", n, 3*requestsAtOnce)
		}
	})
}

func TestQuestionsThatAreTooLarge(t *testing.T) {
	for _, test := range []struct {
		size int
		want bool
	}{{requestSize, true}, {requestSize + 1, false}} {
		var read int
		var err error
		limitRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var raw []byte
			raw, err = io.ReadAll(r.Body)
			read = len(raw)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", strings.NewReader(strings.Repeat("x", test.size))))
		if got := err == nil; got != test.want || read != requestSize {
			t.Errorf("of %d bytes %d were read: %v", test.size, read, err)
		}
	}
}

func TestQuestionsDoNotWaitForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		handler := limitRequests(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
		for range requestsAtOnce {
			go handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody))
		}
		synctest.Wait()
		began, recorder := time.Now(), httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", http.NoBody))
		if took := time.Since(began); took != QueueTimeout || recorder.Code != http.StatusServiceUnavailable {
			t.Errorf("after %v the answer is %d", took, recorder.Code)
		}
	})
}
