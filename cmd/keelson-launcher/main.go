// keelson-launcher is the program in the Pod of a VirtualMachine of the driver pod. It is not part of keelson, because it is in the
// memory of each machine, and in an image of its own.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/keelson-dev/keelson/internal/launcher"
)

func main() {
	if os.Getenv(launcher.Variable) == "" {
		fmt.Fprintf(os.Stderr, "keelson-launcher runs in the Pods of VirtualMachines, which set %s. See docs/drivers.md.\n", launcher.Variable)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	var ended launcher.Ended
	var definition launcher.Definition
	if err := json.Unmarshal([]byte(os.Getenv(launcher.Variable)), &definition); err != nil {
		ended = launcher.Ended{Cause: launcher.CauseStartFailed, Message: fmt.Sprintf("%s: %v", launcher.Variable, err)}
	} else {
		ended = launcher.Run(ctx, definition, launcher.PodDirs(), os.Stdout, os.Stderr)
	}
	if raw, err := json.Marshal(ended); err == nil {
		err = os.WriteFile(launcher.TerminationLog, raw, 0o644)
		if err != nil {
			fmt.Fprintf(os.Stderr, "report how the machine ended: %v\n", err)
		}
	}
	fmt.Fprintf(os.Stderr, "The machine ended: %s %s\n", ended.Cause, ended.Message)
	if ended.Cause != launcher.CauseGuestShutdown && ended.Cause != launcher.CauseAsleep {
		os.Exit(1)
	}
}
