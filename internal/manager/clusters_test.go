package manager

import (
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// Real nodes give the rights of the manager on its host, so its administrator allows them.
func TestRealNodesNeedTheFlag(t *testing.T) {
	o := NewOptions()
	if _, err := o.machine()(); err == nil || !strings.Contains(err.Error(), "clusters.realNodes") {
		t.Errorf("by default: %v", err)
	}
	o.ClusterRealNodes = true
	if _, err := o.machine()(); err == nil || !strings.Contains(err.Error(), "no programs for real nodes") {
		t.Errorf("without their programs: %v", err)
	}
	folder := t.TempDir()
	o.NodePrograms = func() (string, error) { return folder, nil }
	if _, err := o.machine()(); err == nil || !strings.Contains(err.Error(), "missing: ") || !strings.Contains(err.Error(), folder) {
		t.Errorf("in an empty folder: %v", err)
	}
}

// APIs of Clusters listen beyond loopback only where the administrator of the manager allows it.
func TestAddressesOfClusters(t *testing.T) {
	o := NewOptions()
	spec := v1alpha1.ClusterSpec{APIServer: &v1alpha1.APIServer{Address: "192.0.2.7"}}
	check := func() int {
		return len(clusterRules(hook{Options: &o}).Errors(&v1alpha1.Cluster{Spec: spec}))
	}
	if check() != 1 {
		t.Error("by default, an address is accepted")
	}
	if o.ClusterAddresses = []string{"192.0.2.0/24"}; check() != 0 {
		t.Error("an address in an allowed network is rejected")
	}
	if spec.APIServer.Address = "198.51.100.1"; check() != 1 {
		t.Error("an address in another network is accepted")
	}
	o.ClusterAddresses = []string{"192.0.2.7"}
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), `clusters.addressAllow: 192.0.2.7: "192.0.2.7" is not a network`) {
		t.Errorf("an address as a network: %v", err)
	}
}
