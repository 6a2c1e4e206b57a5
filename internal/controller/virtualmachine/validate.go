package virtualmachine

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// Rule refuses machines that a driver cannot make, whatever there is of its backend. The error is a *backend.FieldError.
type Rule func(*backend.Machine) error

// NewValidator returns what refuses VirtualMachines for a manager with drivers of these names, the first of which is that
// of machines that name none. The rules are those of all drivers that the program has. What it returns gives every mistake
// that the definition lets through, with its field: what the conditions of a VirtualMachine that is stored all the same say.
func NewValidator(names []string, rules map[string]Rule) func(*v1alpha1.VirtualMachine) field.ErrorList {
	return func(vm *v1alpha1.VirtualMachine) field.ErrorList {
		name := cmp.Or(vm.Spec.Driver, names[0])
		if err := checkDriver(name, names, slices.Collect(maps.Keys(rules))); err != nil {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "driver"), name,
				strings.TrimPrefix(err.Error(), backend.ErrMissing.Error()+": "))}
		}
		machine := newMachine(vm, backend.Identity{})
		var wrong *backend.FieldError
		if err := rules[name](&machine); errors.As(err, &wrong) {
			return field.ErrorList{field.Invalid(field.NewPath(wrong.Field), fieldValue(vm, wrong.Field), wrong.Message)}
		}
		return nil
	}
}

// valueOf returns what a message shows of a field.
func fieldValue(vm *v1alpha1.VirtualMachine, path string) any {
	switch image := vm.Spec.Image; {
	case path == "spec.resource.cpu":
		return vm.Spec.Resource.CPU.String()
	case image == nil:
	case path == "spec.image.container":
		return image.Container
	case path == "spec.image.path":
		return image.Path
	case path == "spec.image.kernel":
		return image.Kernel
	case path == "spec.image.initrd":
		return image.Initrd
	}
	return field.OmitValueType{}
}
