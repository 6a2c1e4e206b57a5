package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/manager"
)

// value is a value of the chart.
type value struct {
	// name is its path, with dots.
	name string
	// initial is its default.
	initial any
	// what is the description for the file, the schema and the page.
	what string
	// schema is its JSON schema, without description and default.
	schema map[string]any
}

var (
	aString   = map[string]any{"type": "string"}
	aBool     = map[string]any{"type": "boolean"}
	anObject  = map[string]any{"type": "object"}
	aList     = map[string]any{"type": "array", "items": map[string]any{"type": "object"}}
	texts     = map[string]any{"type": "object", "additionalProperties": aString}
	aDuration = map[string]any{"type": "string", "pattern": "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"}
	port      = aPort()
)

// aPort returns the schema of a port that is not taken.
func aPort(taken ...int) map[string]any {
	schema := map[string]any{"type": "integer", "minimum": 1, "maximum": 65535}
	if len(taken) > 0 {
		schema["not"] = map[string]any{"enum": taken}
	}
	return schema
}

func listOf(item map[string]any) map[string]any {
	return map[string]any{"type": "array", "items": item, "uniqueItems": true}
}

func atLeast(minimum int) map[string]any {
	return map[string]any{"type": "integer", "minimum": minimum}
}

// controllers are the manager's controllers, in its order.
var controllers = manager.Names()

// values are all values, in the order of the file.
var values = append([]value{
	{"image.repository", "keelson", "Image repository, including the registry.", map[string]any{"type": "string", "minLength": 1}},
	{"image.tag", "", "Image tag. Default: the appVersion of the chart.", aString},
	{"image.digest", "", "Image digest, `sha256:...`. It takes precedence over the tag.", map[string]any{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}},
	{"image.pullPolicy", "IfNotPresent", "Image pull policy.", map[string]any{"enum": []string{"Always", "IfNotPresent", "Never"}}},
	{"imagePullSecrets", []any{}, "Image pull Secrets, as `{name: ...}`.", aList},
	{"fullnameOverride", "", "Prefix of the names of all objects. Default: the release name, extended with keelson if it lacks it.", map[string]any{"type": "string", "maxLength": 40}},
	{"replicas", 2, "Number of replicas of the manager. One is the leader, the others are on standby with warm caches.", atLeast(0)},
	{"namespaces", []any{}, "Namespaces to watch. Default: all. If set, the manager has Roles in these namespaces instead of a ClusterRole. The namespaces must exist, and the controllers `cluster` and `kubeconfig`, whose kinds are cluster-scoped, must be disabled.",
		listOf(map[string]any{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"})},
}, append(controllerValues(), []value{
	{"driverPod.enabled", true, "With the controller `virtualmachine`, run machines in Pods: make `pod` the default driver, and grant its permissions. They include changes of all Secrets of the watched namespaces.", aBool},
	{"driverPod.launcherImage", "", "Image of the launcher. Default: that of the manager with `-launcher` at the end of its repository, and `image.tag`.", aString},
	{"driverPod.guestImage", "", "Image of the default guest. Default: that of the manager with `-guest` at the end of its repository, and `image.tag`.", aString},
	{"leaderElection.leaseDuration", "15s", "How long other replicas wait after the last renewal before they take over.", aDuration},
	{"leaderElection.renewDeadline", "10s", "How long a leader retries a renewal of its Lease before it stops.", aDuration},
	{"leaderElection.retryPeriod", "2s", "Time between two attempts to acquire or renew the Lease.", aDuration},
	{"logging.format", "json", "Log format.", map[string]any{"enum": []string{"json", "text"}}},
	{"logging.verbosity", 0, "Log verbosity, 0 to 10.", map[string]any{"type": "integer", "minimum": 0, "maximum": 10}},
	{"extraArgs", []any{}, "Additional flags of `keelson manager`, such as `--threads=32`.", listOf(map[string]any{"type": "string", "pattern": "^-"})},
	{"config", map[string]any{}, "Options of `keelson manager` that have no flag, such as `{virtualMachines: {kvmResource: devices.kubevirt.io/kvm}}`: the fields of a KeelsonConfiguration, see docs/configuration.md.", anObject},
	{"env", []any{}, "Additional environment variables of the manager.", aList},
	{"resources", map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "96Mi"}, "limits": map[string]any{"memory": "256Mi"}},
		"Resource requests and limits of a replica. There is no CPU limit, because it would throttle short bursts.", anObject},
	{"podLabels", map[string]any{}, "Additional labels of the Pods.", texts},
	{"podAnnotations", map[string]any{}, "Additional annotations of the Pods.", texts},
	{"nodeSelector", map[string]any{}, "Additional node selector of the Pods.", texts},
	{"tolerations", []any{}, "Tolerations of the Pods.", aList},
	{"affinity", map[string]any{}, "Affinity of the Pods.", anObject},
	{"stateVolume", map[string]any{}, "Volume for the state directory of the controller `virtualmachine`, such as `{persistentVolumeClaim: {claimName: keelson-state}}`. Default: an emptyDir.", anObject},
	{"extraVolumes", []any{}, "Additional volumes, such as one with the files of rke.", aList},
	{"extraVolumeMounts", []any{}, "Additional volume mounts.", aList},
	{"serviceAccount.annotations", map[string]any{}, "Annotations of the ServiceAccount.", texts},
	{"rbac.create", true, "Create the roles and role bindings of the manager.", aBool},
	{"rbac.aggregate", true, "Aggregate permissions for Keelson's kinds to the ClusterRoles view, edit and admin.", aBool},
	{"crds.install", true, "Install and upgrade the CRDs with the release. Set it for only one release in a cluster.", aBool},
	{"crds.keep", true, "Keep the CRDs, and thereby all objects, when the release is uninstalled.", aBool},
	{"admission.create", true, "Install the admission policies. Set it for only one release in a cluster.", aBool},
	{"admission.refuse", offByDefault, "Kinds whose new objects are rejected while their controller is disabled. Remove the kinds that another manager reconciles. With `namespaces`, nothing is rejected.",
		listOf(map[string]any{"enum": offByDefault})},
	{"webhook.create", true, "Install the validating webhook, which checks what the schemas of the CRDs cannot express.", aBool},
	{"webhook.certSecret", "", "Secret with `tls.crt` and `tls.key` of the webhook, if something else, such as cert-manager, renews them and sets `caBundle`. Default: the manager does both.", aString},
	{"webhook.annotations", map[string]any{}, "Annotations of the ValidatingWebhookConfiguration, such as `cert-manager.io/inject-ca-from`.", texts},
	{"access.create", true, "With the controller `virtualmachine`, serve the access API of machines. Set it for only one release in a cluster. It is off with `namespaces`, because an APIService is for the whole cluster.", aBool},
	{"console.enabled", false, "Run the console for all users, who log in with a token each. It has no permissions of its own. It needs an Ingress with TLS, see docs/console.md.", aBool},
	{"console.publicURLs", []any{}, "URLs under which browsers open the console, such as `https://keelson.example.com`. Others are refused.",
		listOf(map[string]any{"type": "string", "pattern": "^https?://[^/?#@]+$"})},
	{"console.resources", map[string]any{"requests": map[string]any{"cpu": "10m", "memory": "32Mi"}, "limits": map[string]any{"memory": "256Mi"}}, "Resource requests and limits of the console.", anObject},
	{"metrics.port", 8443, "Port of /metrics, served over TLS to users who can get it.", aPort(8081, 9443, 9444)},
	{"metrics.portName", "metrics", "Name of that port in the Service.", map[string]any{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$"}},
	{"metrics.certSecret", "", "Secret with `tls.crt` and `tls.key` for /metrics, if something else renews them. Default: a self-signed certificate of the manager.", aString},
	{"metrics.service.create", false, "Create a Service for the metrics, and allow access in the NetworkPolicy.", aBool},
	{"metrics.from", []any{}, "NetworkPolicy peers that may connect to the metrics port. Default: all; a token is required in any case.", aList},
	{"metrics.serviceMonitor.create", false, "Create a ServiceMonitor for the Prometheus operator, and the Service.", aBool},
	{"metrics.serviceMonitor.labels", map[string]any{}, "Additional labels of the ServiceMonitor, for the selector of a Prometheus.", texts},
	{"metrics.serviceMonitor.interval", "30s", "Scrape interval.", aDuration},
	{"metrics.serviceMonitor.tlsConfig", map[string]any{"insecureSkipVerify": true}, "TLS configuration of Prometheus. With a certificate of your own: `{insecureSkipVerify: false, serverName: ..., ca: ...}`.", anObject},
	{"metrics.rules.create", false, "Create a PrometheusRule with the alerts for the Prometheus operator.", aBool},
	{"metrics.rules.labels", map[string]any{}, "Additional labels of the PrometheusRule, for the selector of a Prometheus.", texts},
	{"metrics.dashboard.create", false, "Create a ConfigMap with the dashboard for the sidecar of Grafana.", aBool},
	{"priorityClass.create", true, "Create a PriorityClass for the manager.", aBool},
	{"priorityClass.name", "", "Name of an existing PriorityClass, if none is created.", aString},
	{"priorityClass.value", 1000000, "Priority of the created PriorityClass.", map[string]any{"type": "integer", "minimum": -2147483648, "maximum": 1000000000}},
	{"podDisruptionBudget.create", true, "Create a PodDisruptionBudget: a drain evicts at most one replica at a time.", aBool},
	{"networkPolicy.create", true, "Create a NetworkPolicy: ingress to the served ports only, egress to API servers and DNS only.", aBool},
	{"networkPolicy.apiServerPorts", []any{443, 6443}, "Ports of API servers: that of this cluster, and those of Clusters.", listOf(port)},
	{"networkPolicy.extraEgress", []any{}, "Additional egress rules of the manager, such as for a Docker engine.", aList},
}...)...)

// offByDefault are the controllers whose kinds need more than the Pod has by default: they have a
// component in config/kinds.
var offByDefault = []any{"cluster", "virtualmachine"}

func controllerValues() []value {
	var all []value
	for _, name := range controllers {
		on, what := !slices.Contains(offByDefault, any(name)), "Enable the controller `"+name+"` and grant its permissions."
		switch {
		case name == "virtualmachine":
			what += " With `driverPod`, it needs two more images; otherwise more than the Pod has, see docs/install.md."
		case !on:
			what += " It requires more than the Pod has by default, see docs/install.md."
		}
		all = append(all, value{"controllers." + name, on, what, aBool})
	}
	return all
}

// valuesFile returns values.yaml.
func valuesFile(all []value) string {
	var b strings.Builder
	b.WriteString("# Generated by make generate from hack/chart. README.md has these values as a table.\n")
	var last []string
	for _, v := range all {
		path := strings.Split(v.name, ".")
		for depth, part := range path {
			indent := strings.Repeat("  ", depth)
			if depth < len(path)-1 {
				if depth >= len(last)-1 || last[depth] != part {
					fmt.Fprintf(&b, "%s%s:\n", indent, part)
				}
				continue
			}
			fmt.Fprintf(&b, "%s# %s\n%s%s:%s", indent, v.what, indent, part, indented(v.initial, indent+"  "))
		}
		last = path
	}
	return b.String()
}

// indented returns a value as YAML that follows a key and its colon.
func indented(v any, indent string) string {
	raw, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // it is a constant
	}
	text := string(raw)
	if m, ok := v.(map[string]any); ok && len(m) > 0 {
		return "\n" + indent + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+indent) + "\n"
	}
	if l, ok := v.([]any); ok && len(l) > 0 {
		raw, err := json.Marshal(l)
		if err != nil {
			panic(err)
		}
		return " " + strings.ReplaceAll(string(raw), ",", ", ") + "\n"
	}
	return " " + text
}

// schemaOf returns values.schema.json.
func schemaOf(all []value) (string, error) {
	newNode := func() map[string]any {
		return map[string]any{"type": "object", "additionalProperties": false, "properties": map[string]any{}}
	}
	root := newNode()
	root["$schema"], root["title"] = "https://json-schema.org/draft-07/schema#", "Values of the chart keelson"
	// Helm adds this.
	root["properties"] = map[string]any{"global": anObject}
	for _, v := range all {
		node := root
		path := strings.Split(v.name, ".")
		for _, part := range path[:len(path)-1] {
			properties := node["properties"].(map[string]any)
			if properties[part] == nil {
				properties[part] = newNode()
			}
			node = properties[part].(map[string]any)
		}
		leaf := map[string]any{"description": v.what, "default": v.initial}
		for key, word := range v.schema {
			leaf[key] = word
		}
		node["properties"].(map[string]any)[path[len(path)-1]] = leaf
	}
	raw, err := json.MarshalIndent(root, "", "  ")
	return string(raw) + "\n", err
}

// page returns README.md.
func page(all []value) string {
	var b strings.Builder
	b.WriteString("# The Helm chart of Keelson\n\n[docs/install.md](../../docs/install.md) describes its use. " +
		"This page and the templates are generated from `config/default` and `config/monitoring` by `make generate`.\n\n| value | default | |\n|---|---|---|\n")
	for _, v := range all {
		raw, err := json.Marshal(v.initial)
		if err != nil {
			panic(err) // it is a constant
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.name, raw, v.what)
	}
	return b.String()
}
