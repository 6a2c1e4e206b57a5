package hosted

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

const (
	// labelUID has the UID of the Cluster, labelComponent the component: etcd or apiserver.
	labelUID       = v1alpha1.GroupName + "/cluster-uid"
	labelComponent = v1alpha1.GroupName + "/component"
	// annotationName has the name of the Cluster, annotationHash the hash of the spec that an object was made from.
	annotationName = v1alpha1.GroupName + "/cluster-name"
	annotationHash = v1alpha1.GroupName + "/applied-hash"
	// annotationVersion has the Kubernetes version that was applied last.
	annotationVersion = v1alpha1.GroupName + "/applied-version"
	// annotationClients has, at a Pod of an API server, the hash of the CAs of clients of which the kubelet was told.
	annotationClients = v1alpha1.GroupName + "/clients-hash"
)

// longestName is the number of characters of the name of a Cluster in the names of its objects: Pods of a StatefulSet need room for
// suffixes within the 63 characters of a label.
const longestName = 24

// place is where the objects of a cluster are.
type place struct {
	cluster         string // name of the Cluster
	uid             types.UID
	namespace, name string
}

// placeOf returns the place of the cluster of a request. The name begins with that of the Cluster, for users, and contains its UID,
// because a name can be reused.
func placeOf(r cluster.Request) place {
	name := strings.Trim(strings.ReplaceAll(r.Name[:min(len(r.Name), longestName)], ".", "-"), "-")
	if len(validation.IsDNS1035Label(name)) > 0 {
		name = strings.TrimRight("c-"+name, "-") // a Service does not begin with a digit
	}
	here := place{cluster: r.Name, uid: r.UID, name: name + "-" + strings.TrimRight(string(r.UID)[:min(len(r.UID), 13)], "-")}
	if r.Spec.Hosted != nil {
		here.namespace = r.Spec.Hosted.Namespace
	}
	return here
}

// String returns namespace and name, for messages.
func (p place) String() string { return p.namespace + "/" + p.name }

// etcd is the name of the objects of etcd.
func (p place) etcd() string { return p.name + "-etcd" }

// member returns the name of a member of etcd, and host its DNS name.
func (p place) member(index int32) string { return fmt.Sprintf("%s-%d", p.etcd(), index) }

func (p place) host(member string) string {
	return fmt.Sprintf("%s.%s.%s.svc", member, p.etcd(), p.namespace)
}

// labels are those of the objects of a component; empty for all.
func (p place) labels(component string) map[string]string {
	labels := map[string]string{labelUID: string(p.uid)}
	if component != "" {
		labels[labelComponent] = component
	}
	return labels
}

// selected selects all objects of the cluster.
func (p place) selected() client.MatchingLabels { return p.labels("") }

func (p place) meta(name, component string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: p.namespace, Name: name, Labels: p.labels(component), Annotations: map[string]string{annotationName: p.cluster},
	}
}

func (p place) stateMissing() error {
	return fmt.Errorf("%w: the Secret %s is gone, and with it the keys of the cluster: restore it from a backup, or delete this Cluster and create it again",
		cluster.ErrStateMissing, p)
}
