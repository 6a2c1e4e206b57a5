// Command keelson runs a Kubernetes API with Keelson's controllers on this machine,
// or the controllers alone against any cluster.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/cli"
	// Takes over when this program was started as the shim of a long-lived process.
	_ "github.com/keelson-dev/keelson/internal/process/shim"
)

// impatience is how long after the first signal another one counts. Whoever signals
// a whole process group, and then the process, has not become impatient yet.
const impatience = time.Second

func main() {
	os.Exit(cli.Main(untilSignal(), os.Args[1:], os.Stdout, os.Stderr))
}

// untilSignal returns a context that ends at the first signal, which asks for a clean
// stop. A later one ends a stop that takes too long.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	received := make(chan os.Signal, 8)
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // as it is under nohup
		signal.Notify(received, syscall.SIGHUP)
	}
	go func() {
		<-received
		first := time.Now()
		cancel()
		for range received {
			if time.Since(first) > impatience {
				fmt.Fprintln(os.Stderr, "error: stopped by force at the second signal; `keelson status` shows what is left")
				os.Exit(1)
			}
		}
	}()
	return ctx
}
