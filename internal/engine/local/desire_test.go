package local

import (
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

func TestValidateUpgradeFrom(t *testing.T) {
	for _, test := range []struct {
		name     string
		was      *applied
		to       string
		accepted bool
	}{
		{"a new cluster", nil, "v1.36.3", true},
		{"the version is not known", &applied{}, "v1.36.3", true},
		{"the same version", &applied{Version: "v1.36.3"}, "v1.36.3", true},
		{"a newer patch version", &applied{Version: "v1.36.1"}, "v1.36.3", true},
		{"an older patch version", &applied{Version: "v1.36.3"}, "v1.36.1", true},
		{"the next minor version", &applied{Version: "v1.35.4"}, "v1.36.3", true},
		{"two minor versions at once", &applied{Version: "v1.34.9"}, "v1.36.3", false},
		{"an older minor version", &applied{Version: "v1.36.3"}, "v1.35.4", false},
		{"another major version", &applied{Version: "v1.36.3"}, "v2.36.3", false},
	} {
		err := desire{version: test.to}.validateUpgradeFrom(test.was)
		if (err == nil) != test.accepted || err != nil && !errors.Is(err, cluster.ErrVersion) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
