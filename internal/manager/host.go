package manager

import (
	"fmt"
	"strings"
)

// onHost adds advice for a manager in a Pod, where nothing can be installed, to an error about a missing
// prerequisite. controllers are those that need it, directly or through objects of another controller.
func (o *Options) onHost(err error, controllers ...string) error {
	if err == nil || !o.inPod {
		return err
	}
	return fmt.Errorf("%w. This manager runs in a Pod, which does not contain it: run these controllers in a manager on a host (--controllers=%s), and the others here (--controllers=*,-%s); see docs/install-host.md",
		err, strings.Join(controllers, ","), strings.Join(controllers, ",-"))
}
