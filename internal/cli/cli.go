// Package cli is the command line of Keelson, with one folder per command. Commands return their
// errors; package program prints them once and converts them to an exit code.
package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/backup"
	clustercmd "github.com/keelson-dev/keelson/internal/cli/cluster"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	configcmd "github.com/keelson-dev/keelson/internal/cli/config"
	consolecmd "github.com/keelson-dev/keelson/internal/cli/console"
	crontabcmd "github.com/keelson-dev/keelson/internal/cli/crontab"
	"github.com/keelson-dev/keelson/internal/cli/doctor"
	"github.com/keelson-dev/keelson/internal/cli/down"
	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/kubeconfig"
	"github.com/keelson-dev/keelson/internal/cli/logs"
	managercmd "github.com/keelson-dev/keelson/internal/cli/manager"
	"github.com/keelson-dev/keelson/internal/cli/manifests"
	nodecmd "github.com/keelson-dev/keelson/internal/cli/node"
	"github.com/keelson-dev/keelson/internal/cli/program"
	"github.com/keelson-dev/keelson/internal/cli/restore"
	"github.com/keelson-dev/keelson/internal/cli/status"
	"github.com/keelson-dev/keelson/internal/cli/target"
	topcmd "github.com/keelson-dev/keelson/internal/cli/top"
	"github.com/keelson-dev/keelson/internal/cli/up"
	versioncmd "github.com/keelson-dev/keelson/internal/cli/version"
	versionscmd "github.com/keelson-dev/keelson/internal/cli/versions"
	vmcmd "github.com/keelson-dev/keelson/internal/cli/vm"
	"github.com/keelson-dev/keelson/internal/debian"
)

const long = `Keelson extends Kubernetes with custom resources and the controllers that reconcile
them. On one host it brings its own Kubernetes API; on a cluster the same program
runs as the manager.`

// Run runs the command line argv of a process, whose first word is the name of the program, as Main does.
func Run(ctx context.Context, argv []string, stdout, stderr io.Writer) int {
	return program.Run(ctx, New, argv, stdout, stderr)
}

// Main runs the command line args (without the program's name) until it ends or ctx is cancelled,
// and returns the exit code of the process. Results go to stdout; messages, logs and errors go to
// stderr.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return Run(ctx, append([]string{"keelson"}, args...), stdout, stderr)
}

// New returns the command line with all commands. Main runs it.
func New() *cobra.Command {
	target.OnHost = instance.Host{}
	root := program.New("keelson", long)
	for _, group := range groups() {
		root.AddGroup(&cobra.Group{ID: group.title, Title: group.title + ":"})
		for _, cmd := range group.commands {
			cmd.GroupID = group.title
			root.AddCommand(cmd)
		}
	}
	root.AddCommand(versioncmd.New(), newEnvironment())
	complete.Flags(root)
	return root
}

// group is commands with a title in the help.
type group struct {
	title    string
	commands []*cobra.Command
}

func groups() []group {
	return []group{
		{"Run Keelson", []*cobra.Command{
			up.New(), down.New(), status.New(), doctor.New(), logs.New(), kubeconfig.New(), configcmd.New(), nodecmd.New(), backup.New(), restore.New(),
		}},
		{"Use it", []*cobra.Command{vmcmd.New(&vmcmd.Builder{Secure: instance.Secure, Build: debian.Build}), clustercmd.New(versionscmd.New), crontabcmd.New(), consolecmd.New(), topcmd.New()}},
		{"Operate it in a cluster", []*cobra.Command{managercmd.New(), manifests.New()}},
	}
}
