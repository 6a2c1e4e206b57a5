package install

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// What docs/metrics.md shows lets traces out of the installation, with Helm and with an overlay, in the same way.
func TestTracesAreLetOut(t *testing.T) {
	t.Parallel()
	_, fromChart := rendered(t, "keelson", home, documented(t, metricsPage, "traces.yaml"))
	w := world{Shell: transcript.Shell{Env: map[string]string{"HOME": t.TempDir()}}}
	fromOverlay := parse(t, w.kustomize(t, overlayIn(t, documented(t, metricsPage, "kustomization.yaml"))))
	var egress [2][]any
	for i, objects := range [][]*unstructured.Unstructured{fromChart, fromOverlay} {
		egress[i], _, _ = unstructured.NestedSlice(find(t, objects, "NetworkPolicy").Object, "spec", "egress")
		if len(egress[i]) != 3 {
			t.Errorf("%d rules: %v", len(egress[i]), egress[i])
		}
		containers, _, _ := unstructured.NestedSlice(find(t, objects, "Deployment").Object, "spec", "template", "spec", "containers")
		if args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args"); !slices.ContainsFunc(args, func(arg string) bool {
			return strings.HasPrefix(arg, "--tracing-endpoint=http://") && strings.HasSuffix(arg, ":4318")
		}) {
			t.Errorf("no traces are sent: %v", args)
		}
	}
	if diff := cmp.Diff(egress[0], egress[1]); diff != "" {
		t.Errorf("to where the manager connects (-Helm +overlay):\n%s", diff)
	}
}

// find returns the manager's object of a kind.
func find(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == account {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, account)
	return nil
}
