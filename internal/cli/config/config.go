// Package config is the command `keelson config`: the file of --config.
package config

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/up"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/manager"
)

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Print and check configurations for keelson up and keelson manager",
		Long: `Print and check files with a ` + manager.ConfigurationKind + `, which --config of keelson up and keelson manager reads: the options
that have no flag. A field that is not in the file keeps its default; a flag takes precedence over the file.`,
		Args: usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDefault(), newCheck())
	return cmd
}

func newDefault() *cobra.Command {
	return &cobra.Command{
		Use:     "default up|manager",
		Short:   "Print the default configuration",
		Long:    "Print the default configuration of keelson up, or of keelson manager.",
		Example: "  keelson config default up > keelson.yaml\n  keelson up --config keelson.yaml",
		Args:    usage.OneArg("COMMAND", "up or manager"), ValidArgs: []string{"up", "manager"},
		RunE: func(cmd *cobra.Command, args []string) error {
			var options manager.Options
			switch args[0] {
			case "up":
				options = up.Defaults()
			case "manager":
				options = manager.NewOptions()
			default:
				return usage.Errorf("there is no configuration of %q: it is of up or manager", args[0])
			}
			text, err := options.Configuration()
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
}

func newCheck() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE",
		Short:   "Check a configuration",
		Long:    "Check a configuration: its fields must exist, and their values must be valid. The command does not check files and addresses.",
		Example: "  keelson config check keelson.yaml",
		Args:    usage.OneArg("FILE", "the configuration"),
		RunE: func(cmd *cobra.Command, args []string) error {
			options := manager.NewOptions()
			options.Config = args[0]
			err := options.ReadConfig(cmd.Flags())
			if err == nil {
				err = options.Validate()
			}
			if err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), args[0], "is valid")
			}
			return err
		},
	}
}
