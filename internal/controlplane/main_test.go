package controlplane_test

import (
	"os"
	"testing"

	_ "github.com/keelson-dev/keelson/internal/process/shim"
)

// The test binary is also the shim of the processes that the tests start, the programs that look after control planes
// and get killed (helper_test.go), and stand-ins for the components where only our own part is tested (standin_test.go).
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && standIns[os.Args[1]] != nil {
		standIns[os.Args[1]]()
	}
	if encoded := os.Getenv(helperVariable); encoded != "" {
		os.Exit(runHelper(encoded))
	}
	os.Exit(m.Run())
}
