package controlplane

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// silentAPI is an API server that never answers. It tells when it is asked.
type silentAPI struct{ asked chan struct{} }

// RoundTrip implements http.RoundTripper.
func (s silentAPI) RoundTrip(request *http.Request) (*http.Response, error) {
	close(s.asked)
	<-request.Context().Done()
	return nil, request.Context().Err()
}

func TestDismissNodeWithAnAPIThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := silentAPI{asked: make(chan struct{})}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://api.example", Transport: api})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cp := &ControlPlane{dir: layout(t.TempDir()), state: state{RealNodes: 1}}
		ended := make(chan error, 1)
		go func() { ended <- cp.dismissNodes(ctx, client) }()
		<-api.asked
		if cp.mu.TryLock() {
			cp.mu.Unlock()
		} else {
			t.Error("the control plane is locked while the API is asked")
		}
		// The clock of the bubble moves on only while all in it wait: without a deadline they wait for ever.
		if err := <-ended; err == nil {
			t.Error("an unanswered request removed the Node")
		}
		if cp.state.RealNodes != 1 {
			t.Error("the next start would not remove the Node")
		}
	})
}
