// Package harness has the common parts of reconciler tests: clients that read from the API server
// instead of a cache, so that tests need not wait for it; clients with the faults that a reconciler
// must survive; and a manager that runs one controller in one namespace.
package harness

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/keelson-dev/keelson/internal/kube"
)

// Scheme returns a scheme with the types of Kubernetes and those that add adds.
func Scheme(t testing.TB, add ...func(*runtime.Scheme) error) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range append(add, clientgoscheme.AddToScheme) {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// Client returns a client that reads from the API server and supports indexes like a manager's
// client.
func Client(t testing.TB, config *rest.Config, scheme *runtime.Scheme, indexes ...kube.Index) client.WithWatch {
	t.Helper()
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatalf("Build a client: %v", err)
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return listIndexed(ctx, c, scheme, indexes, list, opts)
		},
	})
}

// listIndexed lists everything and filters by an index.
func listIndexed(ctx context.Context, c client.Reader, scheme *runtime.Scheme, indexes []kube.Index, list client.ObjectList, opts []client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(opts)
	if asked.FieldSelector == nil || asked.FieldSelector.Empty() {
		return c.List(ctx, list, opts...)
	}
	keep, err := selectBy(scheme, indexes, list, asked.FieldSelector)
	if err != nil {
		return err
	}
	asked.FieldSelector = nil
	if err := c.List(ctx, list, &asked); err != nil {
		return err
	}
	all, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	return meta.SetList(list, slices.DeleteFunc(all, func(o runtime.Object) bool { return !keep(o.(client.Object)) }))
}

func selectBy(scheme *runtime.Scheme, indexes []kube.Index, list client.ObjectList, selector fields.Selector) (func(client.Object) bool, error) {
	requirements := selector.Requirements()
	if len(requirements) != 1 {
		return nil, fmt.Errorf("list by %q: a cache supports one field only", selector)
	}
	wanted := requirements[0]
	for _, index := range indexes {
		if index.Field == wanted.Field {
			return func(o client.Object) bool { return slices.Contains(index.Keys(o), wanted.Value) }, nil
		}
	}
	return nil, fmt.Errorf("list %T by %q: no such index", list, wanted.Field)
}

// Frozen returns a client that writes through c, but reads the current objects of the given types
// in a namespace: a cache that stays outdated as long as it is used.
func Frozen(t testing.TB, c client.WithWatch, namespace string, indexes []kube.Index, lists ...client.ObjectList) client.WithWatch {
	t.Helper()
	past := snapshot{}
	for _, list := range lists {
		if err := c.List(t.Context(), list, client.InNamespace(namespace)); err != nil {
			t.Fatalf("List the objects: %v", err)
		}
		past[reflect.TypeOf(list)] = list
	}
	reader := interceptor.NewClient(c, interceptor.Funcs{List: past.list})
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			return past.get(key, obj)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return listIndexed(ctx, reader, c.Scheme(), indexes, list, opts)
		},
	})
}

// snapshot has lists of one namespace by their type.
type snapshot map[reflect.Type]client.ObjectList

func (s snapshot) list(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
	past, found := s[reflect.TypeOf(list)]
	if !found {
		return fmt.Errorf("no snapshot of %T", list)
	}
	reflect.ValueOf(list).Elem().Set(reflect.ValueOf(past.DeepCopyObject()).Elem())
	return nil
}

func (s snapshot) get(key client.ObjectKey, into client.Object) error {
	for _, list := range s {
		all, err := meta.ExtractList(list)
		if err != nil {
			return err
		}
		for _, past := range all {
			if reflect.TypeOf(past) == reflect.TypeOf(into) && client.ObjectKeyFromObject(past.(client.Object)) == key {
				reflect.ValueOf(into).Elem().Set(reflect.ValueOf(past.DeepCopyObject()).Elem())
				return nil
			}
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Resource: fmt.Sprintf("%T", into)}, key.Name)
}

// ReadThrough returns a client that reads from what reader returns, and writes through c.
func ReadThrough(c client.WithWatch, reader func() client.Reader) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return reader().Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return reader().List(ctx, list, opts...)
		},
	})
}
