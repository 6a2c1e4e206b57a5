package qemu

import (
	"os"
	"testing"

	"github.com/keelson-dev/keelson/internal/process"
)

func TestMain(m *testing.M) {
	process.Shim() // the test binary is also the shim of the processes that it starts
	os.Exit(m.Run())
}
