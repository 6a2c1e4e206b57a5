package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// debianReleases are the suites of Debian with their version.
var debianReleases = map[string]string{"bookworm": "12", "trixie": "13"}

// Builder builds images on the host of Keelson.
type Builder struct {
	// Secure prepares a data directory, and Build builds an image of a suite of Debian at path.
	Secure func(ctx context.Context, dir string, ephemeral bool) error
	Build  func(ctx context.Context, path, suite string, packages []string, progress io.Writer) error
}

func (b *Builder) newBuild(t *target.Flags) *cobra.Command {
	suite, rebuild := "trixie", false
	var packages []string
	cmd := &cobra.Command{
		Use:   "build debian",
		Short: "Build a cloud image from the packages of a distribution",
		Long: `Build a cloud image of Debian from the packages of the distribution, which apt downloads and verifies,
and add it as debian-13. It takes a few minutes, and needs no root. The image has cloud-init, an SSH
server, sudo, the QEMU guest agent and common tools; the user is debian.

The image is kept in vm-images in the data directory. If Keelson is not running, the command builds it
and says how to add it.`,
		Example: `  keelson vm image build debian

  # With more packages, as another image
  keelson vm image build debian --suite bookworm --package git,postgresql`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] != "debian" {
				return usage.Errorf("keelson vm image build takes one distribution: debian. docs/images.md says how to bring images of others")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			name, err := imageName(suite, packages)
			if err != nil {
				return err
			}
			path, err := b.build(cmd, t, name, suite, packages, rebuild)
			if err != nil {
				return err
			}
			return register(cmd, t, name, path)
		},
		ValidArgsFunction: cobra.FixedCompletions([]string{"debian"}, cobra.ShellCompDirectiveNoFileComp),
	}
	cmd.Flags().StringVar(&suite, "suite", suite, "`release` of Debian: trixie (13) or bookworm (12)")
	cmd.Flags().StringSliceVar(&packages, "package", nil, "more `packages` for the image, separated by commas; the name of the image then ends with -custom")
	cmd.Flags().BoolVar(&rebuild, "rebuild", false, "build it again, with the current versions of the packages; only while no machine uses it")
	return cmd
}

// imageName returns the name of the image with a suite and more packages.
func imageName(suite string, packages []string) (string, error) {
	version, found := debianReleases[suite]
	if !found {
		return "", usage.Errorf("--suite=%s: must be trixie or bookworm", suite)
	}
	for _, name := range packages {
		if name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789+-.") != "" || strings.HasPrefix(name, "-") {
			return "", usage.Errorf("--package=%s: %q is not the name of a package", strings.Join(packages, ","), name)
		}
	}
	if len(packages) > 0 {
		return "debian-" + version + "-custom", nil
	}
	return "debian-" + version, nil
}

// build builds the image, unless it exists, and returns its path.
func (b *Builder) build(cmd *cobra.Command, t *target.Flags, name, suite string, packages []string, rebuild bool) (string, error) {
	dir, err := t.Dir()
	if err != nil {
		return "", err
	}
	if err := b.Secure(cmd.Context(), dir, t.Ephemeral); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "vm-images", name+".qcow2")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	if rebuild {
		if err := removeBuilt(cmd.Context(), t, name, path, cmd.OutOrStdout()); err != nil {
			return "", err
		}
	}
	if err := b.Build(cmd.Context(), path, suite, packages, cmd.ErrOrStderr()); err != nil {
		return "", err
	}
	return path, nil
}

// removeBuilt removes an image and its file, which disks of machines may be overlays of.
func removeBuilt(ctx context.Context, t *target.Flags, name, path string, out io.Writer) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	c, err := imageKind.Open(ctx, t)
	if err != nil {
		return fmt.Errorf("find out whether machines use the image %s: %w", name, err)
	}
	if err := remove(ctx, c, name, out); err != nil {
		return err
	}
	return os.Remove(path)
}

// register adds a built image to the instance, or says how to do it.
func register(cmd *cobra.Command, t *target.Flags, name, path string) error {
	c, err := imageKind.Open(cmd.Context(), t)
	if stopped := (*target.NotRunningError)(nil); errors.As(err, &stopped) {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "Keelson is not running. To use the image, run: %s, then: %s %s --login-user debian --file %s\n",
			target.OnHost.Command("up", stopped.Dir), target.OnHost.Command("vm image add", stopped.Dir), name, usage.Quote(path))
		return err
	}
	if err != nil {
		return err
	}
	image := imageOf(name, v1alpha1.VirtualMachineImageSpec{ImageSource: v1alpha1.ImageSource{Path: path}, LoginUser: "debian"})
	return add(cmd.Context(), c, image, true, &object.Output{}, cmd.OutOrStdout(), cmd.ErrOrStderr())
}
