package version

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFromBuild(t *testing.T) {
	clientGo := []*debug.Module{{Path: "k8s.io/api", Version: "v0.1.0"}, {Path: "k8s.io/client-go", Version: "v0.37.2"}}
	tests := []struct {
		name       string
		stamped    string
		build      *debug.BuildInfo
		keelson    string
		kubernetes string
	}{
		{
			name:    "the linker's stamp wins",
			stamped: "v1.2.3", build: &debug.BuildInfo{Main: debug.Module{Version: "v9.9.9"}, Deps: clientGo},
			keelson: "v1.2.3", kubernetes: "v1.37.2",
		},
		{
			name:    "go install module@version",
			build:   &debug.BuildInfo{Main: debug.Module{Version: "v0.4.0"}, Deps: clientGo},
			keelson: "v0.4.0", kubernetes: "v1.37.2",
		},
		{
			name: "go build in a checkout with changes",
			build: &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{
				{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.modified", Value: "true"},
			}},
			keelson: "devel-0123456789ab-dirty", kubernetes: "unknown",
		},
		{
			name: "replaced library",
			build: &debug.BuildInfo{Deps: []*debug.Module{{
				Path: "k8s.io/client-go", Version: "v0.37.2", Replace: &debug.Module{Version: "v0.38.0-alpha.1"},
			}}},
			keelson: "devel", kubernetes: "v1.38.0-alpha.1",
		},
		{name: "nothing is known", keelson: "devel", kubernetes: "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := Info{
				Keelson: tt.keelson, Kubernetes: tt.kubernetes,
				Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			}
			if diff := cmp.Diff(want, fromBuild(tt.stamped, tt.build)); diff != "" {
				t.Errorf("fromBuild (-want +got):\n%s", diff)
			}
		})
	}
}
