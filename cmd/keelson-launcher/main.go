// keelson-launcher is the program in the Pod of a VirtualMachine of the driver pod. It is not part of keelson, because it is in the
// memory of each machine, and in an image of its own.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/keelson-dev/keelson/internal/launcher"
)

// gcPercent and memoryLimit keep the program small, which is in the memory of each machine. The limit is a soft one.
const (
	gcPercent   = 50
	memoryLimit = 32 << 20
)

func main() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	status := 0
	switch {
	case os.Getenv(launcher.Variable) != "":
		status = runMachine(ctx)
	case os.Getenv(launcher.JobVariable) != "":
		status = runJob(ctx)
	default:
		fmt.Fprintf(os.Stderr, "keelson-launcher runs in the Pods of VirtualMachines, which set %s or %s. See docs/drivers.md.\n", launcher.Variable, launcher.JobVariable)
		status = 2
	}
	os.Exit(status)
}

// runMachine runs a machine, and returns the status of the program.
func runMachine(ctx context.Context) int {
	var ended launcher.Ended
	var definition launcher.Definition
	if err := json.Unmarshal([]byte(os.Getenv(launcher.Variable)), &definition); err != nil {
		ended = launcher.Ended{Cause: launcher.CauseStartFailed, Message: fmt.Sprintf("%s: %v", launcher.Variable, err)}
	} else {
		ended = launcher.Run(ctx, definition, launcher.PodDirs(), os.Stdout, os.Stderr)
	}
	report(ended)
	fmt.Fprintf(os.Stderr, "The machine ended: %s %s\n", ended.Cause, ended.Message)
	if ended.Cause != launcher.CauseGuestShutdown && ended.Cause != launcher.CauseAsleep {
		return 1
	}
	return 0
}

// runJob does a job, and returns the status of the program.
func runJob(ctx context.Context) int {
	var result launcher.JobResult
	var job launcher.Job
	if err := json.Unmarshal([]byte(os.Getenv(launcher.JobVariable)), &job); err != nil {
		result.Error = fmt.Sprintf("%s: %v", launcher.JobVariable, err)
	} else {
		result = launcher.RunJob(ctx, job, launcher.PodDirs(), os.Stderr)
	}
	report(result)
	if result.Error != "" {
		return 1
	}
	return 0
}

// report writes how the program ended to where kubelet reads it.
func report(ended any) {
	raw, err := json.Marshal(ended)
	if err == nil {
		err = os.WriteFile(launcher.TerminationLog, raw, 0o644)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "report how it ended: %v\n", err)
	}
}
