package manager

import (
	"fmt"
	"strings"
)

// onHost adds to the error that something is missing on this host what a manager in a pod can do about it: installing
// is no advice there. The controllers are those that need it, and those that read what they make.
func (o *Options) onHost(err error, controllers ...string) error {
	if err == nil || !o.inPod {
		return err
	}
	return fmt.Errorf("%w. This manager runs in a Pod, which has none of it by design: let a manager on a host do that (--controllers=%s), and this one all else (--controllers=*,-%s); docs/install.md says how",
		err, strings.Join(controllers, ","), strings.Join(controllers, ",-"))
}
