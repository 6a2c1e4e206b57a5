package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

// capacityAPI has two nodes and Pods on two pages. It serves metrics of one node if it is asked to.
func capacityAPI(t *testing.T, metrics bool) *Console {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		pod := func(node, cpu string) string {
			return fmt.Sprintf(`{"spec":{"nodeName":%q,"containers":[{"resources":{"requests":{"cpu":%q,"memory":"1Gi"}}}]}}`, node, cpu)
		}
		switch {
		case r.URL.Path == "/api/v1/nodes":
			_, _ = fmt.Fprint(w, `{"items":[{"metadata":{"name":"a"},"status":{"allocatable":{"cpu":"2","memory":"4Gi"},"conditions":[{"type":"Ready","status":"True"}]}},
				{"metadata":{"name":"b","labels":{"keelson.dev/simulated":"true"}},"status":{"allocatable":{"cpu":"32","memory":"256Gi"}}}]}`)
		case r.URL.Path == "/api/v1/pods" && !strings.Contains(r.URL.Query().Get("fieldSelector"), "status.phase!=Succeeded"):
			w.WriteHeader(http.StatusBadRequest)
		case r.URL.Path == "/api/v1/pods" && r.URL.Query().Get("continue") == "":
			_, _ = fmt.Fprintf(w, `{"metadata":{"continue":"next"},"items":[%s,%s]}`, pod("a", "500m"), pod("b", "4"))
		case r.URL.Path == "/api/v1/pods":
			_, _ = fmt.Fprintf(w, `{"items":[%s,%s]}`, pod("a", "250m"), pod("gone", "1"))
		case metrics && r.URL.Path == "/apis/metrics.k8s.io/v1beta1/nodes":
			_, _ = fmt.Fprint(w, `{"items":[{"metadata":{"name":"a"},"usage":{"cpu":"100m","memory":"1Gi"}}]}`)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	t.Cleanup(server.Close)
	return consoleOf(t, server.URL)
}

// consoleOf returns a console of an API without authentication.
func consoleOf(t *testing.T, api string) *Console {
	t.Helper()
	c := &Console{}
	if err := c.connect(&rest.Config{Host: api}); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCapacity(t *testing.T) {
	const gib = 1 << 30
	want := []nodeCapacity{
		{Name: "a", Ready: true, Allocatable: amounts{2, 4 * gib}, Requested: amounts{0.75, 2 * gib}, Pods: 2},
		{Name: "b", Simulated: true, Allocatable: amounts{32, 256 * gib}, Requested: amounts{4, gib}, Pods: 1},
	}
	for _, metrics := range []bool{false, true} {
		recorder := httptest.NewRecorder()
		capacityAPI(t, metrics).capacity(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/capacity", nil))
		var got struct{ Nodes []nodeCapacity }
		if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
			t.Fatalf("%v: %s", err, recorder.Body)
		}
		if metrics {
			want[0].Used = &amounts{0.1, gib}
		}
		if diff := cmp.Diff(want, got.Nodes); diff != "" {
			t.Errorf("with metrics %v (-want +got):\n%s", metrics, diff)
		}
	}
}
