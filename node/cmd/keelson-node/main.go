// Command keelson-node is a Kubernetes node on this machine, in namespaces of its own. containerd is built in; kubelet
// and kube-proxy come from keelson-kube.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	_ "github.com/containerd/containerd/v2/cmd/containerd/builtins" // containerd's plugins
	containerd "github.com/containerd/containerd/v2/cmd/containerd/command"

	"github.com/keelson-dev/keelson/node/internal/command"
	"github.com/keelson-dev/keelson/node/internal/host"
	"github.com/keelson-dev/keelson/node/internal/inside"
	"github.com/keelson-dev/keelson/node/internal/layers"
)

const usage = `usage: keelson-node run SETTINGS
       keelson-node remove SETTINGS
       keelson-node sweep-layers FOLDER
       keelson-node image-load [-own] [-name NAME] [-entrypoint PATH] FILE|FOLDER|- SOCKET...
       keelson-node image-list SOCKET`

func main() {
	if err := run(os.Args); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if filepath.Base(args[0]) == "containerd" { // the node starts it by this name
		layers.ShareIfAsked()
		return containerd.App().Run(context.Background(), args)
	}
	if len(args) < 2 {
		return fmt.Errorf("nothing to do\n%s", usage)
	}
	switch name, rest := args[1], args[2:]; {
	case name == "run" && len(rest) == 1:
		return host.Run(rest[0])
	case name == "inside" && len(rest) == 1: // started by run
		return inside.Run(rest[0])
	case name == "as-root": // started by run and remove
		return inside.BecomeRoot(rest)
	case name == "remove" && len(rest) == 1:
		return host.Remove(rest[0])
	case name == "remove-inside": // started by remove, and by run for a volume
		return inside.Remove(rest)
	case name == "sweep-layers" && len(rest) == 1:
		return layers.Dir(rest[0]).Sweep()
	case name == "image-load":
		return command.LoadImages(interruptible(), rest, os.Stdin, os.Stdout)
	case name == "image-list":
		return command.ListImages(interruptible(), rest, os.Stdout)
	default:
		return fmt.Errorf("unknown arguments %q\n%s", args[1:], usage)
	}
}

// interruptible returns a context that ends with Ctrl-C.
func interruptible() context.Context {
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt) // as long as this process
	return ctx
}
