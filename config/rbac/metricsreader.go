package rbac

import (
	_ "embed" // for the role
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

//go:embed metrics-reader.yaml
var metricsReader []byte

// MetricsReader returns a fresh copy of the ClusterRole that lets its user read the metrics
// of a manager that serves them securely. An error means that this binary was built from a
// broken file.
func MetricsReader() (*rbacv1.ClusterRole, error) {
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(metricsReader, role); err != nil {
		return nil, fmt.Errorf("parse embedded file config/rbac/metrics-reader.yaml: %w", err)
	}
	return role, nil
}
