// Command init is the first process of the guest, and the only one besides those that
// a user starts: it loads drivers, configures the network, applies the seed, answers
// the host's agent protocol, serves SSH and the shell on the console, and ends the
// guest cleanly.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/guest/internal/system"
)

// memoryLimit makes the garbage collector work harder before the guest, which may
// have 64 MiB in all, loses memory to garbage. It is no hard limit.
const memoryLimit = 24 << 20

// requests are the signals by which the programs of these names, which are this one
// too, ask the first process for an end.
var requests = map[string]unix.Signal{
	"poweroff": unix.SIGUSR2, "reboot": unix.SIGTERM, "halt": unix.SIGUSR1,
}

func main() {
	if signal, known := requests[filepath.Base(os.Args[0])]; known {
		if err := unix.Kill(1, signal); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
			os.Exit(1)
		}
		return
	}
	if filepath.Base(os.Args[0]) == "sftp-server" {
		if err := serveFiles(); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[0], err)
			os.Exit(1)
		}
		return
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init: this is the first process of a Keelson guest, there is nothing to run by hand")
		os.Exit(2)
	}
	debug.SetMemoryLimit(memoryLimit)
	mountErr := system.Mount()
	console, err := system.OpenConsole()
	if err != nil {
		console.Printf("No console: %v", err)
	}
	if mountErr != nil {
		console.Printf("Some file systems are missing: %v", mountErr)
	}
	// Where the programs are that the seed names without a path.
	if err := os.Setenv("PATH", searchPath); err != nil {
		console.Printf("No search path: %v", err)
	}
	in := newInit(console)
	// Control-Alt-Delete comes as a signal and not as a sudden reset.
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_CAD_OFF)
	ctx, cancel := context.WithCancel(context.Background())
	ending := in.run(ctx)
	cancel()
	console.Printf("The guest is %s", ending)
	if err := in.processes.End(ending); err != nil {
		console.Printf("The kernel refuses: %v", err)
	}
	// If the first process ended, the kernel would panic.
	select {}
}
