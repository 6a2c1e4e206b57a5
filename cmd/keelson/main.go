// Command keelson runs a Kubernetes API with Keelson's controllers on this machine,
// or the controllers alone against any cluster.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/keelson-dev/keelson/internal/cli"
	// Takes over when this program was started as the shim of a long-lived process.
	_ "github.com/keelson-dev/keelson/internal/process/shim"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	// The first signal asks for a clean stop. From then on the default applies
	// again, so that a second one ends a stop that takes too long.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdout, os.Stderr))
}
