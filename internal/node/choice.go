package node

import (
	"fmt"
	"strings"
)

// Mode is what the user wants.
type Mode string

// The modes.
const (
	// Auto is a real node where the machine can run one, else simulated ones.
	Auto Mode = "auto"
	// Real is a real node, or an error.
	Real Mode = "real"
	// Simulated is simulated nodes.
	Simulated Mode = "simulated"
)

// Modes are all modes.
var Modes = []Mode{Auto, Real, Simulated}

// Choose reports whether the node is to be real, and otherwise why it is not, as a line for users who may have expected one. The error
// says what a machine lacks that cannot run the real node that was asked for.
func Choose(mode Mode, m Machine) (real bool, line string, err error) {
	if mode == Simulated {
		return false, "", nil
	}
	missing := m.Missing()
	what := "a real node"
	if !m.Root {
		what = "a real node without root"
	}
	switch {
	case len(missing) == 0:
		return true, "", nil
	case mode == Real:
		return false, "", fmt.Errorf("this machine cannot run %s; missing: %s", what, strings.Join(missing, "; "))
	default:
		return false, fmt.Sprintf("A%s is not possible here; missing: %s.", what[1:], strings.Join(missing, "; ")), nil
	}
}
