//go:build !linux

package transcript

import (
	"os/exec"
	"strings"
)

// Left returns the command lines of processes that name a data directory.
func Left(dir string) []string {
	out, err := exec.Command("ps", "-A", "-o", "pid=,args=").Output()
	if err != nil {
		return []string{"ps: " + err.Error()}
	}
	var found []string
	for line := range strings.SplitSeq(string(out), "\n") {
		if strings.Contains(line, dir) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// Place returns nothing: there is no /proc.
func Place(string) string { return "" }
