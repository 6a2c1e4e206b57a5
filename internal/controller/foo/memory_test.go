package foo

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/testing/stories"
)

// TestMemory compares the API in memory with an API server, in what reconcilers rely on.
func TestMemory(t *testing.T) {
	deployment := ownedBy(newFoo())
	deployment.OwnerReferences = nil
	foo := newFoo()
	foo.Status.ObservedGeneration = 7
	for kind, object := range map[string]client.Object{"apps/v1 Deployment": deployment, v1alpha1.SchemeGroupVersion.String() + " Foo": foo} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(outcomes(t, stories.Server, object), outcomes(t, stories.Memory, object)); diff != "" {
				t.Errorf("outcomes (-on the API server +in memory):\n%s", diff)
			}
		})
	}
}

// outcomes returns what requests do to an object.
func outcomes(t *testing.T, api stories.API, object client.Object) (all []string) {
	t.Helper()
	w := startWorld(t, api)
	c, ctx := w.Client, t.Context()
	kind, err := c.GroupVersionKindFor(object)
	w.Do(err)
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	w.Do(err)
	template := &unstructured.Unstructured{Object: content}
	template.SetGroupVersionKind(kind)
	template.SetNamespace(w.Namespace)
	template.SetUID("")
	template.SetGeneration(0)
	var first, now *unstructured.Unstructured // after the first create, and before the request
	set := func(value any, fields ...string) *unstructured.Unstructured {
		changed := now.DeepCopy()
		w.Do(unstructured.SetNestedField(changed.Object, value, fields...))
		return changed
	}
	create := func() error { return c.Create(ctx, template.DeepCopy()) }
	remove := func(options ...client.DeleteOption) error { return c.Delete(ctx, now.DeepCopy(), options...) }
	patch := func(text string, args ...any) error {
		return c.Patch(ctx, now.DeepCopy(), client.RawPatch(types.MergePatchType, fmt.Appendf(nil, text, args...)))
	}
	apply := func(uid string, replicas int64) error {
		wanted := template.DeepCopy()
		unstructured.RemoveNestedField(wanted.Object, "status")
		wanted.SetUID(types.UID(uid))
		w.Do(unstructured.SetNestedField(wanted.Object, replicas, "spec", "replicas"))
		return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(wanted), client.FieldOwner("a"), client.ForceOwnership)
	}
	now = template
	for _, request := range []struct {
		name string
		send func() error
	}{
		{"patch what is missing", func() error { return patch(`{"spec":{"replicas":9}}`) }},
		{"delete what is missing", func() error { return remove() }},
		{"apply with the UID of what is missing", func() error { return apply("gone", 9) }},
		{"create with a status", create},
		{"create what exists", create},
		{"update the spec", func() error { return c.Update(ctx, set(int64(4), "spec", "replicas")) }},
		{"update nothing", func() error { return c.Update(ctx, now.DeepCopy()) }},
		{"update an old version", func() error { return c.Update(ctx, first.DeepCopy()) }},
		{"update a label", func() error { return c.Update(ctx, set("b", "metadata", "labels", "a")) }},
		{"update with a status", func() error { return c.Update(ctx, set(int64(5), "status", "observedGeneration")) }},
		{"update the status", func() error { return c.Status().Update(ctx, set(int64(2), "status", "observedGeneration")) }},
		{"update the status to what it is", func() error { return c.Status().Update(ctx, now.DeepCopy()) }},
		{"update the status with a spec", func() error { return c.Status().Update(ctx, set(int64(8), "spec", "replicas")) }},
		{"update the status of an old version", func() error { return c.Status().Update(ctx, first.DeepCopy()) }},
		{"patch the spec", func() error { return patch(`{"spec":{"replicas":6}}`) }},
		{"patch nothing", func() error { return patch(`{"spec":{"replicas":6}}`) }},
		{"patch an old version", func() error {
			return patch(`{"metadata":{"resourceVersion":%q},"spec":{"replicas":7}}`, first.GetResourceVersion())
		}},
		{"patch with another UID", func() error { return patch(`{"metadata":{"uid":"gone"},"spec":{"replicas":7}}`) }},
		{"apply", func() error { return apply(string(now.GetUID()), 5) }},
		{"apply with another UID", func() error { return apply("gone", 9) }},
		{"add a finalizer", func() error { return patch(`{"metadata":{"finalizers":["example.com/held"]}}`) }},
		{"delete with another UID", func() error { return remove(client.Preconditions{UID: new(types.UID("gone"))}) }},
		{"delete with the UID", func() error { return remove(client.Preconditions{UID: new(now.GetUID())}) }},
		{"delete once more", func() error { return remove() }},
		{"remove the finalizer", func() error { return patch(`{"metadata":{"finalizers":null}}`) }},
		{"create again", create},
		{"update an earlier object", func() error {
			earlier := now.DeepCopy()
			earlier.SetUID(first.GetUID())
			return c.Update(ctx, earlier)
		}},
		{"delete", func() error { return remove() }},
	} {
		before, err := now, request.send()
		now = template.DeepCopy()
		w.Do(client.IgnoreNotFound(c.Get(ctx, client.ObjectKeyFromObject(template), now)))
		if first == nil && now.GetUID() != "" {
			first = now
		}
		refused := ""
		switch {
		case apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
			refused = string(apierrors.ReasonForError(err))
		case kube.IsStale(err):
			refused = "stale"
		case err != nil:
			refused = err.Error()
		}
		replicas, _, _ := unstructured.NestedInt64(now.Object, "spec", "replicas")
		observed, _, _ := unstructured.NestedInt64(now.Object, "status", "observedGeneration")
		all = append(all, fmt.Sprintf("%s: %s; is %t, new %t, written %t, deleting %t, generation %d, replicas %d, observed %d", request.name, refused,
			now.GetUID() != "", now.GetUID() != before.GetUID(), now.GetResourceVersion() != before.GetResourceVersion(),
			now.GetDeletionTimestamp() != nil, now.GetGeneration(), replicas, observed))
	}
	return all
}
