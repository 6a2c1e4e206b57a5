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
	"github.com/keelson-dev/keelson/internal/snapshots"
)

// Rule rejects machines that a driver cannot run, regardless of the state of its backend. The error is a *backend.FieldError.
type Rule func(*backend.Machine) error

// NewValidator returns a function that validates VirtualMachines for a manager with the drivers in names, the first of which
// is the default. Rules has the rules of all drivers of the program. The function returns the errors that the schema cannot
// detect; the conditions report the same errors for a VirtualMachine that was stored nevertheless.
func NewValidator(names []string, rules map[string]Rule) func(*v1alpha1.VirtualMachine) field.ErrorList {
	return func(vm *v1alpha1.VirtualMachine) field.ErrorList {
		name := cmp.Or(vm.Spec.Driver, names[0])
		if err := checkDriver(name, names, slices.Collect(maps.Keys(rules))); err != nil {
			return field.ErrorList{field.Invalid(field.NewPath("spec", "driver"), name,
				strings.TrimPrefix(err.Error(), backend.ErrMissing.Error()+": "))}
		}
		machine := newMachine(vm, backend.Identity{})
		var all field.ErrorList
		var wrong *backend.FieldError
		for _, err := range []error{rules[name](&machine), checkInlineSeed(vm.Spec.CloudInit)} {
			if errors.As(err, &wrong) {
				all = append(all, field.Invalid(field.NewPath(wrong.Field), fieldValue(vm, wrong.Field), wrong.Message))
			}
		}
		if vm.Spec.PowerSchedule != nil {
			_, _, mistakes := powerPlans(vm)
			all = append(all, mistakes...)
		}
		if vm.Spec.Snapshots != nil {
			if _, mistake := snapshots.Times(newSchedule(vm, observation{})); mistake != nil {
				all = append(all, mistake)
			}
		}
		return all
	}
}

// checkInlineSeed checks the cloud-init data that is not in Secrets.
func checkInlineSeed(cloudInit *v1alpha1.CloudInit) error {
	if cloudInit == nil {
		return nil
	}
	return checkSeed(cloudInit, &backend.Seed{UserData: cloudInit.UserData, NetworkData: cloudInit.NetworkData})
}

// fieldValue returns the value of a field for an error message.
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
