// Package image is the command `keelson node image`: images for the real node that need no registry.
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
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/node"
)

const loadExamples = `  # An archive of docker save, podman save or another tool
  keelson node image load app.tar
  docker save app:dev | keelson node image load -

  # A folder with one static program; a container then uses image: hello:v1
  keelson node image load --name hello:v1 ./hello

  # An OCI image layout, such as skopeo, buildah or crane write
  keelson node image load ./layout

  # Into the nodes of a Cluster
  keelson node image load --cluster demo app.tar`

// New returns the command.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Load and list the container images of the real nodes",
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newLoad(), newList())
	return cmd
}

func newLoad() *cobra.Command {
	var flags source
	var name, entrypoint string
	cmd := &cobra.Command{
		Use:   "load FILE|FOLDER|-",
		Short: "Load images from an archive or a folder, so that no registry is needed",
		Long: `Load images into the real nodes of a running Keelson, or of one of its Clusters, and print their
names. The source is an archive (Docker or OCI, optionally gzipped; - is standard input), a folder
with an OCI image layout (the files oci-layout and index.json), or any other folder, which becomes
an image.

Without a tag, or with the tag latest, a container still pulls its image from the registry unless
its imagePullPolicy is IfNotPresent or Never: give the loaded image another tag.`,
		Example: loadExamples,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage.Errorf("keelson node image load takes one FILE, FOLDER or -; got %d", len(args))
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
			return run(cmd, flags, append([]string{"image-load"}, append(words, args...)...), node.MaxNodes)
		},
	}
	flags.addFlags(cmd.Flags())
	cmd.Flags().StringVar(&name, "name", "", "`name` of the image from a folder (default: the one in its layout, or the folder's name)")
	cmd.Flags().StringVar(&entrypoint, "entrypoint", "", "`path` in the image of the program to run, for a folder without a layout (default: the only one at its top)")
	return cmd
}

func newList() *cobra.Command {
	var flags source
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"},
		Short: "List the images of the real node, of the first one if there are several",
		Args:  usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			// All nodes have the images that were loaded. What is pulled is on the nodes whose Pods need it.
			return run(cmd, flags, []string{"image-list"}, 1)
		},
	}
	flags.addFlags(cmd.Flags())
	return cmd
}

// run runs keelson-node, which contains containerd's client; this program does not. The last arguments are the sockets of real nodes,
// up to a number.
func run(cmd *cobra.Command, flags source, args []string, most int) error {
	sockets, err := flags.sockets(cmd.Context())
	if err != nil {
		return err
	}
	args = append(args, sockets[:min(most, len(sockets))]...)
	programs, err := instance.NodePrograms()
	if err != nil {
		return err
	}
	program := filepath.Join(programs, node.Program)
	if _, err := os.Stat(program); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the program of the real node is missing: %s (build it with `make node`)", program)
	}
	child := exec.CommandContext(cmd.Context(), program, args...)
	child.Stdin, child.Stdout, child.Stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	err = child.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return usage.ErrSilent // the output has the reason
	}
	return err
}

// source selects the nodes.
type source struct {
	instance.Flags
	cluster string
}

func (s *source) addFlags(fs *pflag.FlagSet) {
	s.AddFlags(fs)
	fs.Var(usage.NonEmpty(&s.cluster), "cluster", "`name` of a Cluster with real nodes, instead of the node of Keelson itself. After keelson manager, --data-dir is its --state-dir")
}

// sockets returns the containerd sockets of the nodes that run.
func (s *source) sockets(ctx context.Context) ([]string, error) {
	dir, err := s.Dir()
	if err != nil {
		return nil, err
	}
	if s.cluster == "" {
		return nodeSockets(ctx, dir)
	}
	dirs, err := local.Dirs(manager.ClusterDir(dir), s.cluster)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs { // a directory may be left of an earlier Cluster of the name, without processes
		if sockets, err := nodeSockets(ctx, dir); err == nil {
			return sockets, nil
		}
	}
	return nil, fmt.Errorf("no real node of a Cluster %s runs in %s: `keelson cluster create %[1]s --nodes 1` creates one", s.cluster, dir)
}

// nodeSockets returns the containerd sockets of the real nodes of a data directory that run.
func nodeSockets(ctx context.Context, dir string) ([]string, error) {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	var sockets []string
	for _, index := range report.RunningNodes() {
		sockets = append(sockets, filepath.Join(node.Dir(dir, index), node.Socket))
	}
	if len(sockets) == 0 {
		return nil, fmt.Errorf("no real node runs in %s: `%s --node=real` starts one", dir, instance.Command("up", dir))
	}
	return sockets, nil
}
