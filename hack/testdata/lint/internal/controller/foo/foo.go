// Package foo is a controller that breaks every rule for controllers.
package foo

import (
	"context"
	"time"

	_ "github.com/keelson-dev/keelson/client/listers"          // want: depguard
	_ "github.com/keelson-dev/keelson/internal/cli/up"         // want: depguard
	_ "github.com/keelson-dev/keelson/internal/controlplane/x" // want: depguard
	_ "github.com/keelson-dev/keelson/internal/driver/qemu"    // want: depguard
	_ "github.com/keelson-dev/keelson/internal/engine/local"   // want: depguard
	_ "github.com/keelson-dev/keelson/internal/manager/x"      // want: depguard
	_ "github.com/keelson-dev/keelson/internal/process"        // want: depguard
)

func reconcile() {
	clock := time.Now         // want: forbidigo
	_ = time.Since(clock())   // want: forbidigo
	_ = time.Until(clock())   // want: forbidigo
	_ = time.NewTimer(0)      // want: forbidigo
	_ = time.NewTicker(1)     // want: forbidigo
	<-time.After(time.Second) // want: forbidigo
	time.Sleep(time.Second)   // want: forbidigo
	_ = context.Background()  // want: forbidigo
	_ = context.TODO()        // want: forbidigo
}

var _ = reconcile
