package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJoined(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"one line", "A port.", "A port."},
		{"a paragraph", "A port of the guest\nthat is forwarded.\nNone by default.", "A port of the guest that is forwarded. None by default."},
		{"two paragraphs", "A port\nof it.\n\nNone by\ndefault.", "A port of it.\n\nNone by default."},
		{"a list", "One of:\n- Allow: as many\nas there are;\n- Forbid.", "One of:\n- Allow: as many as there are;\n- Forbid."},
		{"an example", "Such as\n  a: b\n  c: d\n", "Such as\n  a: b\n  c: d\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := joined(tt.text); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRulesAboutChangesAreNoRulesOfATemplate(t *testing.T) {
	rules := func(texts ...string) []any {
		var all []any
		for _, text := range texts {
			all = append(all, map[string]any{"rule": text})
		}
		return all
	}
	schema := func(field string, inner map[string]any) map[string]any {
		return map[string]any{"type": "object", "properties": map[string]any{field: inner}}
	}
	const key = "x-kubernetes-validations"
	got := schema("spec", schema("template", map[string]any{
		key: rules("self == oldSelf"), "items": map[string]any{key: rules("self > 0", "has(self.a) == has(oldSelf.a)")},
	}))
	got[key] = rules("self == oldSelf")
	walkTemplates(got)
	want := schema("spec", schema("template", map[string]any{"items": map[string]any{key: rules("self > 0")}}))
	want[key] = rules("self == oldSelf")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("schema (-want +got):\n%s", diff)
	}
}

func TestDefaultSentence(t *testing.T) {
	for _, tt := range []struct {
		value       any
		description string
		want        string
	}{
		{"Allow", "A policy.", " The default is Allow."},
		{int64(1), "A number.", " The default is 1."},
		{"Allow", "A policy; Allow by default.", ""},
		{"", "A name.", ""},
		{map[string]any{}, "A spec.", ""},
		{nil, "A field.", ""},
	} {
		if got := defaultSentence(tt.value, tt.description); got != tt.want {
			t.Errorf("%v, %q: got %q, want %q", tt.value, tt.description, got, tt.want)
		}
	}
}
