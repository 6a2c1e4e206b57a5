// Command keelson runs a Kubernetes API with Keelson's controllers on this machine, or only the
// controllers against any cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/cli"
	// Runs main instead if this process is the shim of a long-lived process.
	_ "github.com/keelson-dev/keelson/internal/process/shim"
)

// repeatDelay is the time after which a second signal ends the process at once. Within it, the signal is a duplicate: one to the
// process group and one to the process.
const repeatDelay = time.Second

func main() {
	os.Exit(cli.Run(untilSignal(), os.Args, os.Stdout, os.Stderr))
}

// untilSignal returns a context that ends at the first signal, which requests a clean stop. A later
// signal aborts a slow stop.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	received := make(chan os.Signal, 8)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // ignored under nohup
		signal.Notify(received, syscall.SIGHUP)
	}
	go func() {
		<-received
		first := time.Now()
		cancel()
		for range received {
			if time.Since(first) > repeatDelay {
				fmt.Fprintln(os.Stderr, "error: stopped by force at the second signal; `keelson status` shows what is left")
				os.Exit(1)
			}
		}
	}()
	return ctx
}
