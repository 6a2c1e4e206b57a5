package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// places are the parts of a template that are not YAML. While an object is rendered, it has a token
// for each.
type places []place

type place struct {
	form form
	text string
}

// form is the way a place is inserted.
type form int

const (
	// inline is an expression in a string.
	inline form = iota
	// block is an expression whose value is the value of a key, as YAML.
	block
	// optional is a block whose key is left out as well if the value is empty.
	optional
	// lines replace an item of a list, or a key.
	lines
)

const token = "XKEELSONX"

// add returns the token of a new place.
func (p *places) add(f form, text string) string {
	*p = append(*p, place{f, text})
	return fmt.Sprintf("%s%04d", token, len(*p)-1)
}

func (p *places) inline(expression string) string   { return p.add(inline, expression) }
func (p *places) block(expression string) string    { return p.add(block, expression) }
func (p *places) optional(expression string) string { return p.add(optional, expression) }
func (p *places) lines(text string) string          { return p.add(lines, text) }

var (
	wholeLine = regexp.MustCompile(`(?m)^( *)(?:- )?` + token + `(\d{4})(?:: .*)?$`)
	ofKey     = regexp.MustCompile(`(?m)^( *)((?:- )?)([\w./-]+): ` + token + `(\d{4})$`)
	anywhere  = regexp.MustCompile(token + `(\d{4})`)
)

// render returns an object as a template.
func (p places) render(o any) (string, error) {
	raw, err := yaml.Marshal(o)
	if err != nil {
		return "", err
	}
	// Template syntax in the object itself is literal text.
	text := strings.ReplaceAll(string(raw), "{{", `{{ "{{" }}`)
	text = wholeLine.ReplaceAllStringFunc(text, func(line string) string {
		match := wholeLine.FindStringSubmatch(line)
		at := p.at(match[2])
		if at.form != lines {
			return line
		}
		return match[1] + strings.ReplaceAll(strings.TrimSuffix(at.text, "\n"), "\n", "\n"+match[1])
	})
	text = ofKey.ReplaceAllStringFunc(text, func(line string) string {
		match := ofKey.FindStringSubmatch(line)
		indent, key, at := match[1]+strings.Repeat(" ", len(match[2])), match[3], p.at(match[4])
		deeper := len(indent) + 2
		switch at.form {
		case block:
			return fmt.Sprintf("%s%s%s:\n%s  {{- toYaml %s | nindent %d }}", match[1], match[2], key, indent, at.text, deeper)
		case optional:
			return fmt.Sprintf("%s{{- with %s }}\n%s%s:\n%s  {{- toYaml . | nindent %d }}\n%s{{- end }}", indent, at.text, indent, key, indent, deeper, indent)
		default:
			return line
		}
	})
	var left error
	text = anywhere.ReplaceAllStringFunc(text, func(found string) string {
		at := p.at(strings.TrimPrefix(found, token))
		if at.form != inline {
			left = fmt.Errorf("%q is not on its own line", at.text)
		}
		return "{{ " + at.text + " }}"
	})
	return text, left
}

func (p places) at(digits string) place {
	i, err := strconv.Atoi(digits)
	if err != nil {
		panic(err) // the patterns match digits only
	}
	return p[i]
}
