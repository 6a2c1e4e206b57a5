package transcript

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRender(t *testing.T) {
	for _, test := range []struct {
		name string
		text string
		want []string
	}{
		{"lines", "one\r\ntwo\r\n", []string{"one", "two", ""}},
		{"a line feed alone goes straight down", "one\ntwo", []string{"one", "   two"}},
		{"an overwritten line keeps its end", "three\rtwo", []string{"twoee"}},
		{"a cleared line does not", "three\r\x1b[2Ktwo", []string{"two"}},
		{"clearing affects only the last row of a wrapped line", "eightcolumns\r\x1b[2Kend", []string{"eightcol", "end"}},
		{"a full row ends there", "eightcol\r\nend", []string{"eightcol", "end"}},
		{"other sequences stay visible", "\x1b[1mbold", []string{"\x1b[1mbold"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, render(test.text, 8)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
