package main

import "testing"

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
