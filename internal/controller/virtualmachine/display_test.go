package virtualmachine

import (
	"errors"
	"testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/docker"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/driver/pod"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
)

// No display changes nothing for a machine of an earlier version; only the drivers qemu and pod have displays.
func TestDisplay(t *testing.T) {
	with := func(display *v1alpha1.Display) (string, v1alpha1.DisplayType) {
		vm := &v1alpha1.VirtualMachine{Spec: v1alpha1.VirtualMachineSpec{Display: display}}
		machine := newMachine(vm, backend.Identity{})
		return machine.Hash, machine.Display
	}
	before, _ := with(nil)
	if hash, display := with(&v1alpha1.Display{Type: v1alpha1.DisplayNone}); hash != before || display != "" {
		t.Errorf("none is %q, and changes the hash: %v", display, hash != before)
	}
	if hash, display := with(&v1alpha1.Display{Type: v1alpha1.DisplayVGA}); hash == before || display != v1alpha1.DisplayVGA {
		t.Errorf("vga is %q, and changes the hash: %v", display, hash != before)
	}
	machine := backend.Machine{MilliCPU: 1000, Display: v1alpha1.DisplayVGA}
	for name, rule := range map[string]Rule{docker.Name: docker.Validate, fake.Name: fake.Validate} {
		var wrong *backend.FieldError
		if err := rule(&machine); !errors.As(err, &wrong) || wrong.Field != "spec.display" {
			t.Errorf("the driver %s says %v", name, err)
		}
	}
	for name, rule := range map[string]Rule{qemu.Name: qemu.Validate, pod.Name: pod.Validate} {
		if err := rule(&machine); err != nil {
			t.Errorf("the driver %s says %v", name, err)
		}
	}
}
