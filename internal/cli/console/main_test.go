package console_test

import (
	"os"
	"testing"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

func TestMain(m *testing.M) {
	target.OnHost = instance.Host{}
	os.Exit(m.Run())
}
