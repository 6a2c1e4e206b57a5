package versions

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

var installed = []local.Components{
	{Version: "v1.35.4", Etcd: "v3.6.1", Program: "/k/keelson-kube-v1.35.4"},
	{Version: "v1.36.3", Default: true, Etcd: "v3.6.1", Program: "/k/keelson-kube"},
	{Version: "v1.36.9", Program: "/k/keelson-kube-v1.36.9", Problem: "it does not report its version: exit status 3"},
}

func newCluster(name, version string, engine v1alpha1.Engine) v1alpha1.Cluster {
	c := v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.ClusterSpec{Engine: engine}}
	c.Status.Version = version
	return c
}

func TestList(t *testing.T) {
	clusters := []v1alpha1.Cluster{
		newCluster("web", "v1.35.4", ""), newCluster("demo", "v1.35.4", v1alpha1.EngineLocal),
		newCluster("hosts", "v1.36.3", v1alpha1.EngineRKE), newCluster("new", "", ""),
	}
	for _, test := range []struct {
		name        string
		list        list
		table, more string
	}{
		{"with Clusters", newList(installed, clusters, nil), `VERSION   DEFAULT   ETCD     CLUSTERS   PROGRAM
v1.35.4   no        v3.6.1   demo,web   /k/keelson-kube-v1.35.4
v1.36.3   yes       v3.6.1   -          /k/keelson-kube
v1.36.9   no        -        -          /k/keelson-kube-v1.36.9
`, ""},
		{"without an API", newList(installed[1:2], nil, errors.New("no keelson is running")), `VERSION   DEFAULT   ETCD     CLUSTERS   PROGRAM
v1.36.3   yes       v3.6.1   unknown    /k/keelson-kube
`, "The Clusters are unknown: no keelson is running\n"},
	} {
		var out, more bytes.Buffer
		if err := errors.Join(test.list.print(&out), test.list.explain(&more, "/k/keelson-kube")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.table, out.String()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
		problem := ""
		if len(test.list.Versions) == 3 {
			problem = "v1.36.9 cannot be used: it does not report its version: exit status 3\n"
		}
		want := problem + test.more + "To add a version, build it in a checkout of Keelson with `make kube KUBE_VERSION=v1.35.4`, and put bin/keelson-kube-v1.35.4 into /k\n"
		if diff := cmp.Diff(want, more.String()); diff != "" {
			t.Errorf("%s (-want +got)\n%s", test.name, diff)
		}
	}
}

func TestJSON(t *testing.T) {
	got, err := json.Marshal(newList(installed[:1], nil, nil))
	want := `{"versions":[{"version":"v1.35.4","default":false,"etcd":"v3.6.1","program":"/k/keelson-kube-v1.35.4","clusters":[]}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, args := range [][]string{{"demo"}, {"-o", "wide"}} {
		_, err := harness.Execute(t, New(&target.Flags{}), args...)
		if wrong := (*usage.Error)(nil); !errors.As(err, &wrong) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
