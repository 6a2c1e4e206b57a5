package harness

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/keelson-dev/keelson/internal/kube"
)

// Memory returns a client of an API in memory that has no objects yet. Status is a subresource of all its types.
// In addition to what the fake client of controller-runtime does, it has UIDs, generations, and preconditions for
// both. It does not validate or set defaults, and an apply does not remove fields. TestMemory compares it with an
// API server.
func Memory(t testing.TB, scheme *runtime.Scheme, indexes ...kube.Index) client.WithWatch {
	t.Helper()
	store := memory{clienttesting.NewObjectTracker(scheme, nil)}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithGlobalResourceVersionCounter().WithObjectTracker(store)
	for kind, goType := range scheme.AllKnownTypes() {
		if object, is := reflect.New(goType).Interface().(client.Object); is && status(object).IsValid() && kind.Version != runtime.APIVersionInternal {
			builder.WithStatusSubresource(object)
		}
	}
	return interceptor.NewClient(builder.Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			return stored{c, store, scheme}.Get(ctx, key, object, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return listIndexed(ctx, stored{c, store, scheme}, scheme, indexes, list, opts)
		},
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.DeleteOption) error {
			var asked client.DeleteOptions
			asked.ApplyOptions(opts)
			if asked.Preconditions != nil && asked.Preconditions.UID != nil {
				current := object.DeepCopyObject().(client.Object)
				if err := c.Get(ctx, client.ObjectKeyFromObject(object), current); err != nil {
					return err
				}
				if current.GetUID() != *asked.Preconditions.UID {
					return otherUID(schema.GroupResource{}, object.GetName())
				}
			}
			return c.Delete(ctx, object, opts...)
		},
	})
}

// stored reads typed objects as they are stored. The fake client, which reads the others, converts each from and to JSON.
type stored struct {
	client.Reader
	memory
	scheme *runtime.Scheme
}

// Get implements client.Reader.
func (s stored) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	gvk, is := s.typed(object)
	if !is {
		return s.Reader.Get(ctx, key, object, opts...)
	}
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	found, err := s.memory.Get(resource, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	reflect.ValueOf(object).Elem().Set(reflect.ValueOf(found).Elem())
	cleanMetadata(object)
	return nil
}

// List implements client.Reader. In a namespace, it also lists what is in none.
func (s stored) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	gvk, is := s.typed(list)
	if !is {
		return s.Reader.List(ctx, list, opts...)
	}
	gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	resource, _ := meta.UnsafeGuessKindToResource(gvk)
	found, err := s.memory.List(resource, gvk, "")
	if err != nil {
		return err
	}
	all, err := meta.ExtractList(found)
	if err != nil {
		return err
	}
	var asked client.ListOptions
	asked.ApplyOptions(opts)
	all = slices.DeleteFunc(all, func(o runtime.Object) bool {
		object := o.(client.Object)
		cleanMetadata(object)
		in := object.GetNamespace()
		return asked.Namespace != "" && in != "" && in != asked.Namespace ||
			asked.LabelSelector != nil && !asked.LabelSelector.Matches(labels.Set(object.GetLabels()))
	})
	reflect.ValueOf(list).Elem().SetZero()
	return meta.SetList(list, all)
}

// typed returns the kind of an object or list, and whether it has a Go type of its own.
func (s stored) typed(object runtime.Object) (schema.GroupVersionKind, bool) {
	kinds, _, err := s.scheme.ObjectKinds(object)
	if err != nil || len(kinds) != 1 {
		return schema.GroupVersionKind{}, false
	}
	_, isUnstructured := object.(runtime.Unstructured)
	return kinds[0], !isUnstructured
}

// cleanMetadata removes what clients do not see of typed objects.
func cleanMetadata(object client.Object) {
	object.SetManagedFields(nil)
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
}

// memory does what API servers do with the metadata of objects.
type memory struct{ clienttesting.ObjectTracker }

// Create sets the metadata of a new object, and removes its status.
func (m memory) Create(gvr schema.GroupVersionResource, added runtime.Object, ns string, opts ...metav1.CreateOptions) error {
	object := added.(client.Object)
	object.SetUID(uuid.NewUUID())
	object.SetCreationTimestamp(metav1.Now())
	object.SetGeneration(1)
	if status := status(object); status.IsValid() {
		status.SetZero()
	}
	if err := roundTrip(object); err != nil {
		return err
	}
	return m.ObjectTracker.Create(gvr, object, ns, opts...)
}

// Update replaces an object that has the same UID. An update that changes nothing keeps the resourceVersion.
func (m memory) Update(gvr schema.GroupVersionResource, updated runtime.Object, ns string, opts ...metav1.UpdateOptions) error {
	object := updated.(client.Object)
	current, err := m.Get(gvr, ns, object.GetName())
	if err != nil {
		return err
	}
	old := current.(client.Object)
	if uid := object.GetUID(); uid != "" && uid != old.GetUID() {
		return otherUID(gvr.GroupResource(), object.GetName())
	}
	version := object.GetResourceVersion()
	object.SetUID(old.GetUID())
	object.SetCreationTimestamp(old.GetCreationTimestamp())
	object.SetGeneration(old.GetGeneration())
	object.SetResourceVersion(old.GetResourceVersion())
	object.GetObjectKind().SetGroupVersionKind(old.GetObjectKind().GroupVersionKind())
	if err := roundTrip(object); err != nil || equality.Semantic.DeepEqual(old, object) {
		return err
	}
	object.SetResourceVersion(version)
	if !equality.Semantic.DeepEqual(field(old, "Spec"), field(object, "Spec")) || old.GetDeletionTimestamp().IsZero() != object.GetDeletionTimestamp().IsZero() {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	return m.ObjectTracker.Update(gvr, object, ns, opts...)
}

// Patch is Update: the object is patched already.
func (m memory) Patch(gvr schema.GroupVersionResource, patched runtime.Object, ns string, _ ...metav1.PatchOptions) error {
	return m.Update(gvr, patched, ns)
}

// Apply merges an object into the one that there is.
func (m memory) Apply(gvr schema.GroupVersionResource, applied runtime.Object, ns string, _ ...metav1.PatchOptions) error {
	object := applied.(client.Object)
	current, err := m.Get(gvr, ns, object.GetName())
	if apierrors.IsNotFound(err) {
		return m.Create(gvr, applied, ns)
	} else if err != nil {
		return err
	}
	old, err := json.Marshal(current)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(applied)
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(old, patch, current)
	if err != nil {
		return err
	}
	next := reflect.New(reflect.TypeOf(current).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(merged, next); err != nil {
		return err
	}
	return m.Update(gvr, next, ns)
}

func otherUID(resource schema.GroupResource, name string) error {
	return apierrors.NewConflict(resource, name, errors.New("another object has this name now"))
}

// roundTrip leaves in an object what its JSON has: times in seconds, for example.
func roundTrip(object client.Object) error {
	raw, err := json.Marshal(object)
	if err != nil {
		return err
	}
	reflect.ValueOf(object).Elem().SetZero()
	return json.Unmarshal(raw, object)
}

// status returns the status of an object, which is not valid if its type has none.
func status(object client.Object) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName("Status")
}

func field(object client.Object, name string) any {
	if value := reflect.ValueOf(object).Elem().FieldByName(name); value.IsValid() {
		return value.Interface()
	}
	return nil
}
