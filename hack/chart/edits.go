package main

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// edits insert values into objects, by kind.
var edits = map[string]func(object, *places){
	"Deployment":                     editDeployment,
	"NetworkPolicy":                  editNetworkPolicy,
	"PriorityClass":                  editPriorityClass,
	"PrometheusRule":                 editPrometheusRule,
	"Service":                        editService,
	"ServiceMonitor":                 editServiceMonitor,
	"ValidatingAdmissionPolicy":      editPolicy,
	"ValidatingWebhookConfiguration": editWebhooks,
}

func editDeployment(o object, p *places) {
	if o.name() == "keelson-console" {
		editConsole(o, p)
		return
	}
	spec := child(o, "spec")
	spec["replicas"] = p.inline(".Values.replicas")
	template := child(spec, "template")
	metadata, pod := child(template, "metadata"), child(template, "spec")
	child(metadata, "labels")[p.lines("{{- with .Values.podLabels }}\n{{- toYaml . | nindent 8 }}\n{{- end }}")] = ""
	child(metadata, "annotations")[p.lines("{{- with .Values.podAnnotations }}\n{{- toYaml . | nindent 8 }}\n{{- end }}")] = ""
	child(metadata, "annotations")[p.lines("{{- with .Values.config }}\nkeelson.dev/config-checksum: {{ toJson . | sha256sum }}\n{{- end }}")] = ""
	delete(pod, "priorityClassName")
	pod[p.lines("{{- if .Values.priorityClass.create }}\npriorityClassName: {{ include \"keelson.fullname\" . }}-manager\n"+
		"{{- else if .Values.priorityClass.name }}\npriorityClassName: {{ .Values.priorityClass.name | quote }}\n{{- end }}")] = ""
	child(pod, "nodeSelector")[p.lines("{{- with .Values.nodeSelector }}\n{{- toYaml . | nindent 8 }}\n{{- end }}")] = ""
	for _, name := range []string{"tolerations", "affinity", "imagePullSecrets"} {
		pod[name] = p.optional(".Values." + name)
	}
	pod["volumes"] = append(pod["volumes"].([]any), ofCertificates(p, "- name: %[1]s-certificate\n  secret:\n    secretName: {{ . | quote }}"),
		p.lines("{{- if .Values.controllers.virtualmachine }}\n- name: state\n"+
			"  {{- toYaml (.Values.stateVolume | default (dict \"emptyDir\" dict)) | nindent 8 }}\n{{- end }}"),
		p.lines("{{- if .Values.config }}\n- name: config\n  configMap:\n    name: {{ include \"keelson.fullname\" . }}-config\n{{- end }}"),
		p.lines("{{- with .Values.extraVolumes }}\n{{- toYaml . | nindent 6 }}\n{{- end }}"))
	container := pod["containers"].([]any)[0].(map[string]any)
	container["image"] = p.inline(`include "keelson.image" . | quote`)
	container["imagePullPolicy"] = p.inline(".Values.image.pullPolicy")
	container["resources"] = p.block(".Values.resources")
	container["env"] = p.optional(`(include "keelson.env" . | fromYamlArray)`)
	container["volumeMounts"] = append(container["volumeMounts"].([]any), ofCertificates(p, "- name: %[1]s-certificate\n  mountPath: "+certificates+"%[1]s\n  readOnly: true"),
		p.lines("{{- if .Values.controllers.virtualmachine }}\n- name: state\n  mountPath: "+stateDir+"\n{{- end }}"),
		p.lines("{{- if .Values.config }}\n- name: config\n  mountPath: "+configDir+"\n  readOnly: true\n{{- end }}"),
		p.lines("{{- with .Values.extraVolumeMounts }}\n{{- toYaml . | nindent 8 }}\n{{- end }}"))
	container["ports"] = append(container["ports"].([]any), p.lines("{{- if "+servesAccess+" }}\n- containerPort: 9444\n  name: access\n  protocol: TCP\n{{- end }}"))
	for _, port := range container["ports"].([]any) {
		if port, ok := port.(map[string]any); ok && port["name"] == "metrics" {
			port["containerPort"] = p.inline(".Values.metrics.port")
		}
	}
	editArgs(container, p)
}

// editConsole inserts the values of the console.
func editConsole(o object, p *places) {
	pod := child(child(child(o, "spec"), "template"), "spec")
	for _, name := range []string{"tolerations", "affinity", "imagePullSecrets"} {
		pod[name] = p.optional(".Values." + name)
	}
	child(pod, "nodeSelector")[p.lines("{{- with .Values.nodeSelector }}\n{{- toYaml . | nindent 8 }}\n{{- end }}")] = ""
	container := pod["containers"].([]any)[0].(map[string]any)
	container["image"] = p.inline(`include "keelson.image" . | quote`)
	container["imagePullPolicy"] = p.inline(".Values.image.pullPolicy")
	container["resources"] = p.block(".Values.console.resources")
	args := container["args"].([]any)
	container["args"] = append(args[:len(args)-1], p.lines("{{- if not .Values.console.publicURLs }}\n{{- fail \"console.publicURLs: set the URL under which browsers open the console\" }}\n{{- end }}\n"+
		"{{- range .Values.console.publicURLs }}\n"+
		"- --public-url={{ . }}\n{{- end }}"))
}

// stateDir is the state directory of the manager, for the controllers that need one.
const stateDir = "/var/lib/keelson"

// configDir is the mount point of the configuration of the manager.
const configDir = "/var/run/keelson/config"

// certificates is the mount point of Secrets with certificates.
const certificates = "/var/run/keelson/"

// ofCertificates returns a text for each Secret with an externally renewed certificate; format
// takes its name.
func ofCertificates(p *places, format string) string {
	var b strings.Builder
	for _, name := range []string{"metrics", "webhook"} {
		fmt.Fprintf(&b, "{{- with .Values.%[1]s.certSecret }}\n"+format+"\n{{- end }}\n", name)
	}
	return p.lines(strings.ReplaceAll(b.String(), ".Values.webhook.certSecret", webhookCertSecret))
}

// webhookCertSecret applies only with a webhook.
const webhookCertSecret = "(and .Values.webhook.create .Values.webhook.certSecret)"

func editArgs(container map[string]any, p *places) {
	args := container["args"].([]any)
	for i, arg := range args {
		switch flag, _, _ := strings.Cut(arg.(string), "="); flag {
		case "--logging-format":
			args[i] = flag + "=" + p.inline(".Values.logging.format")
		case "--metrics-bind-address":
			args[i] = p.lines("- " + flag + "=:{{ .Values.metrics.port }}\n{{- if .Values.metrics.certSecret }}\n" +
				"- --metrics-cert-dir=" + certificates + "metrics\n{{- end }}")
		case "--webhook-bind-address":
			args[i] = p.lines("{{- if .Values.webhook.create }}\n- " + arg.(string) + "\n- --webhook-service={{ include \"keelson.fullname\" . }}-webhook\n" +
				"- --webhook-configuration={{ include \"keelson.fullname\" . }}\n" +
				"{{- if .Values.webhook.certSecret }}\n- --webhook-cert-dir=" + certificates + "webhook\n{{- end }}\n{{- end }}")
		}
	}
	// The values select the controllers.
	args = slices.DeleteFunc(args, func(arg any) bool { return strings.HasPrefix(arg.(string), "--controllers=") })
	container["args"] = append(args, p.lines(`- --v={{ .Values.logging.verbosity }}
- --controllers={{ include "keelson.controllers" . }}
{{- if .Values.controllers.virtualmachine }}
- --state-dir=`+stateDir+`
{{- end }}
{{- if `+servesAccess+` }}
- --access-bind-address=:9444
- --access-service={{ include "keelson.fullname" . }}-access
{{- end }}
{{- if `+hasDriverPod+` }}
- --vm-driver=pod
- --vm-launcher-image={{ .Values.driverPod.launcherImage | default (include "keelson.besides" (list . "launcher")) }}
- --vm-guest-image={{ .Values.driverPod.guestImage | default (include "keelson.besides" (list . "guest")) }}
{{- end }}
{{- with .Values.namespaces }}
- --namespaces={{ join "," . }}
{{- end }}
- --lease-duration={{ .Values.leaderElection.leaseDuration }}
- --renew-deadline={{ .Values.leaderElection.renewDeadline }}
- --retry-period={{ .Values.leaderElection.retryPeriod }}
{{- if .Values.config }}
- --config=`+configDir+`/config.yaml
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}`))
}

// envTemplate returns the named template keelson.env with the environment variables of the manager:
// those of the base, which pass the memory limit to Go unless there is none or the user overrides
// it, and those of the user.
func envTemplate(objects []object) (string, error) {
	var variables any
	for _, o := range objects {
		if o.kind() == "Deployment" && o.name() == "keelson-manager" {
			pod := child(child(child(o, "spec"), "template"), "spec")
			variables = pod["containers"].([]any)[0].(map[string]any)["env"]
		}
	}
	raw, err := yaml.Marshal(variables)
	return fmt.Sprintf(`{{- /* Generated by make generate from config/manager. */ -}}
{{- define "keelson.env" }}
{{- $names := list }}
{{- range .Values.env }}
{{- $names = append $names .name }}
{{- end }}
{{- if and (dig "limits" "memory" "" (.Values.resources | default dict)) (not (has "GOMEMLIMIT" $names)) }}
%s{{- end }}
{{- with .Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}
`, raw), err
}

// editPolicy makes the policy for a kind that is off by default depend on values.
func editPolicy(o object, p *places) {
	resource, ok := strings.CutSuffix(o.name(), "-switched-on")
	if !ok {
		return
	}
	controller := controllerOf(resource)
	validation := child(o, "spec")["validations"].([]any)[0].(map[string]any)
	validation["expression"] = p.inline(fmt.Sprintf(`ternary "true" "false" (or .Values.controllers.%s (not (has %q .Values.admission.refuse)) (not (empty .Values.namespaces))) | quote`,
		controller, controller))
}

// editWebhooks makes each webhook depend on its controller.
func editWebhooks(o object, p *places) {
	metadata := child(o, "metadata")
	metadata["name"] = p.inline(`include "keelson.fullname" .`)
	metadata["annotations"] = p.optional(".Values.webhook.annotations")
	var webhooks []any
	for _, webhook := range o["webhooks"].([]any) {
		webhook := webhook.(map[string]any)
		webhook["namespaceSelector"] = p.optional(`(include "keelson.namespaceSelector" $ | fromYaml)`)
		webhooks = append(webhooks, p.lines("{{- if .Values.controllers."+controllerOf(webhook["name"].(string))+" }}"), webhook, p.lines("{{- end }}"))
	}
	o["webhooks"] = webhooks
}

// apiServerPorts are the ports of API servers in a NetworkPolicy.
const apiServerPorts = "{{- range .Values.networkPolicy.apiServerPorts }}\n- port: {{ . | int }}\n  protocol: TCP\n{{- end }}"

func editNetworkPolicy(o object, p *places) {
	spec := child(o, "spec")
	switch o.name() {
	case "keelson-access":
		return
	case "keelson-metrics":
		spec["ingress"] = []any{p.lines("- ports:\n  - port: {{ .Values.metrics.port }}\n    protocol: TCP\n" +
			"  {{- with .Values.metrics.from }}\n  from:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}")}
		return
	}
	egress := spec["egress"].([]any)
	if o.name() == "keelson-console" {
		egress[0].(map[string]any)["ports"] = []any{p.lines(apiServerPorts)}
		return
	}
	// The last rule is for API servers.
	egress[len(egress)-1].(map[string]any)["ports"] = []any{p.lines(apiServerPorts)}
	spec["egress"] = append(egress, p.lines("{{- with .Values.networkPolicy.extraEgress }}\n{{- toYaml . | nindent 2 }}\n{{- end }}"))
}

func editPriorityClass(o object, p *places) {
	o["value"] = p.inline(".Values.priorityClass.value | int64") // without int64, a large number would be rendered as 1e+06
}

func editService(o object, p *places) {
	if o.name() != "keelson-metrics" {
		return
	}
	port := child(o, "spec")["ports"].([]any)[0].(map[string]any)
	port["name"], port["port"], port["targetPort"] = p.inline(".Values.metrics.portName | quote"), p.inline(".Values.metrics.port"), p.inline(".Values.metrics.port")
}

func editServiceMonitor(o object, p *places) {
	metadata := child(o, "metadata")
	metadata["name"] = p.inline(`include "keelson.fullname" .`)
	child(metadata, "labels")[p.lines("{{- with .Values.metrics.serviceMonitor.labels }}\n{{- toYaml . | nindent 4 }}\n{{- end }}")] = ""
	endpoint := child(o, "spec")["endpoints"].([]any)[0].(map[string]any)
	endpoint["port"] = p.inline(".Values.metrics.portName | quote")
	endpoint["interval"] = p.inline(".Values.metrics.serviceMonitor.interval")
	endpoint["tlsConfig"] = p.block(".Values.metrics.serviceMonitor.tlsConfig")
}

func editPrometheusRule(o object, p *places) {
	metadata := child(o, "metadata")
	metadata["name"] = p.inline(`include "keelson.fullname" .`)
	child(metadata, "labels")[p.lines("{{- with .Values.metrics.rules.labels }}\n{{- toYaml . | nindent 4 }}\n{{- end }}")] = ""
}
