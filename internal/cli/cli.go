// Package cli is the command line of Keelson, with one folder per command. Commands return their
// errors; Main prints them once and converts them to an exit code.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/backup"
	clustercmd "github.com/keelson-dev/keelson/internal/cli/cluster"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	consolecmd "github.com/keelson-dev/keelson/internal/cli/console"
	crontabcmd "github.com/keelson-dev/keelson/internal/cli/crontab"
	"github.com/keelson-dev/keelson/internal/cli/doctor"
	"github.com/keelson-dev/keelson/internal/cli/down"
	"github.com/keelson-dev/keelson/internal/cli/kubeconfig"
	"github.com/keelson-dev/keelson/internal/cli/logs"
	managercmd "github.com/keelson-dev/keelson/internal/cli/manager"
	"github.com/keelson-dev/keelson/internal/cli/manifests"
	nodecmd "github.com/keelson-dev/keelson/internal/cli/node"
	"github.com/keelson-dev/keelson/internal/cli/restore"
	"github.com/keelson-dev/keelson/internal/cli/status"
	topcmd "github.com/keelson-dev/keelson/internal/cli/top"
	"github.com/keelson-dev/keelson/internal/cli/up"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	versioncmd "github.com/keelson-dev/keelson/internal/cli/version"
	vmcmd "github.com/keelson-dev/keelson/internal/cli/vm"
	"github.com/keelson-dev/keelson/internal/version"
)

// Exit codes of the program.
const (
	// ExitOK: the command succeeded, or stopped on request.
	ExitOK = 0
	// ExitFailure: the command failed; standard error has the reason.
	ExitFailure = 1
	// ExitUsage: the command line is invalid; nothing was done.
	ExitUsage = 2
)

const long = `Keelson extends Kubernetes with custom resources and the controllers that reconcile
them. On one host it brings its own Kubernetes API; on a cluster the same program
runs as the manager.`

// plugins are the commands that are plugins of kubectl, too: `kubectl vm` runs the program kubectl-vm, which is a link to
// this one.
var plugins = []string{"cluster", "crontab", "vm"}

// Run runs the command line argv of a process, whose first word is the name of the program, as Main does.
func Run(ctx context.Context, argv []string, stdout, stderr io.Writer) int {
	program, args := filepath.Base(argv[0]), argv[1:]
	for _, plugin := range plugins {
		switch program {
		case "kubectl-" + plugin:
			return execute(ctx, "kubectl", append([]string{plugin}, args...), stdout, stderr)
		case "kubectl_complete-" + plugin: // which kubectl runs for the completion of arguments
			return execute(ctx, "kubectl", append([]string{cobra.ShellCompRequestCmd, plugin}, args...), stdout, stderr)
		}
	}
	return Main(ctx, args, stdout, stderr)
}

// Main runs the command line args (without the program's name) until it ends or ctx is cancelled,
// and returns the exit code of the process. Results go to stdout; messages, logs and errors go to
// stderr.
func Main(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return execute(ctx, "keelson", args, stdout, stderr)
}

// execute runs a command line of a program with this name.
func execute(ctx context.Context, name string, args []string, stdout, stderr io.Writer) int {
	root := New()
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	checkCompletion(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, usage.ErrSilent) {
		return ExitFailure
	}
	// There is no way to report that stderr itself fails.
	_, _ = fmt.Fprintf(stderr, "error: %v\n", err)
	if wrong := (*usage.Error)(nil); errors.As(err, &wrong) {
		return ExitUsage
	}
	return ExitFailure
}

// New returns the command line with all commands. Main runs it.
func New() *cobra.Command {
	root := &cobra.Command{
		Use:   "keelson",
		Short: "Kubernetes resources for apps, schedules, machines and clusters",
		Long:  long,
		// Main prints errors; the list of flags would hide them.
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		Version:       version.Get().Keelson,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("keelson {{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage.BadFlag(cmd.CommandPath(), err)
	})
	root.SetHelpCommand(newHelp())
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
			up.New(), down.New(), status.New(), doctor.New(), logs.New(), kubeconfig.New(), nodecmd.New(), backup.New(), restore.New(),
		}},
		{"Use it", []*cobra.Command{vmcmd.New(), clustercmd.New(), crontabcmd.New(), consolecmd.New(), topcmd.New()}},
		{"Operate it in a cluster", []*cobra.Command{managercmd.New(), manifests.New()}},
	}
}

// checkCompletion adds cobra's `keelson completion`. Unlike that, it fails for a shell that does not exist.
func checkCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	if err != nil {
		return // cobra has none
	}
	completion.Args, completion.RunE = knownCommand, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for _, shell := range completion.Commands() {
		shell.Args = usage.NoArgs
	}
}

// newHelp returns `keelson help`. Unlike cobra's, it fails for an unknown command.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil {
				return usage.Errorf("%w", err)
			}
			if len(rest) > 0 {
				return knownCommand(found, rest)
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// knownCommand rejects arguments of the bare program: they are misspelt commands.
func knownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := "see " + cmd.CommandPath() + " --help"
	if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
		hint = "did you mean " + strings.Join(similar, " or ") + "?"
	}
	return usage.Errorf("there is no command %q; %s", args[0], hint)
}
