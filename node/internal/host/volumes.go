package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"

	"github.com/keelson-dev/keelson/node/internal/settings"
)

// selectedNode is the annotation by which the scheduler says on which node the first Pod with a claim will run.
const selectedNode = "volume.kubernetes.io/selected-node"

// volumes provisions the PersistentVolumes of this node: each is a folder in the node's directory. Every node has a provisioner
// for its own volumes only, so a node that is off keeps no other from getting volumes.
type volumes struct{ settings settings.Settings }

// provisionVolumes provisions volumes until the context ends.
func provisionVolumes(ctx context.Context, s settings.Settings) error {
	config := apiConfig(s, settings.VolumesCert, settings.VolumesKey)
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(s.Dir, settings.Volumes), 0o700); err != nil {
		return err
	}
	provisioner := controller.NewProvisionController(ctx, client, settings.Provisioner, &volumes{s},
		controller.LeaderElection(false), controller.MetricsPort(0))
	go provisioner.Run(ctx)
	return nil
}

// ShouldProvision implements controller.Qualifier. Of a class that binds at once, the first node reports what is wrong.
func (v *volumes) ShouldProvision(_ context.Context, claim *corev1.PersistentVolumeClaim) bool {
	node := claim.Annotations[selectedNode]
	return node == v.settings.Name || node == "" && v.settings.Index == 0
}

// Provision implements controller.Provisioner.
func (v *volumes) Provision(_ context.Context, o controller.ProvisionOptions) (*corev1.PersistentVolume, controller.ProvisioningState, error) {
	if err := check(o); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	folder := v.folder(o.PVName)
	// Any user of a container may write to it: fsGroup and the like may narrow that. Others on the machine do not reach it.
	if err := errors.Join(os.MkdirAll(folder, 0o777), os.Chmod(folder, 0o777)); err != nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("make the folder of the volume: %w", err)
	}
	mode := corev1.PersistentVolumeFilesystem
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: o.PVName},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *o.StorageClass.ReclaimPolicy,
			AccessModes:                   o.PVC.Spec.AccessModes,
			VolumeMode:                    &mode,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: o.PVC.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				Local: &corev1.LocalVolumeSource{Path: filepath.Join(settings.VolumesInside, o.PVName)},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{v.settings.Name}},
				},
			}}}},
		},
	}, controller.ProvisioningFinished, nil
}

// check refuses claims that a folder of one node cannot fulfil.
func check(o controller.ProvisionOptions) error {
	if o.SelectedNodeName == "" {
		return fmt.Errorf("the volumeBindingMode of StorageClass %s must be WaitForFirstConsumer: a volume is on one node", o.StorageClass.Name)
	}
	if o.PVC.Spec.Selector != nil {
		return errors.New("a claim with a selector gets no new volume: remove spec.selector")
	}
	for _, mode := range o.PVC.Spec.AccessModes {
		if !slices.Contains([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce, corev1.ReadWriteOncePod}, mode) {
			return fmt.Errorf("access mode %s is not possible, because the volume is on one node: use ReadWriteOnce or ReadWriteOncePod", mode)
		}
	}
	return nil
}

// ShouldDelete implements controller.DeletionGuard.
func (v *volumes) ShouldDelete(_ context.Context, volume *corev1.PersistentVolume) bool {
	if volume.Spec.Local == nil || volume.Spec.NodeAffinity == nil || volume.Spec.NodeAffinity.Required == nil {
		return false
	}
	for _, term := range volume.Spec.NodeAffinity.Required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if e.Key == corev1.LabelHostname && slices.Equal(e.Values, []string{v.settings.Name}) {
				return true
			}
		}
	}
	return false
}

// Delete implements controller.Provisioner.
func (v *volumes) Delete(_ context.Context, volume *corev1.PersistentVolume) error {
	if volume.Spec.Local == nil || volume.Spec.Local.Path != filepath.Join(settings.VolumesInside, volume.Name) {
		return &controller.IgnoredError{Reason: "its folder is not one that this node has made"}
	}
	if v.settings.Rootless != nil { // its files may belong to any ID of the user namespace
		return removeAsRoot(v.settings, v.folder(volume.Name))
	}
	return os.RemoveAll(v.folder(volume.Name))
}

// folder returns the folder of a volume.
func (v *volumes) folder(name string) string {
	return filepath.Join(v.settings.Dir, settings.Volumes, name)
}
