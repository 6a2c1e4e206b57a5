package controlplane

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// summaryOf is an answer of a kubelet. The container late was not measured yet.
const summaryOf = `{
  "node": {"nodeName": "one", "systemContainers": [{"name": "pods",
    "cpu": {"time": "2026-11-25T14:00:00Z", "usageNanoCores": 250000000}, "memory": {"workingSetBytes": 2097152}}]},
  "pods": [{"podRef": {"name": "web", "namespace": "default", "uid": "u1"}, "containers": [
    {"name": "side", "cpu": {"time": "2026-11-25T14:00:02Z", "usageNanoCores": 50000000}, "memory": {"workingSetBytes": 1048576}},
    {"name": "app", "cpu": {"time": "2026-11-25T14:00:01Z", "usageNanoCores": 200000000}, "memory": {"workingSetBytes": 1048576}},
    {"name": "late", "cpu": {"time": "2026-11-25T14:00:01Z"}, "memory": {"workingSetBytes": 1}}
  ]}]
}`

// kubeletAPI is an API server with two nodes, of which the second one does not answer, and three Pods.
func kubeletAPI(t *testing.T) kubernetes.Interface {
	t.Helper()
	pod := func(name, uid, node string) corev1.Pod {
		return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(uid)}, Spec: corev1.PodSpec{NodeName: node}}
	}
	mux := http.NewServeMux()
	reply := func(path string, object any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if r.URL.Query().Get("labelSelector") == "wrong(" {
				w.WriteHeader(http.StatusBadRequest)
				object = metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonBadRequest, Code: 400}
			}
			_ = json.NewEncoder(w).Encode(object)
		})
	}
	reply("/api/v1/nodes", corev1.NodeList{Items: []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "one"}}, {ObjectMeta: metav1.ObjectMeta{Name: "off"}},
	}})
	pods := corev1.PodList{Items: []corev1.Pod{pod("web", "u1", "one"), pod("lost", "u2", "off"), pod("pending", "u3", "")}}
	reply("/api/v1/pods", pods)
	reply("/api/v1/namespaces/default/pods", corev1.PodList{Items: pods.Items[:1]})
	reply("/api/v1/namespaces/other/pods", corev1.PodList{})
	mux.HandleFunc("GET /api/v1/nodes/one/proxy/stats/summary", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, summaryOf) })
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestMetricsAPI(t *testing.T) {
	handler := metricsAnswers(metricsSource{kubeletAPI(t)})
	type measured struct {
		Kind, Message string
		Items         []struct {
			Metadata   struct{ Name string }
			Usage      map[string]string
			Timestamp  string
			Containers []struct {
				Name  string
				Usage map[string]string
			}
		}
		Usage map[string]string
	}
	get := func(path string, code int) (m measured) {
		t.Helper()
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		if recorder.Code != code {
			t.Fatalf("%s: %d %s", path, recorder.Code, recorder.Body)
		}
		if err := json.Unmarshal(recorder.Body.Bytes(), &m); err != nil {
			t.Fatalf("%s: %v: %s", path, err, recorder.Body)
		}
		return m
	}
	node := map[string]string{"cpu": "250m", "memory": "2Mi"}
	nodes := get(metricsPath+"/nodes", 200)
	if nodes.Kind != "NodeMetricsList" || len(nodes.Items) != 1 || nodes.Items[0].Metadata.Name != "one" {
		t.Errorf("nodes: %+v", nodes)
	} else if diff := cmp.Diff(node, nodes.Items[0].Usage); diff != "" {
		t.Errorf("node (-want +got)\n%s", diff)
	}
	for _, path := range []string{"/pods", "/namespaces/default/pods"} {
		pods := get(metricsPath+path, 200)
		if pods.Kind != "PodMetricsList" || len(pods.Items) != 1 || len(pods.Items[0].Containers) != 2 {
			t.Fatalf("%s: %+v", path, pods)
		}
		first := pods.Items[0].Containers[0]
		if first.Name != "app" || first.Usage["cpu"] != "200m" || first.Usage["memory"] != "1Mi" || pods.Items[0].Timestamp != "2026-11-25T14:00:01Z" {
			t.Errorf("%s: %+v", path, pods)
		}
	}
	if one := get(metricsPath+"/namespaces/default/pods/web", 200); one.Kind != "PodMetrics" {
		t.Errorf("one Pod: %+v", one)
	}
	if gone := get(metricsPath+"/namespaces/other/pods/web", 404); gone.Kind != "Status" || gone.Message != `pods.metrics.k8s.io "web" not found` {
		t.Errorf("no Pod: %+v", gone)
	}
	if wrong := get(metricsPath+"/pods?labelSelector=wrong(", 400); wrong.Kind != "Status" {
		t.Errorf("a wrong selector: %+v", wrong)
	}
	if list := get(metricsPath, 200); list.Kind != "APIResourceList" {
		t.Errorf("discovery: %+v", list)
	}
}
