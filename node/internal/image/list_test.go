package image

import (
	"slices"
	"testing"
)

func TestGiven(t *testing.T) {
	const first, second = "sha256:1111", "sha256:2222"
	for _, test := range []struct {
		name  string
		found []Image
		want  []string // names
	}{
		{"nothing", nil, nil},
		{"loaded from a file", []Image{{"sha256:aaaa", first, 1}, {"docker.io/library/app:v1", first, 1}}, []string{"docker.io/library/app:v1"}},
		{
			"pulled by its tag",
			[]Image{{"192.0.2.10:5000/app:v1", first, 1}, {"192.0.2.10:5000/app@" + first, first, 1}, {"sha256:aaaa", first, 1}},
			[]string{"192.0.2.10:5000/app:v1"},
		},
		{"pulled by its digest", []Image{{"example.com/app@" + first, first, 1}, {"sha256:aaaa", first, 1}}, []string{"example.com/app@" + first}},
		{
			"two tags",
			[]Image{{"example.com/app:v2", first, 1}, {"example.com/app@" + first, first, 1}, {"example.com/app:v1", first, 1}},
			[]string{"example.com/app:v1", "example.com/app:v2"},
		},
		{
			"pulled by a tag, and by its digest from somewhere else",
			[]Image{{"example.com/app:v1", first, 1}, {"example.com/app@" + first, first, 1}, {"example.org/app@" + first, first, 1}},
			[]string{"example.com/app:v1", "example.org/app@" + first},
		},
		{
			"the tag is another image's now",
			[]Image{{"example.com/app:v1", second, 1}, {"example.com/app@" + first, first, 1}, {"example.com/app@" + second, second, 1}},
			[]string{"example.com/app:v1", "example.com/app@" + first},
		},
		{"loaded without a name", []Image{{"import@" + first, first, 1}, {"sha256:aaaa", first, 1}}, []string{"import@" + first}},
		{"its name is gone", []Image{{"sha256:aaaa", first, 1}}, []string{"sha256:aaaa"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, i := range given(test.found) {
				got = append(got, i.Name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}
