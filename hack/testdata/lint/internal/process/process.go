// Package process depends on more than the standard library.
package process

import (
	_ "os/exec"

	_ "github.com/keelson-dev/keelson/internal/kube" // want: depguard
)
