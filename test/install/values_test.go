package install

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/jsonpath"
)

// The effect of values that concern several objects, or that remove something.
func TestLongChartValues(t *testing.T) {
	t.Parallel()
	const deployment, container = "Deployment keelson-manager", ".spec.template.spec.containers[0]"
	const variables = `{range ` + container + `.env[*]}{.name}={.value} {end}`
	charts := map[string]map[string]*unstructured.Unstructured{} // rendered objects by values
	for _, tt := range []struct {
		name, values, object, template, want string
	}{
		{"Go gets the memory limit", "defaults", deployment, variables, "MEMORY_LIMIT_MIB= GOMEMLIMIT=$(MEMORY_LIMIT_MIB)000000"},
		{"with other variables", "everything", "Deployment other-manager", variables, "MEMORY_LIMIT_MIB= GOMEMLIMIT=$(MEMORY_LIMIT_MIB)000000 GOGC=100"},
		{"unless the user decides", "external certificates", deployment, variables, "GOMEMLIMIT=300MiB"},
		{"or there is no limit", "no limit", deployment, variables, ""},
		{"the manager serves metrics at the port", "metrics", deployment, `{` + container + `.ports[?(@.name=="metrics")].containerPort} {` + container + `.args[6]}`, "9090 --metrics-bind-address=:9090"},
		{"the Service has it", "metrics", "Service keelson-metrics", "{.spec.ports[0].name} {.spec.ports[0].port} {.spec.ports[0].targetPort}", "https-metrics 9090 9090"},
		{"the NetworkPolicy opens it", "metrics", "NetworkPolicy keelson-metrics", "{.spec.ingress[0].ports[0].port} {.spec.ingress[0].from[0].namespaceSelector.matchLabels}", `9090 {"kubernetes.io/metadata.name":"monitoring"}`},
		{"the ServiceMonitor scrapes it", "metrics", "ServiceMonitor keelson", "{.metadata.labels.release} {.spec.endpoints[0].port} {.spec.endpoints[0].interval}", "prometheus https-metrics 15s"},
		{"the PrometheusRule is labelled", "metrics", "PrometheusRule keelson", "{.metadata.labels.release}", "prometheus"},
		{"only a Service", "metrics without an operator", "Service keelson-metrics", "{.spec.ports[0].name} {.spec.ports[0].port}", "metrics 8443"},
		{"with its NetworkPolicy", "metrics without an operator", "NetworkPolicy keelson-metrics", "{.spec.ingress[0].ports[0].port}", "8443"},
		{"state is kept in the Pod", "all kinds", deployment, `{.spec.template.spec.volumes[?(@.name=="state")].emptyDir}`, "{}"},
		{"or in a volume of the user", "everything", "Deployment other-manager", `{.spec.template.spec.volumes[?(@.name=="state")]}`, `{"name":"state","persistentVolumeClaim":{"claimName":"state"}}`},
		{"certificates are mounted", "external certificates", deployment, "{.spec.template.spec.volumes[*].secret.secretName}", "metrics webhook"},
		{"where the manager reads them", "external certificates", deployment, `{range ` + container + `.volumeMounts[?(@.readOnly==true)]}{.mountPath} {end}`, "/var/run/keelson/metrics /var/run/keelson/webhook"},
		{"with an external caBundle", "external certificates", "ValidatingWebhookConfiguration keelson", "{.metadata.annotations}", `{"cert-manager.io/inject-ca-from":"operations/webhook"}`},
		{"which the manager may not change", "external certificates", "ClusterRole keelson-manager", `{.rules[?(@.apiGroups[0]=="admissionregistration.k8s.io")].verbs}`, ""},
		{"which it otherwise may", "defaults", "ClusterRole keelson-manager", `{.rules[?(@.apiGroups[0]=="admissionregistration.k8s.io")].verbs}`, `["get","update"]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			values, ok := valueSets[tt.values]
			if !ok {
				t.Fatalf("unknown values %q", tt.values)
			}
			if charts[tt.values] == nil {
				_, objects := rendered(t, "keelson", home, values)
				charts[tt.values] = byName(objects)
			}
			if got := field(t, charts[tt.values][tt.object], tt.template); got != tt.want {
				t.Errorf("%s has %q, want %q", tt.object, got, tt.want)
			}
		})
	}
}

// field reads fields of an object by a JSONPath template.
func field(t *testing.T, o *unstructured.Unstructured, template string) string {
	t.Helper()
	if o == nil {
		t.Fatal("the chart does not have the object")
	}
	path := jsonpath.New("").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := path.Execute(&b, o.Object); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(b.String())
}
