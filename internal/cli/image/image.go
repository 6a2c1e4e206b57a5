// Package image is the command `keelson image`: images for the real node that need no registry.
package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
)

const loadExamples = `  # An archive of docker save, podman save or another tool
  keelson image load app.tar
  docker save app:dev | keelson image load -

  # A folder with one static program; a container then uses image: hello:v1
  keelson image load --name hello:v1 ./hello

  # An OCI image layout, such as skopeo, buildah or crane write
  keelson image load ./layout`

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Load and list the container images of the real node",
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLoad(), newList())
	return cmd
}

func newLoad() *cobra.Command {
	var flags instance.Flags
	var name, entrypoint string
	cmd := &cobra.Command{
		Use:   "load FILE|FOLDER|-",
		Short: "Load images from an archive or a folder, so that no registry is needed",
		Long: `Load images into the real node of a running Keelson, and print their names. The source is an
archive (Docker or OCI, optionally gzipped; - is standard input), a folder with an OCI image
layout (the files oci-layout and index.json), or any other folder, which becomes an image.

Without a tag, or with the tag latest, a container still pulls its image from the registry unless
its imagePullPolicy is IfNotPresent or Never: give the loaded image another tag.`,
		Example: loadExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage.Errorf("keelson image load takes one FILE, FOLDER or -; got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			words := []string{}
			if name != "" {
				words = append(words, "-name="+name)
			}
			if entrypoint != "" {
				words = append(words, "-entrypoint="+entrypoint)
			}
			return run(cmd, flags, "image-load", words, args...)
		},
	}
	flags.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the image from a folder (default: the one in its layout, or the folder's name)")
	cmd.Flags().StringVar(&entrypoint, "entrypoint", "", "`path` in the image of the program to run, for a folder without a layout (default: the only one at its top)")
	return cmd
}

func newList() *cobra.Command {
	var flags instance.Flags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images of the real node",
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return run(cmd, flags, "image-list", nil)
		},
	}
	flags.AddFlags(cmd.Flags())
	return cmd
}

// run runs keelson-node, which contains containerd's client; this program does not.
func run(cmd *cobra.Command, flags instance.Flags, command string, options []string, args ...string) error {
	dir, err := flags.Dir()
	if err != nil {
		return err
	}
	socket, err := nodeSocket(cmd.Context(), dir)
	if err != nil {
		return err
	}
	programs, err := instance.NodePrograms()
	if err != nil {
		return err
	}
	program := filepath.Join(programs, node.Program)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the program of the real node is missing: %s (build it with `make node`)", program)
	}
	words := append([]string{command}, options...)
	child := exec.CommandContext(cmd.Context(), program, append(append(words, socket), args...)...)
	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err = child.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return usage.ErrSilent // the output has the reason
	}
	return err
}

// nodeSocket returns the containerd socket of the real node in a data directory.
func nodeSocket(ctx context.Context, dir string) (string, error) {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return "", err
	}
	if !report.RealNode {
		return "", fmt.Errorf("no real node runs in %s: `%s --node=real` starts one", dir, instance.Command("up", dir))
	}
	return filepath.Join(controlplane.NodeDir(dir), node.Socket), nil
}
