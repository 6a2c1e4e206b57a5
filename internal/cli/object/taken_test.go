package object

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// found is a client.Reader with one ConfigMap, or none.
type found struct {
	client.Reader
	object *corev1.ConfigMap
}

func (f found) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if f.object == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, key.Name)
	}
	f.object.DeepCopyInto(into.(*corev1.ConfigMap))
	return nil
}

func TestTaken(t *testing.T) {
	const deleting = "Cluster demo is being deleted; choose another name, or try again when it is gone"
	for _, test := range []struct {
		name   string
		object *corev1.ConfigMap
		want   string
	}{
		{"there is one", &corev1.ConfigMap{}, "Cluster demo exists already; choose another name, or delete it: delete demo"},
		{"it is being deleted", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: ptr.To(metav1.Now())}}, deleting},
		{"it is gone by now", nil, deleting},
	} {
		got := Taken(t.Context(), found{object: test.object}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}, "Cluster demo", "delete demo")
		if got == nil || got.Error() != test.want {
			t.Errorf("%s: got %v, want %s", test.name, got, test.want)
		}
	}
}
