package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

type schema = apiextensionsv1.JSONSchemaProps

// guides has the page with examples, if it does not have the name of the kind.
var guides = map[string]string{"ClusterSnapshot": "cluster-snapshots", "Kubeconfig": "cluster", "VirtualMachineImage": "images", "VirtualDisk": "disks", "VirtualMachineSnapshot": "snapshots", "VirtualMachineSet": "virtualmachinesets"}

// foreign has the types of Kubernetes and of other kinds in the schemas, by field. Their own fields are not listed.
var foreign = map[string]string{
	"spec.jobTemplate":  "JobTemplateSpec of `batch/v1`, or PodSpec of `v1`",
	"status.active":     "list of ObjectReference of `v1`",
	"status.conditions": "list of Condition of `meta/v1`",

	"spec.template.spec":             "[spec of a VirtualMachine](virtualmachine.md#spec)",
	"spec.virtualDiskTemplates.spec": "[spec of a VirtualDisk](virtualdisk.md#spec)",
}

// kindPage returns the page with the fields of a kind.
func kindPage(definition *apiextensionsv1.CustomResourceDefinition) string {
	names, version := definition.Spec.Names, definition.Spec.Versions[0]
	p := kindReference{}
	for _, part := range []string{"spec", "status"} {
		p.object(part, version.Schema.OpenAPIV3Schema.Properties[part])
	}
	guide := guides[names.Kind]
	if guide == "" {
		guide = strings.ToLower(names.Kind)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Fields of %s\n\n%s", names.Kind, generated)
	fmt.Fprintf(&b, "API `%s/%s`. %s\n\n", definition.Spec.Group, version.Name, cell(version.Schema.OpenAPIV3Schema.Description))
	fmt.Fprintf(&b, "[%s.md](../%s.md) has examples, conditions and limits. `kubectl explain %s.spec` prints the same descriptions.\n\n",
		guide, guide, names.Singular)
	b.WriteString(contents(append(p.sections, columnsSection)))
	b.WriteString(p.text.String())
	b.WriteString(columns(version.AdditionalPrinterColumns))
	return b.String()
}

// kindReference collects the sections of a page, one per object in the schema.
type kindReference struct {
	sections []string
	text     strings.Builder
}

// object adds the section of an object at a path, and of the objects below it.
func (p *kindReference) object(path string, s schema) {
	p.sections = append(p.sections, path)
	fmt.Fprintf(&p.text, "\n## %s\n\n", path)
	if s.Description != "" {
		fmt.Fprintf(&p.text, "%s\n\n", cell(s.Description))
	}
	p.text.WriteString("| field | type | description |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		field := s.Properties[name]
		fmt.Fprintf(&p.text, "| `%s` | %s | %s |\n", name, typeOf(path+"."+name, field), description(field, slices.Contains(s.Required, name)))
	}
	if len(s.XValidations) > 0 {
		p.text.WriteString("\nValidation:\n\n")
	}
	for _, rule := range s.XValidations {
		where := ""
		if rule.FieldPath != "" {
			where = "`" + strings.TrimPrefix(rule.FieldPath, ".") + "`: "
		}
		fmt.Fprintf(&p.text, "- %s%s\n", where, cell(rule.Message))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		below := path + "." + name
		if inner := entry(s.Properties[name]); foreign[below] == "" && len(inner.Properties) > 0 {
			p.object(below, inner)
		}
	}
}

// entry returns the schema of the entries of a list, and other schemas as they are.
func entry(s schema) schema {
	if s.Items != nil {
		return *s.Items.Schema
	}
	return s
}

// typeOf returns the type of the field at a path, with a link to the section of an object.
func typeOf(path string, s schema) string {
	switch {
	case foreign[path] != "":
		return foreign[path]
	case s.Items != nil:
		return "list of " + typeOf(path, *s.Items.Schema)
	case len(s.Properties) > 0:
		return fmt.Sprintf("[object](#%s)", anchor(path))
	case s.AdditionalProperties != nil:
		return "map of " + typeOf(path, *s.AdditionalProperties.Schema)
	case s.XIntOrString && s.Pattern == "":
		return "integer or string"
	case s.XIntOrString:
		return "quantity"
	case s.Format == "date-time":
		return "time (RFC 3339)"
	}
	return s.Type
}

// description returns the description of a field with its limits.
func description(s schema, required bool) string {
	sentences := []string{cell(s.Description)}
	add := func(format string, args ...any) { sentences = append(sentences, fmt.Sprintf(format, args...)) }
	if required {
		add("Required.")
	}
	if values := s.Enum; slices.ContainsFunc(values, func(value apiextensionsv1.JSON) bool {
		return !strings.Contains(s.Description, text(value))
	}) {
		var quoted []string
		for _, value := range values {
			quoted = append(quoted, "`"+text(value)+"`")
		}
		add("One of %s.", strings.Join(quoted, ", "))
	}
	switch {
	case s.Minimum != nil && s.Maximum != nil:
		add("From %.0f to %.0f.", *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		add("At least %.0f.", *s.Minimum)
	case s.Maximum != nil:
		add("At most %.0f.", *s.Maximum)
	}
	if s.MaxLength != nil {
		add("At most %d characters.", *s.MaxLength)
	}
	if s.MaxItems != nil {
		add("At most %d entries.", *s.MaxItems)
	}
	parts := []schema{s}
	if s.Items != nil {
		parts = append(parts, *s.Items.Schema)
	}
	for _, part := range parts {
		// The section of an object has its rules. Many rules repeat a format that the description has.
		if len(part.Properties) > 0 || len(part.XValidations) > 3 {
			continue
		}
		for _, rule := range part.XValidations {
			add("Validation: %s.", cell(rule.Message))
		}
	}
	return strings.Join(sentences, " ")
}

// text returns a value of an enumeration.
func text(value apiextensionsv1.JSON) string {
	var s string
	if json.Unmarshal(value.Raw, &s) != nil {
		return string(value.Raw) // not a string
	}
	return s
}

const columnsSection = "Columns of kubectl get"

// columns returns the section with the columns of kubectl get.
func columns(all []apiextensionsv1.CustomResourceColumnDefinition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n## %s\n\n| column | field | description |\n|---|---|---|\n", columnsSection)
	for _, column := range all {
		wide := ""
		if column.Priority > 0 {
			wide = " (`-o wide`)"
		}
		fmt.Fprintf(&b, "| %s%s | `%s` | %s |\n", strings.ToUpper(column.Name), wide, strings.TrimPrefix(column.JSONPath, "."), cell(column.Description))
	}
	return b.String()
}
