package kube

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Index is a cache index: objects of one type can be listed by a field with
// client.MatchingFields.
type Index struct {
	// Object has the type that is indexed.
	Object client.Object
	// Field is the name of the index. It starts with the name of the controller, because all
	// controllers of a manager share a cache.
	Field string
	// Keys returns the values of the field.
	Keys client.IndexerFunc
}

// AddIndexes adds indexes to a cache that has not started.
func AddIndexes(indexer client.FieldIndexer, indexes ...Index) error {
	for _, index := range indexes {
		// Before the start, IndexField does not block, so there is nothing to cancel.
		if err := indexer.IndexField(context.Background(), index.Object, index.Field, index.Keys); err != nil {
			return fmt.Errorf("index %T by %s: %w", index.Object, index.Field, err)
		}
	}
	return nil
}

// Transform adds a transform for objects of the type of object to the options of a cache. It
// runs after the transforms that were added before, and may modify its argument.
func Transform(options *cache.Options, object client.Object, transform toolscache.TransformFunc) {
	key, by := byObject(options, object)
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
	options.ByObject[key] = by
}

// Select restricts a cache to the objects of the type of object with these labels. It affects all controllers of a manager.
func Select(options *cache.Options, object client.Object, selector labels.Selector) {
	key, by := byObject(options, object)
	by.Label = selector
	options.ByObject[key] = by
}

// byObject returns the options of a cache for the type of object, and their key.
func byObject(options *cache.Options, object client.Object) (client.Object, cache.ByObject) {
	for present, by := range options.ByObject {
		if reflect.TypeOf(present) == reflect.TypeOf(object) {
			return present, by
		}
	}
	if options.ByObject == nil {
		options.ByObject = map[client.Object]cache.ByObject{}
	}
	return object, cache.ByObject{}
}

// StripManagedFields is a transform that removes metadata that no controller reads, often half
// of an object's size: managedFields and kubectl's last-applied-configuration annotation.
func StripManagedFields(object any) (any, error) {
	if o, ok := object.(client.Object); ok {
		o.SetManagedFields(nil)
		delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	return object, nil
}

// Identity returns the metadata that a controller needs of each object of the kind of its children, also of those of others.
func Identity(object client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: object.GetName(), Namespace: object.GetNamespace(), UID: object.GetUID(), ResourceVersion: object.GetResourceVersion(),
		CreationTimestamp: object.GetCreationTimestamp(), DeletionTimestamp: object.GetDeletionTimestamp(), OwnerReferences: object.GetOwnerReferences(),
	}
}
