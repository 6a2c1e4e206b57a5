package cluster

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// Rule checks whether an engine supports a spec, whatever the state of the cluster. The error is a *FieldError.
type Rule func(v1alpha1.ClusterSpec) error

// NewValidator returns an admission check for Clusters of a manager with these engines, each with its rule. It reports the errors
// that the CRD's schema cannot detect. The conditions of an existing Cluster report the same errors.
func NewValidator(rules map[v1alpha1.Engine]Rule) func(*v1alpha1.Cluster) field.ErrorList {
	return func(cluster *v1alpha1.Cluster) field.ErrorList {
		migrated := cluster.DeepCopy()
		migrate(migrated)
		engine := migrated.Spec.EngineOrDefault()
		rule, found := rules[engine]
		if !found {
			var known []string
			for _, name := range slices.Sorted(maps.Keys(rules)) {
				known = append(known, string(name))
			}
			return field.ErrorList{field.NotSupported(field.NewPath("spec", "engine"), engine, known)}
		}
		var wrong *FieldError
		if err := rule(migrated.Spec); errors.As(err, &wrong) {
			return field.ErrorList{field.Forbidden(field.NewPath(wrong.Field), wrong.Message)}
		}
		if migrated.Spec.Snapshots != nil {
			if _, invalid := snapshots.Times(newSchedule(migrated, stop{})); invalid != nil {
				return field.ErrorList{invalid}
			}
		}
		return nil
	}
}
