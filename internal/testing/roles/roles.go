// Package roles gives the processes that a test starts a program of their own. A test with the race detector takes 0.13 s of processor time
// to start once more, and a machine on QEMU has nine such processes; this program takes a few milliseconds.
package roles

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/keelson-dev/keelson/internal/self"
)

// variable is the environment variable with the program, for processes of the test that use it, too.
const variable = "KEELSON_TEST_ROLES"

// Run builds the program, runs the tests with it, and returns the exit code. It is for TestMain.
func Run(run func() int) int {
	dir, err := os.MkdirTemp("", "keelson-roles-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir) //nolint:errcheck // only disk space
	program := filepath.Join(dir, "keelson-roles")
	build := exec.Command("go", "build", "-trimpath", "-o", program, "github.com/keelson-dev/keelson/internal/testing/roles/program")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as keelson, so that both have the same packages in the build cache
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the program of the roles: %v\n%s", err, out)
		return 1
	}
	if err := os.Setenv(variable, program); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	Inherit()
	return run()
}

// Inherit uses the program of the test that has started this process, if it has one.
func Inherit() {
	if program := os.Getenv(variable); program != "" {
		self.Path = program
	}
}
