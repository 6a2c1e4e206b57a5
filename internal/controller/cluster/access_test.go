package cluster

import (
	"errors"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A Cluster whose API does not run is not reachable, also if that is as requested.
func TestConnectToAClusterThatDoesNotRun(t *testing.T) {
	for reason, test := range map[string]struct {
		status metav1.ConditionStatus
		says   string
	}{
		v1alpha1.ReasonStopped:     {metav1.ConditionTrue, "spec.running is false"},
		v1alpha1.ReasonProbeFailed: {metav1.ConditionFalse, "it is not Ready (ProbeFailed): spec.running is false"},
		"":                         {"", "it is being provisioned"},
	} {
		cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "demo", UID: "demo"}}
		if reason != "" {
			cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: test.status, Reason: reason, Message: "spec.running is false"}}
		}
		c := fake.NewClientBuilder().WithScheme(harness.Scheme(t, v1alpha1.AddToScheme)).WithObjects(cluster).Build()
		_, _, err := NewLocator(c, c, "keelson-system").Connect(t.Context(), "demo")
		if !errors.Is(err, ErrNotReachable) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", reason, err)
		}
	}
}
