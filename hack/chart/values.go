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
	// what says what it does, for the file, the schema and the page.
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

// aPort returns the schema of a port that is none of those that are taken.
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

// controllers are those of the manager, in its order.
var controllers = manager.Names()

// values are all values, in the order of the file.
var values = append([]value{
	{"image.repository", "keelson", "Where the image is, with its registry.", map[string]any{"type": "string", "minLength": 1}},
	{"image.tag", "", "Its tag. Empty: the version of the chart's application.", aString},
	{"image.digest", "", "Its digest, `sha256:...`, which wins over the tag.", map[string]any{"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}},
	{"image.pullPolicy", "IfNotPresent", "When nodes pull it.", map[string]any{"enum": []string{"Always", "IfNotPresent", "Never"}}},
	{"imagePullSecrets", []any{}, "Secrets with which nodes pull it, as `{name: ...}`.", aList},
	{"fullnameOverride", "", "What the names of all objects begin with. Empty: the name of the release, with keelson in it.", map[string]any{"type": "string", "maxLength": 40}},
	{"replicas", 2, "Replicas of the manager: one works, the others wait with warm caches.", atLeast(0)},
	{"namespaces", []any{}, "The namespaces to work in. Empty: all. With some, the manager has Roles there instead of a ClusterRole; they must exist, and the controllers `cluster` and `kubeconfig`, whose kinds have no namespace, must be off.",
		listOf(map[string]any{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"})},
}, append(controllerValues(), []value{
	{"leaderElection.leaseDuration", "15s", "How long others wait before they take over from a silent leader.", aDuration},
	{"leaderElection.renewDeadline", "10s", "How long a leader that cannot renew its lease goes on.", aDuration},
	{"leaderElection.retryPeriod", "2s", "The time between two attempts to take or renew the lease.", aDuration},
	{"logging.format", "json", "The format of the logs.", map[string]any{"enum": []string{"json", "text"}}},
	{"logging.verbosity", 0, "How much is logged, from 0 to 10.", map[string]any{"type": "integer", "minimum": 0, "maximum": 10}},
	{"extraArgs", []any{}, "More flags of `keelson manager`, such as `--threads=32`.", listOf(map[string]any{"type": "string", "pattern": "^-"})},
	{"env", []any{}, "More variables of its environment.", aList},
	{"resources", map[string]any{"requests": map[string]any{"cpu": "50m", "memory": "96Mi"}, "limits": map[string]any{"memory": "256Mi"}},
		"What a replica gets. A limit of the processor would slow a burst down that ends by itself.", anObject},
	{"podLabels", map[string]any{}, "More labels of the pods.", texts},
	{"podAnnotations", map[string]any{}, "More annotations of the pods.", texts},
	{"nodeSelector", map[string]any{}, "More labels that a node must have.", texts},
	{"tolerations", []any{}, "Taints of nodes that do not matter.", aList},
	{"affinity", map[string]any{}, "The affinity of the pods.", anObject},
	{"stateVolume", map[string]any{}, "The volume with the state directory of the controller `virtualmachine`, such as `{persistentVolumeClaim: {claimName: keelson-state}}`. Empty: an emptyDir.", anObject},
	{"extraVolumes", []any{}, "More volumes, such as one with the files of rke.", aList},
	{"extraVolumeMounts", []any{}, "Where they are mounted.", aList},
	{"serviceAccount.annotations", map[string]any{}, "Annotations of the service account.", texts},
	{"rbac.create", true, "Make the roles of the manager and bind them. Off: somebody else does.", aBool},
	{"rbac.aggregate", true, "Add our kinds to the roles view, edit and admin of the cluster.", aBool},
	{"crds.install", true, "Install and upgrade the definitions with the release. Only one release of a cluster may.", aBool},
	{"crds.keep", true, "Keep the definitions, and with them all objects, when the release is uninstalled.", aBool},
	{"admission.create", true, "Install the admission policies. Only one release of a cluster may.", aBool},
	{"admission.refuse", offByDefault, "Kinds whose new objects are refused while their controller is off. Remove those that another manager works on. With `namespaces`, nothing is refused.",
		listOf(map[string]any{"enum": offByDefault})},
	{"webhook.create", true, "Have the API server ask the manager before it stores objects, about what the definitions cannot say.", aBool},
	{"webhook.certSecret", "", "A Secret with `tls.crt` and `tls.key` for it that somebody else renews, such as cert-manager, who fills in `caBundle`, too. Empty: the manager makes its own.", aString},
	{"webhook.annotations", map[string]any{}, "Annotations of its configuration, such as `cert-manager.io/inject-ca-from`.", texts},
	{"metrics.port", 8443, "Where the manager tells its metrics, over TLS, to those who may.", aPort(8081, 9443)},
	{"metrics.portName", "metrics", "The name of that port in the Service.", map[string]any{"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?$"}},
	{"metrics.certSecret", "", "A Secret with `tls.crt` and `tls.key` for them that somebody else renews. Empty: the manager makes a certificate that signs itself.", aString},
	{"metrics.service.create", false, "Make a Service for the metrics, and have the NetworkPolicy let in who asks for them.", aBool},
	{"metrics.from", []any{}, "From where, as peers of a NetworkPolicy. Empty: from everywhere; who asks needs a token.", aList},
	{"metrics.serviceMonitor.create", false, "Make a ServiceMonitor for the Prometheus operator, and that Service.", aBool},
	{"metrics.serviceMonitor.labels", map[string]any{}, "More labels of it, by which a Prometheus may select.", texts},
	{"metrics.serviceMonitor.interval", "30s", "The time between two readings.", aDuration},
	{"metrics.serviceMonitor.tlsConfig", map[string]any{"insecureSkipVerify": true}, "How Prometheus verifies the certificate. With one of yours: `{insecureSkipVerify: false, serverName: ..., ca: ...}`.", anObject},
	{"metrics.rules.create", false, "Make a PrometheusRule with the alerts for the Prometheus operator.", aBool},
	{"metrics.rules.labels", map[string]any{}, "More labels of it, by which a Prometheus may select.", texts},
	{"metrics.dashboard.create", false, "Make a ConfigMap with the dashboard, in which the sidecar of Grafana finds it.", aBool},
	{"priorityClass.create", true, "Make a priority class for the manager.", aBool},
	{"priorityClass.name", "", "The name of a class that exists, for when none is made. Empty: none.", aString},
	{"priorityClass.value", 1000000, "The priority of the class that is made.", map[string]any{"type": "integer", "minimum": -2147483648, "maximum": 1000000000}},
	{"podDisruptionBudget.create", true, "At most one replica is away by a drain.", aBool},
	{"networkPolicy.create", true, "Let nobody connect to the manager but those it serves, and the manager to API servers and name servers only.", aBool},
	{"networkPolicy.apiServerPorts", []any{443, 6443}, "Where API servers listen: that of this cluster, and those of Clusters.", listOf(port)},
	{"networkPolicy.extraEgress", []any{}, "More rules for what the manager connects to, such as a Docker engine.", aList},
}...)...)

// offByDefault are the controllers whose kinds need more than the Pod has by default: those with a component in config/kinds.
var offByDefault = []any{"cluster", "virtualmachine"}

func controllerValues() []value {
	var all []value
	for _, name := range controllers {
		on, what := !slices.Contains(offByDefault, any(name)), "Run the controller `"+name+"`, and grant what it needs."
		if !on {
			what += " It needs more than the Pod has by default, see docs/install.md."
		}
		all = append(all, value{"controllers." + name, on, what, aBool})
	}
	return all
}

// valuesFile returns values.yaml.
func valuesFile(all []value) string {
	var b strings.Builder
	b.WriteString("# Generated by make generate from hack/chart. README.md has the same as a table.\n")
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

// indented returns a value as YAML for behind a key and its colon.
func indented(v any, indent string) string {
	raw, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // it is a constant of this program
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
	// Helm adds these.
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
	b.WriteString("# The Helm chart of Keelson\n\n[docs/install.md](../../docs/install.md) says how to use it. " +
		"This page and the templates are generated from `config/default` and `config/monitoring` by `make generate`.\n\n| value | default | |\n|---|---|---|\n")
	for _, v := range all {
		raw, err := json.Marshal(v.initial)
		if err != nil {
			panic(err) // it is a constant of this program
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s |\n", v.name, raw, v.what)
	}
	return b.String()
}
