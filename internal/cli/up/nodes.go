package up

import (
	"context"
	"fmt"
	"os"
	"slices"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/driver/pod"
	"github.com/keelson-dev/keelson/internal/node"
)

// chooseNode chooses between a real node and simulated ones.
func (o *options) chooseNode(ctx context.Context, dir string) error {
	mode := node.Mode(o.node)
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return err
	}
	if mode == node.Auto {
		mode = o.automatic(report)
	}
	if mode == node.Simulated {
		return o.checkDrivers()
	}
	programs, err := instance.NodePrograms()
	if err != nil {
		return err
	}
	machine := node.Look(programs)
	real, line, err := node.Choose(mode, machine)
	if err != nil {
		return fmt.Errorf("--node=%s: %w", o.node, err)
	}
	if real && o.nodes > 1 && !machine.Root {
		return usage.Errorf("--nodes=%d: several real nodes need root; without it, Keelson runs one", o.nodes)
	}
	if real {
		o.machine = &machine
	}
	if real && report.RealNodes == 0 { // those that run have what they need
		o.shortage = node.InotifyWarning(o.nodes, 1)
	}
	o.noNode = line
	return o.checkDrivers()
}

// checkDrivers rejects machines in Pods that nothing executes.
func (o *options) checkDrivers() error {
	if !slices.Contains(o.manager.Machines.Drivers, pod.Name) {
		return nil
	}
	if o.machine == nil {
		return usage.Errorf("--vm-driver=%s: the Pods of simulated nodes run nothing; add --node=real", pod.Name)
	}
	for _, image := range o.podImages() {
		if _, err := os.Stat(image.folder); err != nil {
			return fmt.Errorf("--vm-driver=%s needs the files of the image %s: %w. `make %[2]s` builds them", pod.Name, image.name, err)
		}
	}
	return nil
}

// podImage is an image of the driver pod that comes with Keelson.
type podImage struct {
	name, folder, entrypoint string
	// reference is the option that names the image.
	reference *string
}

// podImages returns the images of the driver pod that no option names. The real nodes get them from folders of this host.
func (o *options) podImages() (wanted []podImage) {
	folder, _ := instance.Beside("launcher") // checkDrivers looks for it
	for _, image := range []podImage{
		{"launcher", folder, "/keelson-launcher", &o.manager.Machines.LauncherImage},
		{"guest", o.manager.Machines.GuestDir, "/kernel", &o.manager.Machines.GuestImage}, // no container runs it
	} {
		if *image.reference == "" {
			wanted = append(wanted, image)
		}
	}
	return wanted
}

// nodeImages returns the images that real nodes get, and makes the driver pod use them.
func (o *options) nodeImages() (images []node.Image, err error) {
	if o.machine == nil || !slices.Contains(o.manager.Machines.Drivers, pod.Name) {
		return nil, nil
	}
	for _, wanted := range o.podImages() {
		image, err := node.NewImage(wanted.name, wanted.folder, wanted.entrypoint)
		if err != nil {
			return nil, err
		}
		*wanted.reference = image.Name
		images = append(images, image)
	}
	return images, nil
}

// automatic is the mode that auto stands for. Nodes that a killed process left running are adopted: a change
// of their kind would move their Pods.
func (o *options) automatic(report controlplane.Report) node.Mode {
	_, someNodes := o.given["nodes"]
	_, asked := o.given["node"]
	switch {
	case report.RealNodes > 0:
		o.nodes = report.RealNodes
		return node.Real
	case report.SimulatedNodes, someNodes && !asked:
		return node.Simulated
	default:
		return node.Auto
	}
}
