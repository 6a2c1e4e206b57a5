package virtualmachine

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestValidator(t *testing.T) {
	// A driver for machines with two processors and a disk image.
	pairs := func(machine *backend.Machine) error {
		switch {
		case machine.MilliCPU != 2000:
			return &backend.FieldError{Field: "spec.resource.cpu", Message: "must be 2"}
		case machine.Image == nil:
			return &backend.FieldError{Field: "spec.image", Message: "is needed"}
		case machine.Image.Container != "":
			return &backend.FieldError{Field: "spec.image.container", Message: "is not for this driver"}
		}
		return nil
	}
	validate := NewValidator([]string{"pairs", "any", "gone"}, map[string]Rule{
		"pairs": pairs, "any": func(*backend.Machine) error { return nil }, "other": pairs,
	})
	two := v1alpha1.Resources{CPU: resource.MustParse("2")}
	for _, test := range []struct {
		name string
		spec v1alpha1.VirtualMachineSpec
		want string
	}{
		{"all is well", v1alpha1.VirtualMachineSpec{Resource: two, Image: &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/a"}}}, ""},
		{"the first driver is that of machines that name none", v1alpha1.VirtualMachineSpec{Resource: v1alpha1.Resources{CPU: resource.MustParse("1500m")}},
			`spec.resource.cpu: Invalid value: "1500m": must be 2`},
		{"a field that is missing", v1alpha1.VirtualMachineSpec{Resource: two}, `spec.image: Invalid value: is needed`},
		{"a field with a value", v1alpha1.VirtualMachineSpec{Resource: two, Image: &v1alpha1.Image{Container: "c"}},
			`spec.image.container: Invalid value: "c": is not for this driver`},
		{"another driver", v1alpha1.VirtualMachineSpec{Driver: "any"}, ""},
		{"a driver that the manager was not started with", v1alpha1.VirtualMachineSpec{Driver: "other"},
			`spec.driver: Invalid value: "other": this manager was started with --vm-driver=pairs,any,gone and without other; add it there`},
		{"a driver that the program does not have", v1alpha1.VirtualMachineSpec{Driver: "gone"},
			`spec.driver: Invalid value: "gone": there is no driver gone in this program; it has any, other, pairs`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if all := validate(&v1alpha1.VirtualMachine{Spec: test.spec}); len(all) > 0 {
				got = all.ToAggregate().Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the refusal (-want +got):\n%s", diff)
			}
		})
	}
}
