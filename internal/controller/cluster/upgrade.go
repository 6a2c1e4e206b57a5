package cluster

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// CheckUpgrade returns an ErrVersion if the data of a cluster with the Kubernetes version from cannot be used by the version to: minor
// versions can change only to the next, as the version skew policy of Kubernetes requires, patch versions in both directions. An empty
// version is not known, and accepted.
func CheckUpgrade(from, to string) error {
	if from == "" || to == "" {
		return nil
	}
	was, err := version.ParseSemantic(from)
	if err != nil {
		return fmt.Errorf("%w: the version of the cluster: %w", ErrVersion, err)
	}
	wanted, err := version.ParseSemantic(to)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrVersion, err)
	case was.Major() != wanted.Major() || wanted.Minor() < was.Minor():
		return fmt.Errorf("%w: the cluster has %s, whose data %s cannot read: choose the same minor version or the next", ErrVersion, from, to)
	case wanted.Minor() > was.Minor()+1:
		return fmt.Errorf("%w: Kubernetes cannot skip minor versions: upgrade from %s to v%d.%d first", ErrVersion, from, was.Major(), was.Minor()+1)
	}
	return nil
}
