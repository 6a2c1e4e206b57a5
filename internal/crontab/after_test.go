package crontab

import (
	"slices"
	"testing"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

func TestCircle(t *testing.T) {
	for _, test := range []struct {
		name  string
		after map[string][]string
		want  []string
	}{
		{"after nothing", nil, nil},
		{"after one", map[string][]string{"a": {"b"}}, nil},
		{"after two that have run after one", map[string][]string{"a": {"b", "c"}, "b": {"d"}, "c": {"d"}}, nil},
		{"after itself", map[string][]string{"a": {"a"}}, []string{"a", "a"}},
		{"of three", map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"a"}}, []string{"a", "c", "b", "a"}},
		{"before it", map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}, nil},
	} {
		got := Circle("a", func(name string) (all []stablev1.Predecessor) {
			for _, other := range test.after[name] {
				all = append(all, stablev1.Predecessor{Crontab: other})
			}
			return all
		})
		if !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
