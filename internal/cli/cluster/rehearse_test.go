package cluster

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/rehearsal"
)

func TestNewFork(t *testing.T) {
	source := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "u"}}
	source.Spec = v1alpha1.ClusterSpec{
		Version: "v1.35.4", DeletionProtection: true, Nodes: &v1alpha1.ClusterNodes{Real: ptr.To[int32](2)}, Users: []v1alpha1.ClusterUser{{Name: "alice"}},
		APIServer: &v1alpha1.APIServer{Address: "192.0.2.7", Port: 16443, ExtraArgs: map[string]string{"runtime-config": "a/v1=true"}},
	}
	fork, snapshot := newFork(source, "v1.36.3", "x", 10*time.Minute)
	labels := map[string]string{v1alpha1.LabelRehearsalOf: "u"}
	wantFork := &v1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "demo-rehearsal-x", Labels: labels},
		Spec: v1alpha1.ClusterSpec{
			Engine: v1alpha1.EngineLocal, Version: "v1.36.3", From: &v1alpha1.ClusterSource{Snapshot: "demo-rehearsal-x"},
			Nodes: &v1alpha1.ClusterNodes{Simulated: ptr.To[int32](0)}, ExpiresAfter: &metav1.Duration{Duration: 14 * time.Minute},
			APIServer: &v1alpha1.APIServer{ExtraArgs: map[string]string{"runtime-config": "a/v1=true"}},
		},
	}
	if diff := cmp.Diff(wantFork, fork); diff != "" {
		t.Errorf("the cluster (-want +got)\n%s", diff)
	}
	wantSnapshot := &v1alpha1.ClusterSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "demo-rehearsal-x", Labels: labels}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: "demo"}}
	if diff := cmp.Diff(wantSnapshot, snapshot); diff != "" {
		t.Errorf("the snapshot (-want +got)\n%s", diff)
	}
	source.Name = strings.Repeat("a", 39) + "-" + strings.Repeat("b", 20)
	if fork, _ := newFork(source, "", "x", time.Minute); fork.Name != strings.Repeat("a", 39)+"-rehearsal-x" || fork.Spec.Version != "" {
		t.Errorf("of a long name: %s, version %q", fork.Name, fork.Spec.Version)
	}
}

func TestClustersThatCannotBeRehearsed(t *testing.T) {
	ready := v1alpha1.ClusterStatus{Conditions: conditions(1, "Ready")}
	for _, test := range []struct {
		name    string
		cluster v1alpha1.Cluster
		want    string
	}{
		{"ready", v1alpha1.Cluster{Status: ready}, ""},
		{"in Pods", v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineHosted}, Status: ready}, ""},
		{"of rke", v1alpha1.Cluster{Spec: v1alpha1.ClusterSpec{ConfigPath: "/etc/cluster.yml"}, Status: ready}, "has the engine rke"},
		{"stopped", v1alpha1.Cluster{Status: v1alpha1.ClusterStatus{Phase: v1alpha1.PhaseStopped}}, "is not ready"},
	} {
		if err := checkSource(&test.cluster); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestJudgeFork(t *testing.T) {
	for _, test := range []struct {
		reason  string
		status  metav1.ConditionStatus
		refused bool
		fails   bool
	}{
		{v1alpha1.ReasonApplied, metav1.ConditionTrue, false, false},
		{v1alpha1.ReasonSnapshotNotAvailable, metav1.ConditionFalse, false, false}, // it is being taken
		{v1alpha1.ReasonProvisioningFailed, metav1.ConditionFalse, true, false},
		{v1alpha1.ReasonVersionNotAvailable, metav1.ConditionFalse, false, true},
	} {
		fork := &v1alpha1.Cluster{}
		fork.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionProvisioned, Status: test.status, Reason: test.reason, Message: "exit code 1:\n  unknown flag"}}
		refused, err := judgeFork(fork)
		if (err != nil) != test.fails || (refused != nil) != test.refused || refused != nil && refused.What != "exit code 1: unknown flag" {
			t.Errorf("%s: %v, %v", test.reason, refused, err)
		}
	}
}

func TestCause(t *testing.T) {
	failed := errors.New("failed")
	if err := cause(t.Context(), failed); !errors.Is(err, failed) {
		t.Errorf("while it runs: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := cause(ctx, failed); err.Error() != "the rehearsal was interrupted" {
		t.Errorf("after Ctrl-C: %v", err)
	}
	late, stop := context.WithCancelCause(t.Context())
	stop(errors.New("not done within 1m"))
	if err := cause(late, failed); err.Error() != "not done within 1m; last: failed" {
		t.Errorf("after the timeout: %v", err)
	}
}

func TestPrintReport(t *testing.T) {
	r := &report{Cluster: "demo", From: "v1.35.4", To: "v1.36.3", Resources: 60, Objects: 312, Findings: []rehearsal.Finding{
		{Result: rehearsal.Refused, Kind: "Workload scheduling.k8s.io/v1alpha1", Count: 2, What: "not served", Remedy: "Delete"},
		{Result: rehearsal.Warning, Kind: "Service v1", Count: 4, Objects: []string{"a/a", "a/b", "a/c", "a/d"}, What: "deprecated", Remedy: "Change"},
	}}
	for format, want := range map[string]string{
		"text": `RESULT    KIND                                  OBJECTS                    WHAT         REMEDY
Refused   Workload scheduling.k8s.io/v1alpha1   2                          not served   Delete
Warning   Service v1                            a/a, a/b, a/c and 1 more   deprecated   Change
demo from v1.35.4 to v1.36.3: 312 objects of 60 resources checked; refused: 1, warnings: 1, unchecked: 0
`,
		"json": `{
  "cluster": "demo",
  "from": "v1.35.4",
  "to": "v1.36.3",
  "resources": 60,
  "objects": 312,
  "findings": [
    {
      "result": "Refused",
      "kind": "Workload scheduling.k8s.io/v1alpha1",
      "count": 2,
      "what": "not served",
      "remedy": "Delete"
    },
    {
      "result": "Warning",
      "kind": "Service v1",
      "objects": [
        "a/a",
        "a/b",
        "a/c",
        "a/d"
      ],
      "count": 4,
      "what": "deprecated",
      "remedy": "Change"
    }
  ]
}
`,
	} {
		var out bytes.Buffer
		err := r.print(&out, format)
		if diff := cmp.Diff(want, out.String()); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got)\n%s", format, err, diff)
		}
	}
}
