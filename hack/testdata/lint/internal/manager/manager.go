// Package manager has a second informer stack, and knows who calls it.
package manager

import (
	"context"
	"time"

	_ "github.com/keelson-dev/keelson/client/listers"          // want: depguard
	_ "github.com/keelson-dev/keelson/guest"                   // want: depguard
	_ "github.com/keelson-dev/keelson/internal/cli"            // want: depguard
	_ "github.com/keelson-dev/keelson/internal/controlplane/x" // want: depguard
	_ "github.com/keelson-dev/keelson/internal/driver/qemu"
	_ "github.com/keelson-dev/keelson/internal/testing/env" // want: depguard
	_ "github.com/keelson-dev/keelson/kube"                 // want: depguard
	_ "testing"                                             // want: depguard
)

// Run may use the clock and the background context: it is not a controller.
func Run() (context.Context, time.Time) {
	time.Sleep(time.Second)
	return context.Background(), time.Now()
}
