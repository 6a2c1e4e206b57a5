// Package program runs a command line: it prints errors once and converts them to an exit code, and makes commands plugins of kubectl.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/cli/usage"
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

// plugins are the commands that are plugins of kubectl, too: `kubectl vm` runs the program kubectl-vm, which is a link to the program.
var plugins = []string{"cluster", "crontab", "vm"}

// itself is the plugin with all commands: `kubectl keelson vm list`.
const itself = "keelson"

// New returns a command line without commands.
func New(name, long string) *cobra.Command {
	root := &cobra.Command{
		Use:   name,
		Short: "Kubernetes resources for apps, schedules, machines and clusters",
		Long:  long,
		// Run prints errors; the list of flags would hide them.
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          knownCommand,
		Version:       version.Get().Keelson,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage.BadFlag(cmd.CommandPath(), err)
	})
	root.SetHelpCommand(newHelp())
	return root
}

// Run runs the command line argv of a process, whose first word is the name of the program, until it ends or ctx is cancelled. It returns the
// exit code of the process. Results go to stdout; messages, logs and errors go to stderr.
func Run(ctx context.Context, newRoot func() *cobra.Command, argv []string, stdout, stderr io.Writer) int {
	name, args := nameAndArguments(argv)
	root := newRoot()
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	checkCompletion(root)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	typed := asTyped(root, name)
	rename(root, typed)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return ExitOK
	}
	if errors.Is(err, usage.ErrSilent) {
		return ExitFailure
	}
	// There is no way to report that stderr itself fails.
	_, _ = fmt.Fprintf(stderr, "error: %s\n", typed.Replace(err.Error()))
	if wrong := (*usage.Error)(nil); errors.As(err, &wrong) {
		return ExitUsage
	}
	return ExitFailure
}

// nameAndArguments returns the name of the program as a user types it, and its arguments.
func nameAndArguments(argv []string) (name string, args []string) {
	program, args := strings.TrimSuffix(filepath.Base(argv[0]), ".exe"), argv[1:]
	switch program {
	case "kubectl-" + itself:
		return "kubectl " + itself, args
	case "kubectl_complete-" + itself: // which kubectl runs for the completion of arguments
		return "kubectl " + itself, append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	for _, plugin := range plugins {
		switch program {
		case "kubectl-" + plugin:
			return "kubectl", append([]string{plugin}, args...)
		case "kubectl_complete-" + plugin:
			return "kubectl", append([]string{cobra.ShellCompRequestCmd, plugin}, args...)
		}
	}
	return "keelson", args
}

// asTyped returns a replacer of commands in texts, which are those of keelson, by commands of the program as a user types it.
func asTyped(root *cobra.Command, name string) *strings.Replacer {
	if name == itself {
		return strings.NewReplacer()
	}
	pairs := []string{"kubectl " + itself, "kubectl " + itself} // is as typed already
	for _, cmd := range root.Commands() {
		if name != "kubectl" || slices.Contains(plugins, cmd.Name()) {
			pairs = append(pairs, itself+" "+cmd.Name(), name+" "+cmd.Name())
		}
	}
	return strings.NewReplacer(pairs...)
}

// rename replaces commands in the help of cmd and of the commands below it.
func rename(cmd *cobra.Command, typed *strings.Replacer) {
	cmd.Long, cmd.Example = typed.Replace(cmd.Long), typed.Replace(cmd.Example)
	for _, flags := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		flags.VisitAll(func(flag *pflag.Flag) { flag.Usage = typed.Replace(flag.Usage) })
	}
	for _, below := range cmd.Commands() {
		rename(below, typed)
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
