package local

import (
	"errors"
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
)

// errNoRealNodes is the error of an engine without Options.Machine.
var errNoRealNodes = errors.New("this manager runs no real nodes")

// chooseNodes sets the nodes of the spec. The error says what this machine lacks for real ones: they are never replaced by simulated
// ones.
func (e *Engine) chooseNodes(d *desire) error {
	if d.spec.Nodes == nil {
		d.simulated = e.opts.Nodes
		return nil
	}
	d.simulated, d.real = int(ptr.Deref(d.spec.Nodes.Simulated, 0)), int(ptr.Deref(d.spec.Nodes.Real, 0))
	if d.real == 0 {
		return nil
	}
	if e.opts.Machine == nil {
		return fmt.Errorf("%w: spec.nodes.real: %w", cluster.ErrUnavailable, errNoRealNodes)
	}
	machine, err := e.opts.Machine()
	if err != nil {
		return fmt.Errorf("%w: spec.nodes.real: %w", cluster.ErrUnavailable, err)
	}
	if d.real > 1 && !machine.Root {
		return fmt.Errorf("%w: spec.nodes.real: several real nodes need a manager that runs as root; without root, choose 1", cluster.ErrUnavailable)
	}
	d.machine = &machine
	return nil
}
