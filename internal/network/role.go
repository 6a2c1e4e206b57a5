package network

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// Name is the name of this program, argv[0], in the role of a switch.
const Name = "keelson-network"

// Command returns what to execute for the switch with this directory, which has to exist with mode 0700: this program, in
// its role. argv includes argv[0]. The process ends cleanly at SIGTERM; it logs to its standard error.
func Command(directory string) (path string, argv []string) {
	return "/proc/self/exe", []string{Name, directory}
}

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
