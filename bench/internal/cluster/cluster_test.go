package cluster

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/bench/internal/measure"
)

func TestServed(t *testing.T) {
	metrics, err := measure.ParseMetrics(strings.NewReader(`# TYPE apiserver_request_total counter
apiserver_request_total{code="200",resource="foos",subresource="status",verb="PUT",version="v1"} 4
apiserver_request_total{code="200",resource="foos",subresource="status",verb="PUT",version="v2"} 1
apiserver_request_total{code="409",resource="foos",subresource="status",verb="PUT",version="v1"} 2
apiserver_request_total{code="201",resource="foos",subresource="",verb="POST",version="v1"} 3
apiserver_request_total{code="0",resource="events",subresource="",verb="WATCH",version="v1"} 5
apiserver_request_total{code="201",resource="pods",subresource="",verb="POST",version="v1"} 7
apiserver_request_total{code="200",resource="",subresource="/readyz",verb="GET",version=""} 9
`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]float64{"PUT foos/status": 5, "PUT foos/status (409)": 2, "POST foos": 3, "WATCH events": 5}
	if diff := cmp.Diff(want, served(metrics, []string{"foos", "events"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
