package drain

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// pod returns a Pod on a node, of a controller of this kind, if any.
func pod(name, node, controller string, phase corev1.PodPhase) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: phase}}
	if controller != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: controller, Name: "owner", Controller: ptr.To(true)}}
	}
	return p
}

// volume returns a local volume of a node, bound to a claim, if any.
func volume(name, node, claim string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.Local = &corev1.LocalVolumeSource{Path: "/data"}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}}
	if claim != "" {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: claim}
	}
	return v
}

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		objects []runtime.Object
		want    []string // in the error; nil for none
	}{
		"nothing":                      {},
		"a Pod of a controller":        {objects: []runtime.Object{pod("web", "node-2", "ReplicaSet", corev1.PodRunning)}},
		"a Pod of a DaemonSet":         {objects: []runtime.Object{pod("agent", "node-2", "DaemonSet", corev1.PodRunning)}},
		"a Pod that has ended":         {objects: []runtime.Object{pod("done", "node-2", "", corev1.PodSucceeded)}},
		"a Pod without a controller":   {[]runtime.Object{pod("bare", "node-2", "", corev1.PodRunning)}, []string{"pod/bare of namespace default", "delete them first"}},
		"a volume of another node":     {objects: []runtime.Object{volume("v", "node-1", "data")}},
		"a volume of a claim":          {[]runtime.Object{volume("v", "node-2", "data")}, []string{"pvc/data of namespace default"}},
		"a volume that was released":   {[]runtime.Object{volume("v", "node-2", "")}, []string{"pv/v"}},
		"a volume that is not local":   {objects: []runtime.Object{&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "nfs"}}}},
		"a volume of every other node": {objects: []runtime.Object{&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "any"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{}}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(test.objects...)
			volumes, err := Volumes(t.Context(), client, "node-2")
			if err != nil {
				t.Fatal(err)
			}
			err = Check(t.Context(), client, "node-2", volumes)
			if (err != nil) != (test.want != nil) {
				t.Fatalf("the error is %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("the error %q does not say %q", err, part)
				}
			}
		})
	}
}
