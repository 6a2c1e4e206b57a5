package manager

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/docker"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/driver/pod"
	"github.com/keelson-dev/keelson/internal/driver/qemu"
)

// A driver whose engine is not there is missing. It is never replaced by another.
func TestDriverWithoutAnEngine(t *testing.T) {
	machines := NewMachines()
	machines.Drivers, machines.DockerHost = []string{"docker", "fake"}, "unix:///nowhere/docker.sock"
	driver, err := machines.openers(t.TempDir(), logr.Discard())["docker"]()
	if driver != nil && !errors.Is(err, backend.ErrMissing) || !errors.Is(err, backend.ErrMissing) {
		t.Errorf("the driver is %v, %v", driver, err)
	}
	missing := machines.Missing()
	if !strings.HasPrefix(missing, "VirtualMachines have no driver: ") || !strings.Contains(missing, machines.DockerHost) ||
		strings.Contains(missing, "\n") {
		t.Errorf("what is missing is said as %q", missing)
	}
}

// Each driver says which processors it can give, and only the default driver counts for machines that name none.
func TestFractionsOfProcessors(t *testing.T) {
	for _, test := range []struct {
		driver, cpu string
		want        string
	}{
		{qemu.Name, "500m", "the driver qemu requires a whole number of processors"},
		{qemu.Name, "1500m", "the driver qemu requires a whole number of processors"},
		{qemu.Name, "2", ""},
		{pod.Name, "500m", "the driver pod requires a whole number of processors"},
		{pod.Name, "1500m", "the driver pod requires a whole number of processors"},
		{pod.Name, "2", ""},
		{docker.Name, "500m", ""},
		{fake.Name, "500m", ""},
	} {
		for _, named := range []bool{false, true} {
			drivers := []string{test.driver, qemu.Name}
			vm := &v1alpha1.VirtualMachine{Spec: v1alpha1.VirtualMachineSpec{Resource: v1alpha1.Resources{CPU: resource.MustParse(test.cpu)}}}
			if named {
				drivers, vm.Spec.Driver = []string{fake.Name, test.driver}, test.driver
			}
			errs := virtualMachineRules(hook{Options: &Options{Machines: Machines{Drivers: drivers}}}).Errors(vm)
			if (len(errs) == 0) != (test.want == "") || len(errs) > 0 && !strings.Contains(errs.ToAggregate().Error(), test.want) {
				t.Errorf("%s, named: %t, %s: %v", test.driver, named, test.cpu, errs)
			}
		}
	}
}
