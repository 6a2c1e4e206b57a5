// Command definitions makes generated CRDs easier to read for users:
//
//		go run ./hack/definitions FILE...
//
//	  - It joins the lines of each paragraph in descriptions. kubectl explain wraps lines at the width of the terminal and
//	    keeps existing breaks, so the lines of a Go comment would come out long and short in turns.
//	  - It adds defaults to descriptions that do not mention them, because kubectl explain does not show them.
//	  - It removes anyOf from int-or-string fields. x-kubernetes-int-or-string means the same, and the API server would
//	    reject a wrong type with "must validate at least one schema" besides the useful message.
//	  - It removes rules about changes from templates: what an object cannot change, the next object of a template can have.
package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: definitions FILE...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		if err := rewrite(path); err != nil {
			fmt.Fprintf(os.Stderr, "error: rewrite the definition in %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// rewrite rewrites a file with one definition.
func rewrite(path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var definition map[string]any
	if err := yaml.UnmarshalStrict(raw, &definition); err != nil {
		return err
	}
	walk(definition)
	walkTemplates(definition)
	if raw, err = yaml.Marshal(definition); err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte("---\n"), raw...), 0o644)
}

// walk rewrites a part of a definition. A property named description is not text.
func walk(part any) {
	switch part := part.(type) {
	case map[string]any:
		if text, ok := part["description"].(string); ok {
			part["description"] = joined(text) + defaultSentence(part["default"], text)
		}
		if part["x-kubernetes-int-or-string"] == true {
			delete(part, "anyOf")
		}
		for _, inner := range part {
			walk(inner)
		}
	case []any:
		for _, inner := range part {
			walk(inner)
		}
	}
}

// walkTemplates removes the rules about changes from the properties named template in a part of a definition.
func walkTemplates(part any) {
	switch part := part.(type) {
	case map[string]any:
		if properties, ok := part["properties"].(map[string]any); ok {
			allowChanges(properties["template"])
		}
		for _, inner := range part {
			walkTemplates(inner)
		}
	case []any:
		for _, inner := range part {
			walkTemplates(inner)
		}
	}
}

// allowChanges removes the rules about changes from a part of a schema.
func allowChanges(part any) {
	const key = "x-kubernetes-validations"
	switch part := part.(type) {
	case map[string]any:
		if rules, ok := part[key].([]any); ok {
			kept := slices.DeleteFunc(rules, func(rule any) bool { return strings.Contains(fmt.Sprint(rule.(map[string]any)["rule"]), "oldSelf") })
			if part[key] = kept; len(kept) == 0 {
				delete(part, key)
			}
		}
		for _, inner := range part {
			allowChanges(inner)
		}
	case []any:
		for _, inner := range part {
			allowChanges(inner)
		}
	}
}

// defaultSentence returns a sentence about a default that the description does not mention; empty if there is none.
func defaultSentence(value any, description string) string {
	if value == "" || strings.Contains(strings.ToLower(description), "default") {
		return ""
	}
	switch value.(type) {
	case string, bool, int64, float64:
		return fmt.Sprintf(" The default is %v.", value)
	}
	return ""
}

// opening matches lines that start a new paragraph: list items and indented examples.
var opening = regexp.MustCompile(`^([-*] |[0-9]+[.)] |\s)`)

// joined returns a text with each paragraph on one line.
func joined(text string) string {
	var b strings.Builder
	before := ""
	for i, line := range strings.Split(text, "\n") {
		switch {
		case i == 0:
		case line == "" || before == "" || opening.MatchString(line):
			b.WriteByte('\n')
		default:
			b.WriteByte(' ')
		}
		b.WriteString(line)
		before = line
	}
	return b.String()
}
