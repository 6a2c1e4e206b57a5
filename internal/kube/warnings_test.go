package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWarningsToContext(t *testing.T) {
	var first, second []string
	for _, one := range []struct {
		to   *[]string
		code int
		text string
	}{{&first, 299, "a"}, {&second, 299, "b"}, {&first, 299, "c"}, {&first, 199, "of another kind"}, {&first, 299, ""}} {
		WarningsToContext{}.HandleWarningHeaderWithContext(WithWarnings(t.Context(), one.to), one.code, "-", one.text)
	}
	WarningsToContext{}.HandleWarningHeaderWithContext(t.Context(), 299, "-", "for nobody")
	if diff := cmp.Diff([][]string{{"a", "c"}, {"b"}}, [][]string{first, second}); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
