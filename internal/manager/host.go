package manager

import "fmt"

// onHost adds to the error that something is missing on this host what a manager in a pod can do about it: installing
// is no advice there.
func (o *Options) onHost(controller string, err error) error {
	if err == nil || !o.inPod {
		return err
	}
	return fmt.Errorf("%w. This manager runs in a Pod, which has none of it by design: let a manager on a host run the controller %s (--controllers=%s), and this one all others (--controllers=*,-%s)",
		err, controller, controller, controller)
}
