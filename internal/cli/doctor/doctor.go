// Package doctor is the command `keelson doctor`.
package doctor

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

const long = `Show which features of Keelson this host supports, what is missing for the others, and how to get it.
Nothing is changed, and nothing needs to be running. The exit code is 0 if keelson up can run here, otherwise 1.`

// New returns the command.
func New() *cobra.Command {
	var flags instance.Flags
	output := "text"
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this host's prerequisites",
		Long:  long,
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "text" && output != "json" {
				return usage.Errorf("--output=%s: must be text or json", output)
			}
			dir, err := flags.Dir()
			if err != nil {
				return err
			}
			features := examine(cmd.Context(), dir)
			if err := write(cmd.OutOrStdout(), output, features); err != nil {
				return err
			}
			for _, f := range features {
				if f.Required && !f.works() {
					return usage.ErrSilent // the output has the reason
				}
			}
			return nil
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}

// feature is a part of Keelson with its requirements.
type feature struct {
	Name string `json:"name"`
	// Required reports whether keelson up fails without it.
	Required bool    `json:"required,omitempty"`
	Checks   []check `json:"checks"`
}

// works reports whether nothing that the feature needs is missing.
func (f feature) works() bool {
	return !slices.ContainsFunc(f.Checks, func(c check) bool { return c.State == missing })
}

// state is the result of a check.
type state string

const (
	// ok: the host has it.
	ok state = "ok"
	// limited: the feature works without it, but slower or with less protection.
	limited state = "limited"
	// missing: the feature does not work without it.
	missing state = "missing"
)

// check is one requirement of a feature.
type check struct {
	Name  string `json:"name"`
	State state  `json:"state"`
	// Detail is what was found, or what is missing with the remedy.
	Detail string `json:"detail,omitempty"`
}

// examine checks all features. dir is the data directory, which need not exist.
func examine(ctx context.Context, dir string) []feature {
	return []feature{
		{Name: "Kubernetes API and controllers (keelson up)", Required: true, Checks: checkControlPlane(dir)},
		{Name: "Containers on a real node (keelson up --node=real)", Checks: checkNode()},
		{Name: "Virtual machines (driver qemu)", Checks: checkMachines(ctx)},
		{Name: "Containers as machines (driver docker)", Checks: checkDocker()},
	}
}

// write prints the features.
func write(w io.Writer, output string, features []feature) error {
	if output == "json" {
		return object.WriteJSON(w, features)
	}
	for i, f := range features {
		if i > 0 {
			fmt.Fprintln(w)
		}
		fmt.Fprintln(w, f.Name)
		for _, c := range f.Checks {
			if _, err := fmt.Fprintf(w, "  %-8s %-20s %s\n", c.State, c.Name, c.Detail); err != nil {
				return err
			}
		}
	}
	return nil
}
