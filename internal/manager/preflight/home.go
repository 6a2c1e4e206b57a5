package preflight

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// createNamespace creates the namespace if it does not exist.
func (c *checker) createNamespace(ctx context.Context, home *corev1.Namespace) error {
	_, err := c.namespaces.Get(ctx, home.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.namespaces.Create(ctx, home, metav1.CreateOptions{})
	}
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("create Namespace %s: %w", home.Name, err)
	}
	missing := &Error{server: c.server, namespace: home.Name, reason: err}
	missing.Manifest, err = manifest([]runtime.Object{home})
	if err != nil {
		return err
	}
	return missing
}

// withHome returns the objects after the namespace home, if some of them are in it.
func withHome(home *corev1.Namespace, objects []runtime.Object) []runtime.Object {
	inHome := func(object runtime.Object) bool {
		namespaced, ok := object.(client.Object)
		return ok && namespaced.GetNamespace() == home.Name
	}
	if home == nil || !slices.ContainsFunc(objects, inHome) {
		return objects
	}
	return append([]runtime.Object{home}, objects...)
}
