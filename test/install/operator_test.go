package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/install"
)

// operatorKinds are the kinds of the Prometheus operator in the chart and config/monitoring.
var operatorKinds = []string{"servicemonitors", "prometheusrules"}

// operator has the CRDs of the Prometheus operator.
var operator struct {
	sync.Mutex
	definitions []*apiextensionsv1.CustomResourceDefinition
}

// operatorDefinitions returns CRDs of the Prometheus operator. They are generated once from its
// types, as upstream does.
func operatorDefinitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	operator.Lock()
	defer operator.Unlock()
	if len(operator.definitions) > 0 {
		return operator.definitions
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), tool(t, "go.tools.mod", "controller-gen"), "crd:maxDescLen=0",
		"paths=github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1", "output:crd:dir="+dir)
	cmd.Dir = "operator"
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generate the CRDs of the Prometheus operator: %v\n%s", err, out)
	}
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, kind := range operatorKinds {
		raw, err := os.ReadFile(filepath.Join(dir, "monitoring.coreos.com_"+kind+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, definition); err != nil {
			t.Fatalf("read the CRD of %s: %v", kind, err)
		}
		all = append(all, definition)
	}
	operator.definitions = all
	return all
}

// defineOperator installs the CRDs of the Prometheus operator in an API server.
func defineOperator(t *testing.T, config *rest.Config) {
	t.Helper()
	var own []*apiextensionsv1.CustomResourceDefinition // the client modifies its arguments
	for _, definition := range operatorDefinitions(t) {
		own = append(own, definition.DeepCopy())
	}
	if err := install.CRDs(t.Context(), config, own); err != nil {
		t.Fatalf("install the CRDs of the Prometheus operator: %v", err)
	}
}
