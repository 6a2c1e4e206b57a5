package manager

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/config/rbac"
)

// newHome returns the namespace in which a manager outside of a Pod keeps its Secrets and its Lease, as config/manager has it.
func newHome() *corev1.Namespace {
	const standard = "pod-security.kubernetes.io/"
	return &corev1.Namespace{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: rbac.Home, Labels: map[string]string{
			standard + "enforce": "restricted", standard + "audit": "restricted", standard + "warn": "restricted",
		}},
	}
}

// makeHome makes that namespace if there is none.
func (c *checker) makeHome(ctx context.Context) error {
	_, err := c.namespaces.Get(ctx, rbac.Home, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = c.namespaces.Create(ctx, newHome(), metav1.CreateOptions{})
	}
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		return nil
	case !apierrors.IsForbidden(err):
		return fmt.Errorf("make Namespace %s: %w", rbac.Home, err)
	}
	missing := &PreflightError{server: c.server, namespace: rbac.Home, reason: err}
	missing.Manifest, err = manifest([]runtime.Object{newHome()})
	if err != nil {
		return err
	}
	return missing
}

// withHome returns the objects after that namespace, if some are in it and it is not one that the user chose.
func withHome(o Options, objects []runtime.Object) []runtime.Object {
	inHome := func(object runtime.Object) bool {
		namespaced, ok := object.(client.Object)
		return ok && namespaced.GetNamespace() == rbac.Home
	}
	if o.former == (former{}) || !slices.ContainsFunc(objects, inHome) {
		return objects
	}
	return append([]runtime.Object{newHome()}, objects...)
}
