// Command descriptions joins the lines of paragraphs in the descriptions of definitions:
//
//	go run ./hack/descriptions FILE...
//
// kubectl explain breaks lines at the width of a terminal, and keeps those that are there: comments of Go, which are as
// wide, would come out as a long and a short line in turns.
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
		fmt.Fprintln(os.Stderr, "usage: descriptions FILE...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		if err := rewrite(path); err != nil {
			fmt.Fprintf(os.Stderr, "error: join the lines of descriptions in %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

// rewrite joins lines in a file with one definition.
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

// walk joins lines in all descriptions. A property of that name is no text.
func walk(part any) {
	switch part := part.(type) {
	case map[string]any:
		if text, ok := part["description"].(string); ok {
			part["description"] = joined(text)
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

// opening is how a line begins that goes on with nothing: an item of a list, or an example that is set off.
var opening = regexp.MustCompile(`^([-*] |[0-9]+[.)] |\s)`)

// joined returns a text with each paragraph on a line of its own.
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
