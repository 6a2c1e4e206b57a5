package kube

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Index is an index of a cache: objects of one type can be listed by a field, with
// client.MatchingFields.
type Index struct {
	// Object is of the type that is indexed.
	Object client.Object
	// Field names the index; it begins with the name of the controller, because all
	// controllers of a manager share a cache.
	Field string
	// Keys returns the values of the field.
	Keys client.IndexerFunc
}

// AddIndexes adds indexes to a cache that has not been started.
func AddIndexes(indexer client.FieldIndexer, indexes ...Index) error {
	for _, index := range indexes {
		// Nothing is waited for before the start: there is nothing to cancel.
		if err := indexer.IndexField(context.Background(), index.Object, index.Field, index.Keys); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.Object, index.Field, err)
		}
	}
	return nil
}

// Transform adds a function to the options of a cache that objects of the type of
// object go through before they are kept. It comes after functions that were added
// before, and may change the object that it is given.
func Transform(options *cache.Options, object client.Object, transform toolscache.TransformFunc) {
	for present, by := range options.ByObject {
		if reflect.TypeOf(present) != reflect.TypeOf(object) {
			continue
		}
		if first := by.Transform; first != nil {
			by.Transform = func(o any) (any, error) {
				o, err := first(o)
				if err != nil {
					return nil, err
				}
				return transform(o)
			}
		} else {
			by.Transform = transform
		}
		options.ByObject[present] = by
		return
	}
	if options.ByObject == nil {
		options.ByObject = map[client.Object]cache.ByObject{}
	}
	options.ByObject[object] = cache.ByObject{Transform: transform}
}

// DropOthersNotes is a transform that drops what no controller reads of its own
// objects, often half of their bytes: who wrote which field, and kubectl's copy.
func DropOthersNotes(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		o.SetManagedFields(nil)
		delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	return object, nil
}
