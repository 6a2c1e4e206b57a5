package manager

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine"
	"github.com/keelson-dev/keelson/internal/driver/fake"
)

// Machines say what makes VirtualMachines real.
type Machines struct {
	// Drivers are the drivers that may be used; the first is that of machines that
	// name none.
	Drivers []string
}

// NewMachines returns the defaults.
func NewMachines() Machines {
	return Machines{Drivers: []string{"qemu"}}
}

// AddFlags adds a flag for every option to fs, with the present values as defaults.
func (m *Machines) AddFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&m.Drivers, "vm-driver", m.Drivers,
		"`drivers` of VirtualMachines; the first is that of machines that name none. fake makes no machines, it only says so")
}

func (m *Machines) validate(wrong func(flag string, value any, why string, args ...any)) {
	if len(m.Drivers) == 0 {
		wrong("vm-driver", "", "must name a driver")
	}
	for i, name := range m.Drivers {
		if name == "" || slices.Contains(m.Drivers[:i], name) {
			wrong("vm-driver", strings.Join(m.Drivers, ","), "must name drivers, each once")
			return
		}
	}
}

// addVirtualMachine adds the controller of VirtualMachines with its drivers.
func addVirtualMachine(mgr ctrl.Manager, options controller.Options, o *Options) error {
	drivers := virtualmachine.NewDrivers(o.Machines.Drivers, o.Machines.openers(), clock.RealClock{})
	return virtualmachine.Add(mgr, options, drivers)
}

// openers are the drivers of this program.
func (m *Machines) openers() map[string]virtualmachine.Opener {
	return map[string]virtualmachine.Opener{
		fake.Name: func() (virtualmachine.Driver, error) { return fake.New(fake.Options{}), nil },
	}
}
