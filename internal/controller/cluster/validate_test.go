package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
)

func TestValidator(t *testing.T) {
	refused := func(spec v1alpha1.ClusterSpec) error {
		if spec.Paused {
			return &FieldError{Field: "spec.paused", Message: "not with this engine"}
		}
		return nil
	}
	validate := NewValidator(map[v1alpha1.Engine]Rule{
		v1alpha1.EngineLocal: refused, v1alpha1.EngineRKE: func(v1alpha1.ClusterSpec) error { return nil },
	})
	for _, test := range []struct {
		name string
		spec v1alpha1.ClusterSpec
		want string
	}{
		{"an empty spec", v1alpha1.ClusterSpec{}, ""},
		{"what the engine does not do", v1alpha1.ClusterSpec{Paused: true}, "spec.paused: Forbidden: not with this engine"},
		{"the engine that a path asks for", v1alpha1.ClusterSpec{Paused: true, ConfigPath: "/a"}, ""},
		{"the engine that a path asks for, as the original stored it", v1alpha1.ClusterSpec{Paused: true, LegacyConfigPath: "/a"}, ""},
		{"a schedule", v1alpha1.ClusterSpec{Snapshots: &commonv1.SnapshotSchedule{Schedule: "H 3 * * *", TimeZone: "Europe/Berlin"}}, ""},
		{
			"a time zone that is none", v1alpha1.ClusterSpec{Snapshots: &commonv1.SnapshotSchedule{Schedule: "@daily", TimeZone: "Local"}},
			`spec.snapshots.timeZone: Invalid value: "Local": time zone "Local" depends on the machine; use an IANA name such as Europe/Berlin`,
		},
		{"an engine that is none", v1alpha1.ClusterSpec{Engine: "steam"}, `spec.engine: Unsupported value: "steam": supported values: "local", "rke"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if all := validate(&v1alpha1.Cluster{Spec: test.spec}); len(all) > 0 {
				got = all.ToAggregate().Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the refusal (-want +got):\n%s", diff)
			}
		})
	}
}
