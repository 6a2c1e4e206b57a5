// Command run starts an API server, runs a command that may use it, and stops it:
//
// go run ./internal/testing/env/run -- go test ./...
//
// The command finds the kubeconfig in KEELSON_TEST_KUBECONFIG. The exit code is the command's. If
// the variable is already set, no server is started.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

func main() {
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: run -- COMMAND [ARGS]")
		os.Exit(2)
	}
	code, err := run(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
	}
	os.Exit(code)
}

// run runs the command beside an API server and returns the exit code for both.
func run(args []string) (code int, err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	environ := os.Environ()
	if os.Getenv(env.KubeconfigVariable) == "" {
		cp, stop, err := env.StartControlPlane(ctx, controlplane.Options{APIOnly: true})
		if err != nil {
			return 1, err
		}
		defer func() {
			if stopErr := stop(); stopErr != nil {
				code, err = max(code, 1), errors.Join(err, stopErr)
			}
		}()
		environ = append(environ, env.KubeconfigVariable+"="+cp.Kubeconfig())
	}
	// A signal reaches the command, too. Wait for it, so that the server outlives it.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Env = os.Stdin, os.Stdout, os.Stderr, environ
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}
