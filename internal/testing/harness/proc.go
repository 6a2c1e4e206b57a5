package harness

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// ProcessStatus returns fields of /proc/PID/status by name.
func ProcessStatus(t testing.TB, pid int, names ...string) map[string]string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		if name, value, _ := strings.Cut(line, ":"); slices.Contains(names, name) {
			fields[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return fields
}
