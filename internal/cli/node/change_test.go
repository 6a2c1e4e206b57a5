package node

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestFreeIndex(t *testing.T) {
	var full []int
	for index := range 32 {
		full = append(full, index)
	}
	for _, test := range []struct {
		indexes []int
		names   []string
		want    int
		wrong   string
	}{
		{[]int{0, 1}, nil, 2, ""},
		{[]int{0, 2}, nil, 1, ""},
		{[]int{0, 2}, []string{"keelson-node-5"}, 4, ""},
		{[]int{0, 2}, []string{"keelson-node-3"}, 0, "the node keelson-node-3 exists already"},
		{[]int{0}, []string{"web"}, 0, "cannot be named web: choose a name from keelson-node-2 to keelson-node-32"},
		{full, nil, 0, "there are 32 nodes already"},
	} {
		got, err := freeIndex(test.indexes, test.names)
		if test.wrong == "" && (err != nil || got != test.want) {
			t.Errorf("%v %v: %d, %v, want %d", test.indexes, test.names, got, err, test.want)
		}
		if test.wrong != "" && (err == nil || !strings.Contains(err.Error(), test.wrong)) {
			t.Errorf("%v %v: %v, want %q", test.indexes, test.names, err, test.wrong)
		}
	}
}

func TestRefuseLosses(t *testing.T) {
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{
		ClaimRef:               &corev1.ObjectReference{Namespace: "shop", Name: "orders"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/v"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"one"}}},
		}}}},
	}}
	elsewhere := volume.DeepCopy()
	elsewhere.Name = "elsewhere"
	elsewhere.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"two"}
	owned := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "owned"}, Spec: corev1.PodSpec{NodeName: "one"}}
	owner := true
	owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r", UID: "u", Controller: &owner}}
	alone := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "alone"}, Spec: corev1.PodSpec{NodeName: "one"}}

	if err := refuseLosses(t.Context(), fake.NewClientset(elsewhere, owned), "one"); err != nil {
		t.Errorf("nothing would be lost: %v", err)
	}
	err := refuseLosses(t.Context(), fake.NewClientset(volume, alone, owned), "one")
	const want = "no controller would replace pod/alone of namespace shop; the data is on the node of pvc/orders of namespace shop; " +
		"delete them first, or use --force to lose them"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}
