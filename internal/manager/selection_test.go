package manager

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSelectControllers(t *testing.T) {
	all := []Controller{{Name: "foo"}, {Name: "sampleresource"}, {Name: "crontab"}}
	tests := []struct {
		name      string
		selectors []string
		want      []string
		err       string
	}{
		{name: "everything", selectors: []string{"*"}, want: []string{"foo", "sampleresource", "crontab"}},
		{name: "everything but one", selectors: []string{"*", "-sampleresource"}, want: []string{"foo", "crontab"}},
		{name: "the order does not matter", selectors: []string{"-foo", "*"}, want: []string{"sampleresource", "crontab"}},
		{name: "one", selectors: []string{"foo"}, want: []string{"foo"}},
		{name: "a name beside everything", selectors: []string{"*", "foo"}, want: []string{"foo", "sampleresource", "crontab"}},
		{name: "twice the same is once", selectors: []string{"foo", "foo"}, want: []string{"foo"}},
		{
			name: "a name that does not exist", selectors: []string{"*", "-bar"},
			err: `there is no controller "bar"; there are foo, sampleresource, crontab`,
		},
		{name: "both ways", selectors: []string{"foo", "-foo"}, err: `controller "foo" is both selected and excluded`},
		{name: "nothing", selectors: nil, err: "selects nothing; there are foo, sampleresource, crontab"},
		{name: "only exclusions", selectors: []string{"-foo"}, err: "selects nothing; there are foo, sampleresource, crontab"},
		{name: "an empty name", selectors: []string{""}, err: `there is no controller ""; there are foo, sampleresource, crontab`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			selected, err := selectControllers(all, tt.selectors)
			var text string
			if err != nil {
				text = err.Error()
			}
			if diff := cmp.Diff(tt.err, text); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			var got []string
			for _, c := range selected {
				got = append(got, c.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("selected (-want +got):\n%s", diff)
			}
		})
	}
}
