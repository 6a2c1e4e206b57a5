// Command crontabschema completes the generated CRD of CronTab with what markers cannot express:
//
// go run ./hack/crontabschema FILE
//
//   - Fields of an inlined struct are optional: a jobTemplate does not require the containers of a pod, because it may
//     have a spec instead. With a spec, all fields of a pod are rejected.
//   - A CronTab accepts what a CronJob accepts: the metadata of templates as tools write it, and lists with two entries
//     of the same name, which Kubernetes itself handles.
//   - A schedule is validated field by field, a time zone by its name, and a date by the calendar, with expressions that
//     would be unreadable in a comment.
//   - A pod occurs twice in it, and is large: descriptions are cut, and what Jobs rarely have is validated by the dry run
//     of the Job only. The definition must fit into the annotation of client-side apply.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

type schema = apiextensionsv1.JSONSchemaProps

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crontabschema FILE")
		os.Exit(2)
	}
	if err := rewrite(os.Args[1]); err != nil {
		fmt.Fprintf(os.Stderr, "error: complete the CRD in %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// rewrite completes the CRD in a file.
func rewrite(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(raw, &crd); err != nil {
		return err
	}
	for i := range crd.Spec.Versions {
		if err := complete(crd.Spec.Versions[i].Schema.OpenAPIV3Schema); err != nil {
			return err
		}
	}
	if raw, err = marshal(&crd); err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o644)
}

// marshal writes a CRD without a status, as controller-gen does.
func marshal(crd *apiextensionsv1.CustomResourceDefinition) ([]byte, error) {
	raw, err := json.Marshal(crd)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	delete(object, "status")
	raw, err = yaml.Marshal(object)
	return append([]byte("---\n"), raw...), err
}

// complete changes the schema of a CronTab.
func complete(crontab *schema) error {
	spec, ok := crontab.Properties["spec"]
	if !ok {
		return errors.New("spec is missing")
	}
	template, ok := spec.Properties["jobTemplate"]
	if !ok || template.Properties["spec"].Properties == nil || template.Properties["containers"].Items == nil {
		return errors.New("spec.jobTemplate does not have the fields of a Job and of a pod")
	}
	crontab.XValidations = append(crontab.XValidations, completeTemplate(&template)...)
	spec.Properties["jobTemplate"] = template

	schedule := spec.Properties["schedule"]
	schedule.XValidations = scheduleRules()
	spec.Properties["schedule"] = schedule
	spec.Properties["schedules"].Items.Schema.XValidations = scheduleRules()
	spec.Properties["excludeDates"].Items.Schema.XValidations = dateRules()
	zone := spec.Properties["timeZone"]
	zone.XValidations = zoneRules()
	spec.Properties["timeZone"] = zone
	crontab.Properties["spec"] = spec
	return nil
}

// completeTemplate changes the schema of a template, and returns rules for the CronTab.
// Rules in the schema of the template itself would cost the API server another set of
// types of a whole pod, at every start.
func completeTemplate(template *schema) []apiextensionsv1.ValidationRule {
	description := template.Description
	cut(template)
	template.Description = description
	var beside []string
	for name := range template.Properties {
		if name == "spec" || name == "metadata" {
			continue
		}
		beside = append(beside, fmt.Sprintf("!has(self.spec.jobTemplate.%s)", name))
	}
	slices.Sort(beside)
	template.Required = nil
	completePod(template)
	job := template.Properties["spec"]
	podTemplate := job.Properties["template"]
	pod := podTemplate.Properties["spec"]
	completePod(&pod)
	podTemplate.Properties["spec"] = pod
	podTemplate.Required = append(podTemplate.Required, "spec")
	job.Properties["template"] = podTemplate
	template.Properties["spec"] = job
	walk(template, func(name string, s *schema) {
		if s.XListType != nil && *s.XListType == "map" {
			atomic := "atomic"
			s.XListType, s.XListMapKeys = &atomic, nil
		}
		if name == "metadata" {
			completeMetadata(s)
		}
	})
	required := apiextensionsv1.FieldValueRequired
	return []apiextensionsv1.ValidationRule{{
		Rule:      "!has(self.spec.jobTemplate) || !has(self.spec.jobTemplate.spec) || " + strings.Join(beside, " && "),
		FieldPath: ".spec.jobTemplate",
		Message:   "fields of a pod and spec exclude each other: with spec, they belong in spec.template.spec",
	}, {
		Rule:      "!has(self.spec.jobTemplate) || has(self.spec.jobTemplate.spec) || has(self.spec.jobTemplate.containers)",
		FieldPath: ".spec.jobTemplate.containers",
		Reason:    &required,
		Message:   "set the containers of the pod, or spec for a JobTemplateSpec as in a CronJob",
	}}
}

// completePod changes the schema of a pod spec into that of a Job's pod.
func completePod(pod *schema) {
	containers := pod.Properties["containers"]
	one := int64(1)
	containers.MinItems = &one
	pod.Properties["containers"] = containers
	policy := pod.Properties["restartPolicy"]
	policy.Enum = []apiextensionsv1.JSON{{Raw: []byte(`"Never"`)}, {Raw: []byte(`"OnFailure"`)}}
	pod.Properties["restartPolicy"] = policy
}

// completeMetadata describes the metadata of a template, and accepts what kubectl and other tools
// write there.
func completeMetadata(metadata *schema) {
	for name, description := range map[string]string{
		"annotations": "Annotations of what is made from this template.",
		"labels":      "Labels of what is made from this template.",
		"name":        "Not used: the name is made by the controller.",
		"namespace":   "Not used: the namespace is that of the CronTab.",
		"finalizers":  "Not used.",
	} {
		property, found := metadata.Properties[name]
		if !found {
			continue
		}
		property.Description = description
		metadata.Properties[name] = property
	}
	if metadata.Properties != nil {
		metadata.Properties["creationTimestamp"] = schema{
			Type: "string", Format: "date-time", Nullable: true,
			Description: "Not used; tools write null here.",
		}
	}
}

// walk calls visit for a schema and all its descendants.
func walk(s *schema, visit func(name string, s *schema)) {
	var down func(name string, s *schema)
	down = func(name string, s *schema) {
		visit(name, s)
		for name, property := range s.Properties {
			down(name, &property)
			s.Properties[name] = property
		}
		if s.Items != nil && s.Items.Schema != nil {
			down("", s.Items.Schema)
		}
		if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
			down("", s.AdditionalProperties.Schema)
		}
	}
	down("", s)
}

func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.Join(strings.Fields(text), " ")
	for end := 0; ; {
		next := strings.Index(text[end:], ". ")
		if next < 0 {
			return text
		}
		end += next + 1
		if before := strings.ToLower(text[:end]); !strings.HasSuffix(before, "e.g.") && !strings.HasSuffix(before, "i.e.") {
			return text[:end]
		}
	}
}
