package cluster_test

import (
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

func TestCheckUpgrade(t *testing.T) {
	for _, test := range []struct {
		name, from, to string
		accepted       bool
	}{
		{"the version is not known", "", "v1.36.3", true},
		{"the same version", "v1.36.3", "v1.36.3", true},
		{"a newer patch version", "v1.36.1", "v1.36.3", true},
		{"an older patch version", "v1.36.3", "v1.36.1", true},
		{"the next minor version", "v1.35.4", "v1.36.3", true},
		{"two minor versions at once", "v1.34.9", "v1.36.3", false},
		{"an older minor version", "v1.36.3", "v1.35.4", false},
		{"another major version", "v1.36.3", "v2.36.3", false},
		{"no version", "v1.36.3", "latest", false},
	} {
		err := cluster.CheckUpgrade(test.from, test.to)
		if (err == nil) != test.accepted || err != nil && !errors.Is(err, cluster.ErrVersion) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
