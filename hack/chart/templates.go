package main

import (
	"fmt"
	"slices"
	"strings"
)

// system is the namespace of the base. The chart replaces it with that of the release.
const system = "keelson-system"

const (
	nameLabel     = "app.kubernetes.io/name"
	instanceLabel = "app.kubernetes.io/instance"
)

// condition returns the condition of an object; empty if it is unconditional. The manager's role
// objects are handwritten in templates/roles.yaml, with the output of roleTemplates.
func condition(o object) (expression string, skip bool) {
	switch o.kind() {
	case "Namespace":
		return "", true // it exists before the release
	case "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding":
		if o.name() == "keelson-manager" {
			return "", true
		}
		labels, _ := o["metadata"].(map[string]any)["labels"].(map[string]any) // there may be none
		for label := range labels {
			if strings.HasPrefix(label, "rbac.authorization.k8s.io/aggregate-to-") {
				return ".Values.rbac.aggregate", false
			}
		}
		return ".Values.rbac.create", false
	case "CustomResourceDefinition":
		return ".Values.crds.install", false
	case "APIService", "FlowSchema":
		return servesAccess, false
	case "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return ".Values.admission.create", false
	case "PriorityClass":
		return ".Values.priorityClass.create", false
	case "ValidatingWebhookConfiguration":
		return ".Values.webhook.create", false
	case "PodDisruptionBudget":
		return ".Values.podDisruptionBudget.create", false
	case "ServiceMonitor":
		return ".Values.metrics.serviceMonitor.create", false
	case "PrometheusRule":
		return ".Values.metrics.rules.create", false
	case "ConfigMap":
		return ".Values.metrics.dashboard.create", false
	}
	return conditions[o.kind()+" "+o.name()], false
}

// metricsService is the condition for the Service of the metrics, which a ServiceMonitor needs to
// find the manager.
const metricsService = "or .Values.metrics.service.create .Values.metrics.serviceMonitor.create"

// servesAccess is the condition for the access API, which is one for the whole cluster.
const servesAccess = "and .Values.controllers.virtualmachine .Values.access.create (not .Values.namespaces)"

// hasDriverPod is the condition for the driver pod.
const hasDriverPod = "and .Values.controllers.virtualmachine .Values.driverPod.enabled"

// conditions are the conditions of objects that do not follow from their kind.
var conditions = map[string]string{
	"Service keelson-webhook":       ".Values.webhook.create",
	"Deployment keelson-console":    ".Values.console.enabled",
	"Service keelson-console":       ".Values.console.enabled",
	"NetworkPolicy keelson-console": "and .Values.console.enabled .Values.networkPolicy.create",
	"Service keelson-access":        servesAccess,
	"Service keelson-metrics":       metricsService,
	"NetworkPolicy keelson-access":  servesAccess + " .Values.networkPolicy.create",
	"NetworkPolicy keelson-manager": ".Values.networkPolicy.create",
	"NetworkPolicy keelson-metrics": "and .Values.networkPolicy.create (" + metricsService + ")",
}

// controllerOf returns the name of the controller of a custom resource, such as
// crontabs.stable.example.com.
func controllerOf(resource string) string {
	plural, _, _ := strings.Cut(resource, ".")
	return strings.TrimSuffix(plural, "s")
}

// templates returns a template for each object, by file name.
func templates(objects []object) (map[string]string, error) {
	var ours []string
	for _, o := range objects {
		if strings.HasPrefix(o.name(), "keelson-") && o.kind() != "Namespace" {
			ours = append(ours, o.name())
		}
	}
	slices.SortFunc(ours, func(a, b string) int { return len(b) - len(a) }) // the longest match first
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
			return nil, fmt.Errorf("two objects have the file %s", file)
		}
		files[file] = text
	}
	return files, nil
}

// template renders an object as a template. names are the names of the base's objects.
func template(o object, names []string) (string, error) {
	var p places
	if edit := edits[o.kind()]; edit != nil {
		edit(o, &p)
	}
	metadata := o["metadata"].(map[string]any)
	labels := child(metadata, "labels")
	labels[p.lines(`{{- include "keelson.labels" . | nindent 4 }}`)] = ""
	delete(labels, nameLabel) // among the included ones
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

// addInstance restricts selectors, and the labels that they select, to one release.
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

// renamed returns a part of an object with the names of the release instead of those of the base.
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

// child returns a map within a map, and creates it if it is missing.
func child(m map[string]any, key string) map[string]any {
	inner, ok := m[key].(map[string]any)
	if !ok {
		inner = map[string]any{}
		m[key] = inner
	}
	return inner
}
