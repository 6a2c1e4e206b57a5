package host

import (
	"errors"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

func claimFor(node string) controller.ProvisionOptions {
	policy := corev1.PersistentVolumeReclaimDelete
	return controller.ProvisionOptions{
		StorageClass: &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}, ReclaimPolicy: &policy},
		PVName:       "pvc-1", SelectedNodeName: node,
		PVC: &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{selectedNode: node}},
			Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}},
		},
	}
}

func TestVolume(t *testing.T) {
	s := testSettings
	s.Name, s.Dir = "keelson-node", t.TempDir()
	own, other := &volumes{s}, &volumes{s}
	other.settings.Name, other.settings.Index = "keelson-node-2", 1
	o := claimFor(s.Name)
	if !own.ShouldProvision(t.Context(), o.PVC) || other.ShouldProvision(t.Context(), o.PVC) {
		t.Error("the wrong node makes the volume")
	}
	pv, state, err := own.Provision(t.Context(), o)
	if err != nil || state != controller.ProvisioningFinished {
		t.Fatal(state, err)
	}
	if again, _, err := own.Provision(t.Context(), o); err != nil || again.Spec.Local.Path != pv.Spec.Local.Path {
		t.Errorf("after the volume was lost from the API: %v, %v", again, err)
	}
	info, err := os.Stat(own.folder("pvc-1"))
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("the folder: %v, %v", info, err)
	}
	if !own.ShouldDelete(t.Context(), pv) || other.ShouldDelete(t.Context(), pv) {
		t.Error("the wrong node deletes the volume")
	}
	foreign := pv.DeepCopy()
	foreign.Spec.Local.Path = "/etc"
	var ignored *controller.IgnoredError
	if err := own.Delete(t.Context(), foreign); !errors.As(err, &ignored) {
		t.Errorf("a folder that the node has not made: %v", err)
	}
	for range 2 {
		if err := own.Delete(t.Context(), pv); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(own.folder("pvc-1")); !os.IsNotExist(err) {
		t.Errorf("after Delete: %v", err)
	}
}

func TestClaimsThatAreRefused(t *testing.T) {
	for want, change := range map[string]func(*controller.ProvisionOptions){
		"must be WaitForFirstConsumer": func(o *controller.ProvisionOptions) { o.SelectedNodeName = "" },
		"remove spec.selector":         func(o *controller.ProvisionOptions) { o.PVC.Spec.Selector = &metav1.LabelSelector{} },
		"use ReadWriteOnce":            func(o *controller.ProvisionOptions) { o.PVC.Spec.AccessModes[0] = corev1.ReadWriteMany },
	} {
		o := claimFor("keelson-node")
		change(&o)
		v := &volumes{testSettings}
		if _, _, err := v.Provision(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}
