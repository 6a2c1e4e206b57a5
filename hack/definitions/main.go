// Command definitions makes generated CRDs easier to read for users:
//
//		go run ./hack/definitions FILE...
//
//	  - It joins the lines of each paragraph in descriptions. kubectl explain wraps lines at the width of the terminal and
//	    keeps existing breaks, so the lines of a Go comment would come out long and short in turns.
//	  - It adds defaults to descriptions that do not mention them, because kubectl explain does not show them.
//	  - It removes anyOf from int-or-string fields. x-kubernetes-int-or-string means the same, and the API server would
//	    reject a wrong type with "must validate at least one schema" besides the useful message.
package main

import (
	"fmt"
	"os"
	"regexp"
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
