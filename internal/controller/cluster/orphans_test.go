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
	resident := func(name string, uid, home types.UID) Resident {
		return Resident{Name: name, UID: uid, Home: home, Dir: "/" + string(uid)}
	}
	object := func(name string, uid types.UID) v1alpha1.Cluster {
		return v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name, UID: uid}}
	}
	ending := object("demo", "1")
	ending.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	for _, tt := range []struct {
		name      string
		residents []Resident
		clusters  []v1alpha1.Cluster
		home      types.UID
		want      []Resident
	}{
		{name: "nothing runs", clusters: []v1alpha1.Cluster{object("demo", "1")}, home: "h"},
		{name: "it has its object", residents: []Resident{resident("demo", "1", "h")}, clusters: []v1alpha1.Cluster{object("demo", "1")}, home: "h"},
		{name: "it is being deleted", residents: []Resident{resident("demo", "1", "h")}, clusters: []v1alpha1.Cluster{ending}, home: "h"},
		{
			name: "its object is gone", residents: []Resident{resident("demo", "1", "h"), resident("other", "2", "h")},
			clusters: []v1alpha1.Cluster{object("other", "2")}, home: "h", want: []Resident{resident("demo", "1", "h")},
		},
		{
			name: "its name has come back, for another", residents: []Resident{resident("demo", "1", "h"), resident("demo", "2", "h")},
			clusters: []v1alpha1.Cluster{object("demo", "2")}, home: "h", want: []Resident{resident("demo", "1", "h")},
		},
		{name: "it belongs to another API", residents: []Resident{resident("demo", "1", "other")}, home: "h"},
		{name: "nobody knows to which API it belongs", residents: []Resident{resident("demo", "1", "")}, home: "h"},
		{name: "nobody knows which API this is", residents: []Resident{resident("demo", "1", "")}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := atHome(lost(tt.residents, tt.clusters), tt.home)
			if len(got)+len(tt.want) > 0 {
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("orphans (-want +got):\n%s", diff)
				}
			}
		})
	}
}
