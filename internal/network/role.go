package network

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/keelson-dev/keelson/internal/sandbox"
	"github.com/keelson-dev/keelson/internal/self"
)

// Name is the name of this program, argv[0], in the role of a switch.
const Name = "keelson-network"

// coreLimit is the resource of setrlimit(2) for core files, which would contain what guests send.
const coreLimit = syscall.RLIMIT_CORE

// Command returns what to execute for the switch with this directory, which has to exist with mode 0700: this program, in
// its role. argv includes argv[0]. The process ends cleanly at SIGTERM; it logs to its standard error.
func Command(directory string) (path string, argv []string) {
	return self.Path, []string{Name, directory}
}

// Confined is like Command for the switch with the working directory as its directory, with no more rights than it needs: it
// changes nothing but its directory, executes nothing, and has no capabilities. connect are the directories with the sockets
// of its machines and of other switches.
func Confined(connect ...string) (path string, argv []string) {
	spec := &sandbox.Spec{
		Network: true, Own: []string{"."}, Connect: connect, Argv0: Name,
		// The directory of resolv.conf, if programs replace it there, as systemd-resolved does.
		Read:   []string{resolvFile, "/run/systemd/resolve", "/run/resolvconf", "/proc/self"},
		Limits: []sandbox.Limit{{Resource: coreLimit}},
	}
	return spec.Command("/proc/self/exe", ".")
}

// gcPercent and memoryLimit keep the process small. The limit is a soft one, which only makes collections more frequent.
const (
	gcPercent   = 50
	memoryLimit = 96 << 20
)

// Role does nothing and returns at once, unless this program was started with Command. Then it serves the network and ends
// the program. It must run before anything else: package role does that.
func Role() {
	if len(os.Args) == 0 || os.Args[0] != Name {
		return
	}
	if len(os.Args) != 2 {
		fmt.Fprintf(os.Stderr, "%s: it is started by keelson, not by hand\n", Name)
		syscall.Exit(2)
	}
	if err := sandbox.DenyPrograms(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
		syscall.Exit(1)
	}
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := Serve(ctx, Options{Directory: os.Args[1], Log: os.Stderr})
	stop()
	code := 0
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", Name, err)
		code = 1
	}
	// Not os.Exit, whose hooks belong to packages that were not initialised.
	syscall.Exit(code)
}
