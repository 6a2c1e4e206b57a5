package vm

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// pollInterval is the interval of reads while a command waits.
const pollInterval = 500 * time.Millisecond

func newAdd(t *target.Flags) *cobra.Command {
	var spec v1alpha1.VirtualMachineImageSpec
	var output object.Output
	var noAgent, waits bool
	cmd := &cobra.Command{
		Use:   "add NAME",
		Short: "Add an image by URL or path",
		Long: `Add an image under a name. An image by URL is downloaded once by the host of the machines, verified
and kept. A file is used where it is: it must be in virtualMachines.imageDirs of the manager, and remain
unchanged as long as machines use it.

An image must be qcow2 or raw, boot from a BIOS, and have cloud-init with the data source NoCloud. If it does not
run the QEMU guest agent, add it with --no-agent: then a machine is ready as soon as it runs.`,
		Example: `  keelson vm image add fedora --wait --no-agent --login-user fedora --sha256 SUM \
    --url https://download.example.org/Fedora-Cloud-Base.qcow2

  keelson vm image add mine --file /srv/images/mine.qcow2`,
		Args: usage.OneArg("NAME", "the name for spec.image.name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkSource(&spec); err != nil {
				return err
			}
			if err := output.Validate(); err != nil {
				return err
			}
			if noAgent {
				spec.Agent = new(bool)
			}
			image := imageOf(args[0], spec)
			if output.DryRun() {
				return imageKind.Print(cmd.OutOrStdout(), image, "created", &output)
			}
			c, err := imageKind.Open(cmd.Context(), t)
			if err != nil {
				return err
			}
			return add(cmd.Context(), c, image, waits, &output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
		ValidArgsFunction: cobra.NoFileCompletions, // a new name
	}
	output.AddFlags(cmd.Flags())
	cmd.Flags().StringVar(&spec.URL, "url", "", "`URL` of the image")
	cmd.Flags().StringVar(&spec.Sha256, "sha256", "", "SHA-256 `digest` of the file at the URL")
	cmd.Flags().StringVar(&spec.Path, "file", "", "`path` of the image on the host of the machines")
	cmd.Flags().StringVar(&spec.Format, "format", "", "`format` of the image, qcow2 or raw (default: detected)")
	cmd.Flags().StringVar(&spec.LoginUser, "login-user", "", "`user` that cloud-init creates in machines of the image, as whom keelson vm ssh logs in")
	cmd.Flags().BoolVar(&noAgent, "no-agent", false, "the image does not run the QEMU guest agent")
	cmd.Flags().BoolVar(&waits, "wait", false, "wait until machines can use the image, and show the progress")
	return cmd
}

// checkSource completes the source of an image, and rejects what the API would reject.
func checkSource(spec *v1alpha1.VirtualMachineImageSpec) error {
	switch {
	case (spec.URL == "") == (spec.Path == ""):
		return usage.Errorf("keelson vm image add takes one of --url and --file")
	case spec.URL != "" && spec.Sha256 == "":
		return usage.Errorf("--url needs --sha256, with which the download is verified: publishers of images list it, such as in a file SHA256SUMS")
	case spec.Path != "" && spec.Sha256 != "":
		return usage.Errorf("--sha256 goes with --url: a file is not verified")
	case spec.Path == "":
		return nil
	}
	path, err := filepath.Abs(spec.Path)
	spec.Path = path
	return err
}

func imageOf(name string, spec v1alpha1.VirtualMachineImageSpec) *v1alpha1.VirtualMachineImage {
	return &v1alpha1.VirtualMachineImage{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// add creates a VirtualMachineImage. An existing one with the same source is no error, so that a command
// can be repeated.
func add(ctx context.Context, images *object.Objects[*v1alpha1.VirtualMachineImage], image *v1alpha1.VirtualMachineImage, waits bool, output *object.Output, out, progress io.Writer) error {
	past, found := "created", &v1alpha1.VirtualMachineImage{}
	switch err := images.Get(ctx, client.ObjectKeyFromObject(image), found); {
	case apierrors.IsNotFound(err):
		if err := images.CreateNew(ctx, image, output); err != nil {
			return err
		}
	case err != nil:
		return images.Explain(image.Name, err)
	case found.Spec.ImageSource != image.Spec.ImageSource || found.Spec.LoginUser != image.Spec.LoginUser:
		return fmt.Errorf("there is an image %s with another source or login user; choose another name, or delete it: keelson vm image delete %[1]s", image.Name)
	default:
		past, image = "unchanged", found
	}
	if err := imageKind.Print(out, image, past, output); err != nil || !waits || !output.Writes() {
		return err
	}
	return waitReady(ctx, images.Client, image.Name, out, progress)
}

// waitReady waits until an image is ready, and prints each change of its state. It fails when the
// import has failed, although the controller retries it.
func waitReady(ctx context.Context, c client.Client, name string, out, progress io.Writer) error {
	said := ""
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		var image v1alpha1.VirtualMachineImage
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &image); err != nil {
			return false, fmt.Errorf("get the image %s: %w", name, err)
		}
		ready := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil:
			return false, nil
		case ready.Status == metav1.ConditionTrue:
			_, err := fmt.Fprintf(out, "virtualmachineimage/%s is ready, %s\n", name, image.Status.Size)
			return true, err
		case ready.Status == metav1.ConditionFalse && ready.Reason != v1alpha1.ReasonImporting:
			return false, fmt.Errorf("the image %s is not ready: %s: %s", name, ready.Reason, ready.Message)
		case ready.Message == said:
			return false, nil
		}
		said = ready.Message
		_, err := fmt.Fprintln(progress, said)
		return false, err
	})
}

// imageLine describes the status of an image in a line.
func imageLine(image *v1alpha1.VirtualMachineImage) string {
	if ready := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return image.Name + ": " + ready.Message
	}
	return image.Name + ": Pending"
}

func newRemove(t *target.Flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete NAME...",
		Aliases: []string{"rm"},
		Short:   "Delete images that no machine uses",
		Long: `Delete images, and wait until they are gone. An image that machines use is not deleted: the command fails and
names some of them. A file that was added with --file stays.`,
		Args: usage.Names("VirtualMachineImage"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := imageKind.Open(cmd.Context(), t)
			if err != nil {
				return err
			}
			for _, name := range args {
				if err := remove(cmd.Context(), c, name, cmd.OutOrStdout()); err != nil {
					return err
				}
			}
			return nil
		},
	}
	return cmd
}

// remove deletes an image that has no users, and waits until it is gone.
func remove(ctx context.Context, c client.Client, name string, out io.Writer) error {
	users, err := usersOf(ctx, c, name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return fmt.Errorf("machines use the image %s: %s. Delete them first", name, strings.Join(users, ", "))
	}
	image := &v1alpha1.VirtualMachineImage{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.Delete(ctx, image); err != nil {
		if apierrors.IsNotFound(err) {
			return fmt.Errorf("there is no image %q; keelson vm image list has the images", name)
		}
		return fmt.Errorf("delete the image %s: %w", name, err)
	}
	err = wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := c.Get(ctx, client.ObjectKey{Name: name}, image)
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if deleting := meta.FindStatusCondition(image.Status.Conditions, v1alpha1.ConditionDeleting); err == nil && deleting != nil && deleting.Reason == v1alpha1.ReasonInUse {
			return false, fmt.Errorf("%s. It is deleted then", deleting.Message)
		}
		return false, err
	})
	if err == nil {
		err = imageKind.Print(out, image, "deleted", &object.Output{})
	}
	return err
}

// usersOf returns the machines that name an image, as namespace/name.
func usersOf(ctx context.Context, c client.Client, name string) ([]string, error) {
	var machines v1alpha1.VirtualMachineList
	if err := c.List(ctx, &machines); err != nil {
		return nil, fmt.Errorf("list the machines: %w", err)
	}
	var users []string
	for i := range machines.Items {
		if image := machines.Items[i].Spec.Image; image != nil && image.Name == name {
			users = append(users, machines.Items[i].Namespace+"/"+machines.Items[i].Name)
		}
	}
	return users, nil
}
