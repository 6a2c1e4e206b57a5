package cluster

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// Rule refuses what an engine cannot do, whatever there is of the cluster. The error is a *FieldError.
type Rule func(v1alpha1.ClusterSpec) error

// NewValidator returns what refuses Clusters for a manager with these engines, each with its rule. What it returns gives
// every mistake that the definition lets through, with its field: what the conditions of a Cluster that is stored all the
// same say.
func NewValidator(rules map[v1alpha1.Engine]Rule) func(*v1alpha1.Cluster) field.ErrorList {
	return func(cluster *v1alpha1.Cluster) field.ErrorList {
		migrated := cluster.DeepCopy()
		migrate(migrated)
		engine := engineOf(migrated.Spec)
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
		return nil
	}
}
