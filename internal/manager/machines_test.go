package manager

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
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
