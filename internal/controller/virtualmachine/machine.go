package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// errSecretMissing means that a Secret of spec.cloudInit does not exist.
var errSecretMissing = errors.New("secret is missing")

// newMachine returns the machine that the driver has to run for vm, without its seed.
func newMachine(vm *v1alpha1.VirtualMachine, id backend.Identity) backend.Machine {
	size := vm.Spec.Resource
	machine := backend.Machine{
		Identity:         id,
		MilliCPU:         size.CPU.MilliValue(),
		MemoryBytes:      size.Memory.Value(),
		Image:            imageOf(vm),
		Ports:            vm.Spec.Ports,
		Network:          vm.Spec.Network,
		Service:          vm.Spec.Service != nil,
		CDROM:            newCDROM(vm.Spec.CDROM),
		Firmware:         newFirmware(vm.Spec.Firmware),
		CPUModel:         vm.Spec.CPUModel,
		Display:          newDisplay(vm.Spec.Display),
		Disks:            newDisks(vm.Spec.Disks),
		Pod:              ptr.Deref(vm.Spec.Pod, v1alpha1.VirtualMachinePod{}),
		Set:              vm.Labels[v1alpha1.LabelSet],
		SleepsAtShutdown: vm.Spec.OnHostShutdown == v1alpha1.HostShutdownSleep,
		SleepsOnSchedule: vm.Spec.PowerSchedule != nil,
		SleepsWhenIdle:   vm.Spec.Idle != nil,
		TakesSnapshots:   vm.Spec.Snapshots != nil,
		IsRestored:       vm.Spec.Restore != nil,
		Hash:             hash(&vm.Spec),
	}
	if size.RootDisk != nil {
		machine.DiskBytes = size.RootDisk.Value()
	}
	return machine
}

// imageOf returns spec.image; nil if it names the default guest.
func imageOf(vm *v1alpha1.VirtualMachine) *v1alpha1.Image {
	if image := vm.Spec.Image; image != nil && image.Name == v1alpha1.ImageTiny {
		return nil
	}
	return vm.Spec.Image
}

// hash returns a hash of the fields of spec whose changes a driver has to apply.
func hash(spec *v1alpha1.VirtualMachineSpec) string {
	var disk int64
	if spec.Resource.RootDisk != nil {
		disk = spec.Resource.RootDisk.Value()
	}
	return backend.Sum(struct {
		CPU, Memory, Disk int64
		Ports             []v1alpha1.Port
		CloudInit         *v1alpha1.CloudInit
		// Fields without a value do not change the hash, so that a new version of the manager does not reconfigure every machine.
		Network  *v1alpha1.Network `json:",omitempty"`
		Disks    []backend.Disk    `json:",omitempty"`
		CDROM    *v1alpha1.CDROM   `json:",omitempty"`
		Firmware v1alpha1.Firmware `json:",omitempty"`
		CPUModel string            `json:",omitempty"`
		Service  bool              `json:",omitempty"`

		Display          v1alpha1.DisplayType       `json:",omitempty"`
		Pod              v1alpha1.VirtualMachinePod `json:",omitzero"`
		SleepsAtShutdown bool                       `json:",omitempty"`
	}{
		spec.Resource.CPU.MilliValue(), spec.Resource.Memory.Value(), disk, spec.Ports, spec.CloudInit, spec.Network,
		newDisks(spec.Disks), spec.CDROM, newFirmware(spec.Firmware), spec.CPUModel, spec.Service != nil, newDisplay(spec.Display),
		ptr.Deref(spec.Pod, v1alpha1.VirtualMachinePod{}), spec.OnHostShutdown == v1alpha1.HostShutdownSleep,
	})
}

// newDisplay returns the display for a driver, "" for none.
func newDisplay(display *v1alpha1.Display) v1alpha1.DisplayType {
	if display == nil || display.Type == v1alpha1.DisplayNone {
		return ""
	}
	return display.Type
}

// gracePeriod returns how long the guest has to power off.
func gracePeriod(vm *v1alpha1.VirtualMachine) time.Duration {
	return time.Duration(ptr.Deref(vm.Spec.TerminationGracePeriodSeconds, 30)) * time.Second
}

// seed returns the cloud-init data of vm, nil if there is none. The error is an
// errSecretMissing if a Secret or its key does not exist, and a *backend.FieldError if the guest
// could not read the data.
func (r *Reconciler) seed(ctx context.Context, vm *v1alpha1.VirtualMachine) (*backend.Seed, error) {
	cloudInit := vm.Spec.CloudInit
	if cloudInit == nil {
		return nil, nil
	}
	user, err := r.inlineOrSecret(ctx, vm.Namespace, cloudInit.UserData, cloudInit.UserDataFrom)
	if err != nil {
		return nil, err
	}
	network, err := r.inlineOrSecret(ctx, vm.Namespace, cloudInit.NetworkData, cloudInit.NetworkDataFrom)
	if err != nil {
		return nil, err
	}
	seed := &backend.Seed{UserData: user, NetworkData: network}
	return seed, checkSeed(cloudInit, seed)
}

// inlineOrSecret returns the value in the Secret if from is set, else inline.
func (r *Reconciler) inlineOrSecret(ctx context.Context, namespace, inline string, from *v1alpha1.SecretKey) (string, error) {
	if from == nil {
		return inline, nil
	}
	var secret corev1.Secret
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: from.Name}, &secret)
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("%w: there is no Secret %q in namespace %s; create it", errSecretMissing, from.Name, namespace)
	}
	if err != nil {
		return "", fmt.Errorf("get Secret %s/%s for spec.cloudInit: %w", namespace, from.Name, err)
	}
	data, found := secret.Data[from.Key]
	if !found {
		return "", fmt.Errorf("%w: the Secret %q has no key %q; add it", errSecretMissing, from.Name, from.Key)
	}
	return string(data), nil
}
