package main

import (
	"fmt"
	"slices"
	"strings"
)

// system is the namespace of the base, in whose place the chart has that of the release.
const system = "keelson-system"

const (
	nameLabel     = "app.kubernetes.io/name"
	instanceLabel = "app.kubernetes.io/instance"
)

// condition returns the value on which an object depends; empty if it is always there. The roles of the manager are
// written by hand in templates/roles.yaml, from what roleTemplates returns.
func condition(o object) (expression string, skip bool) {
	switch o.kind() {
	case "Namespace":
		return "", true // it is there before the release is
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		if o.name() == "keelson-manager" {
			return "", true
		}
		labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any) // it may have none
		for label := range labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				return ".Values.rbac.aggregate", false
			}
		}
		return ".Values.rbac.create", false
	case "CustomResourceDefinition":
		return ".Values.crds.install", false
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return ".Values.admission.create", false
	case "PriorityClass":
		return ".Values.priorityClass.create", false
	case "ValidatingWebhookConfiguration":
		return ".Values.webhook.create", false
	case "Service":
		if o.name() == "keelson-webhook" {
			return ".Values.webhook.create", false
		}
	case "PodDisruptionBudget":
		return ".Values.podDisruptionBudget.create", false
	case "NetworkPolicy":
		return ".Values.networkPolicy.create", false
	}
	return "", false
}

// templates returns a template for each object, by the name of its file.
func templates(objects []object) (map[string]string, error) {
	var ours []string
	for _, o := range objects {
		if strings.HasPrefix(o.name(), "keelson-") && o.kind() != "Namespace" {
			ours = append(ours, o.name())
		}
	}
	slices.SortFunc(ours, func(a, b string) int { return len(b) - len(a) }) // the longest that fits
	files := map[string]string{}
	for _, o := range objects {
		expression, skip := condition(o)
		if skip {
			continue
		}
		file := "templates/" + generatedPrefix + strings.ToLower(o.kind()) + "-" + strings.TrimPrefix(o.name(), "keelson-") + ".yaml"
		text, err := template(o, ours)
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.kind(), o.name(), err)
		}
		if expression != "" {
			text = "{{- if " + expression + " }}\n" + text + "{{- end }}\n"
		}
		if files[file] != "" {
			return nil, fmt.Errorf("two objects want the file %s", file)
		}
		files[file] = text
	}
	return files, nil
}

// template returns an object as a template. names are those of the base's objects.
func template(o object, names []string) (string, error) {
	var p places
	switch o.kind() {
	case "Deployment":
		editDeployment(o, &p)
	case "NetworkPolicy":
		editNetworkPolicy(o, &p)
	case "ValidatingWebhookConfiguration":
		editWebhooks(o, &p)
	case "PriorityClass":
		o["value"] = p.inline(".Values.priorityClass.value | int64") // a large number would be written as 1e+06
	}
	metadata := o["metadata"].(map[string]any)
	labels := child(metadata, "labels")
	labels[p.lines(`{{- include "keelson.labels" . | nindent 4 }}`)] = ""
	delete(labels, nameLabel) // it is among those
	switch o.kind() {
	case "CustomResourceDefinition":
		child(metadata, "annotations")[p.lines("{{- if .Values.crds.keep }}\nhelm.sh/resource-policy: keep\n{{- end }}")] = ""
	case "ServiceAccount":
		metadata["annotations"] = p.optional(".Values.serviceAccount.annotations")
	default:
		for key, part := range o {
			if key != "metadata" {
				addInstance(part, &p)
			}
		}
	}
	if o.kind() == "CustomResourceDefinition" {
		return p.render(o)
	}
	return p.render(renamed(map[string]any(o), names, &p))
}

// addInstance makes selectors, and what they select by, those of one release.
func addInstance(part any, p *places) {
	switch part := part.(type) {
	case map[string]any:
		if part[nameLabel] != nil {
			part[instanceLabel] = p.inline(".Release.Name | quote")
		}
		for _, inner := range part {
			addInstance(inner, p)
		}
	case []any:
		for _, inner := range part {
			addInstance(inner, p)
		}
	}
}

// renamed returns a part of an object with the names of the release in place of those of the base.
func renamed(part any, names []string, p *places) any {
	switch part := part.(type) {
	case map[string]any:
		for key, inner := range part {
			part[key] = renamed(inner, names, p)
		}
	case []any:
		for i, inner := range part {
			part[i] = renamed(inner, names, p)
		}
	case string:
		text := strings.ReplaceAll(part, system, p.inline(".Release.Namespace"))
		for _, name := range names {
			text = strings.ReplaceAll(text, name, p.inline(`include "keelson.fullname" .`)+strings.TrimPrefix(name, "keelson"))
		}
		return text
	}
	return part
}

func editDeployment(o object, p *places) {
	spec := child(o, "spec")
	spec["replicas"] = p.inline(".Values.replicas")
	template := child(spec, "template")
	metadata, pod := child(template, "metadata"), child(template, "spec")
	child(metadata, "labels")[p.lines("{{- with .Values.podLabels }}\n{{- toYaml . | nindent 8 }}\n{{- end }}")] = ""
	child(metadata, "annotations")[p.lines("{{- with .Values.podAnnotations }}\n{{- toYaml . | nindent 8 }}\n{{- end }}")] = ""
	delete(pod, "priorityClassName")
	pod[p.lines("{{- if .Values.priorityClass.create }}\npriorityClassName: {{ include \"keelson.fullname\" . }}-manager\n"+
		"{{- else if .Values.priorityClass.name }}\npriorityClassName: {{ .Values.priorityClass.name | quote }}\n{{- end }}")] = ""
	child(pod, "nodeSelector")[p.lines("{{- with .Values.nodeSelector }}\n{{- toYaml . | nindent 8 }}\n{{- end }}")] = ""
	for _, name := range []string{"tolerations", "affinity", "imagePullSecrets"} {
		pod[name] = p.optional(".Values." + name)
	}
	pod["volumes"] = append(pod["volumes"].([]any), p.lines("{{- with .Values.extraVolumes }}\n{{- toYaml . | nindent 6 }}\n{{- end }}"))
	container := pod["containers"].([]any)[0].(map[string]any)
	container["image"] = p.inline(`include "keelson.image" . | quote`)
	container["imagePullPolicy"] = p.inline(".Values.image.pullPolicy")
	container["resources"] = p.block(".Values.resources")
	container["env"] = p.optional(".Values.env")
	container["volumeMounts"] = append(container["volumeMounts"].([]any), p.lines("{{- with .Values.extraVolumeMounts }}\n{{- toYaml . | nindent 8 }}\n{{- end }}"))
	args := container["args"].([]any)
	for i, arg := range args {
		if strings.HasPrefix(arg.(string), "--logging-format=") {
			args[i] = "--logging-format=" + p.inline(".Values.logging.format")
		}
		if strings.HasPrefix(arg.(string), "--webhook-bind-address=") {
			args[i] = p.lines("{{- if .Values.webhook.create }}\n- " + arg.(string) + "\n- --webhook-service={{ include \"keelson.fullname\" . }}-webhook\n" +
				"- --webhook-configuration={{ include \"keelson.fullname\" . }}\n{{- end }}")
		}
	}
	container["args"] = append(args, p.lines(`- --v={{ .Values.logging.verbosity }}
- --controllers={{ include "keelson.controllers" . }}
{{- with .Values.namespaces }}
- --namespaces={{ join "," . }}
{{- end }}
- --lease-duration={{ .Values.leaderElection.leaseDuration }}
- --renew-deadline={{ .Values.leaderElection.renewDeadline }}
- --retry-period={{ .Values.leaderElection.retryPeriod }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}`))
}

// editWebhooks makes each webhook depend on its controller.
func editWebhooks(o object, p *places) {
	child(o, "metadata")["name"] = p.inline(`include "keelson.fullname" .`)
	var webhooks []any
	for _, webhook := range o["webhooks"].([]any) {
		webhook := webhook.(map[string]any)
		webhook["namespaceSelector"] = p.optional(`(include "keelson.namespaceSelector" $ | fromYaml)`)
		plural, _, _ := strings.Cut(webhook["name"].(string), ".")
		webhooks = append(webhooks, p.lines("{{- if .Values.controllers."+strings.TrimSuffix(plural, "s")+" }}"), webhook, p.lines("{{- end }}"))
	}
	o["webhooks"] = webhooks
}

func editNetworkPolicy(o object, p *places) {
	spec := child(o, "spec")
	egress := spec["egress"].([]any)
	// The last rule is that for API servers.
	egress[len(egress)-1].(map[string]any)["ports"] = []any{p.lines("{{- range .Values.networkPolicy.apiServerPorts }}\n- port: {{ . | int }}\n  protocol: TCP\n{{- end }}")}
	spec["egress"] = append(egress, p.lines("{{- with .Values.networkPolicy.extraEgress }}\n{{- toYaml . | nindent 2 }}\n{{- end }}"))
}

// child returns a map within a map, which is made if it is not there.
func child(m map[string]any, key string) map[string]any {
	inner, ok := m[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[key] = inner
	}
	return inner
}
