package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

func TestOrphans(t *testing.T) {
	hostedCluster := func(name string, uid, managementClusterUID types.UID) HostedCluster {
		return HostedCluster{Name: name, UID: uid, ManagementClusterUID: managementClusterUID, Dir: "/" + string(uid)}
	}
	object := func(name string, uid types.UID) v1alpha1.Cluster {
		return v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	ending := object("demo", "1")
	ending.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	for _, tt := range []struct {
		name                 string
		hosted               []HostedCluster
		clusters             []v1alpha1.Cluster
		managementClusterUID types.UID
		want                 []HostedCluster
	}{
		{name: "nothing runs", clusters: []v1alpha1.Cluster{object("demo", "1")}, managementClusterUID: "h"},
		{name: "it has its object", hosted: []HostedCluster{hostedCluster("demo", "1", "h")}, clusters: []v1alpha1.Cluster{object("demo", "1")}, managementClusterUID: "h"},
		{name: "it is being deleted", hosted: []HostedCluster{hostedCluster("demo", "1", "h")}, clusters: []v1alpha1.Cluster{ending}, managementClusterUID: "h"},
		{
			name: "its object is gone", hosted: []HostedCluster{hostedCluster("demo", "1", "h"), hostedCluster("other", "2", "h")},
			clusters: []v1alpha1.Cluster{object("other", "2")}, managementClusterUID: "h", want: []HostedCluster{hostedCluster("demo", "1", "h")},
		},
		{
			name: "its name has come back, for another", hosted: []HostedCluster{hostedCluster("demo", "1", "h"), hostedCluster("demo", "2", "h")},
			clusters: []v1alpha1.Cluster{object("demo", "2")}, managementClusterUID: "h", want: []HostedCluster{hostedCluster("demo", "1", "h")},
		},
		{name: "it belongs to another API", hosted: []HostedCluster{hostedCluster("demo", "1", "other")}, managementClusterUID: "h"},
		{name: "nobody knows to which API it belongs", hosted: []HostedCluster{hostedCluster("demo", "1", "")}, managementClusterUID: "h"},
		{name: "nobody knows which API this is", hosted: []HostedCluster{hostedCluster("demo", "1", "")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ownedByThisCluster(lost(tt.hosted, tt.clusters), tt.managementClusterUID)
			if len(got)+len(tt.want) > 0 {
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("orphans (-want +got):\n%s", diff)
				}
			}
		})
	}
}
