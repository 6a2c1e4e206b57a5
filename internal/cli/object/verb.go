package object

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// Verb is a command that changes objects.
type Verb[T client.Object] struct {
	// Name, Short, Long and Example are those of the command. Without an Example, it has one of its own.
	Name, Short, Long, Example string
	// Past is what was done, for the output.
	Past string
	// Change changes the object.
	Change func(object T, now time.Time)
	// Until is what --wait waits for, such as "the machine is ready", and Look reports it. Without both, there is no --wait.
	Until string
	Look  Look[T]
	// One means that the command takes one name.
	One bool
}

// NewVerb returns the command of a verb.
func (k Kind[T]) NewVerb(flags *target.Flags, v Verb[T]) *cobra.Command {
	var waits Waiting
	var output Output
	cmd := &cobra.Command{
		Use: v.Name + " NAME...", Short: v.Short, Long: v.Long, Example: v.Example,
		Args: usage.Names(k.Name),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Validate(); err != nil {
				return err
			}
			o, err := k.Open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			changed, err := each(args, func(name string) error {
				changed, err := o.change(cmd.Context(), name, v.Change, &output)
				if err == nil {
					err = k.Print(cmd.OutOrStdout(), changed, v.Past, &output)
				}
				return err
			})
			if waits.Wait && output.Writes() {
				err = errors.Join(err, o.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), v.Look, changed...))
			}
			return err
		},
	}
	if v.One {
		cmd.Use, cmd.Args = v.Name+" NAME", usage.OneArg("NAME", "the "+k.Name)
	}
	if v.Example == "" {
		cmd.Example = "  " + k.Command + " " + v.Name + " web"
	}
	output.AddFlags(cmd.Flags())
	if v.Look != nil {
		waits.AddFlags(cmd.Flags(), v.Until)
	}
	return cmd
}

// Deletion is a command that deletes objects.
type Deletion[T client.Object] struct {
	Short, Long, Example string
	// After does what is left to do for an object that was deleted; nil for nothing.
	After func(*Objects[T], T) error
}

// NewDelete returns the command that deletes objects.
func (k Kind[T]) NewDelete(flags *target.Flags, d Deletion[T]) *cobra.Command {
	var waits Waiting
	var output Output
	cmd := &cobra.Command{
		Use: "delete NAME...", Aliases: []string{"rm"}, Short: d.Short, Long: d.Long, Example: d.Example,
		Args: usage.Names(k.Name),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := output.Validate(); err != nil {
				return err
			}
			o, err := k.Open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			var deleted []T
			_, err = each(args, func(name string) error {
				found, err := o.delete(cmd.Context(), name, &output)
				if err != nil {
					return err
				}
				deleted = append(deleted, found)
				err = k.Print(cmd.OutOrStdout(), found, "deleting", &output)
				if d.After != nil && output.Writes() {
					err = errors.Join(err, d.After(o, found))
				}
				return err
			})
			if !waits.Wait || !output.Writes() {
				return err
			}
			return errors.Join(err, Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), func(ctx context.Context) (bool, string, error) {
				return o.AreGone(ctx, deleted...)
			}))
		},
	}
	output.AddFlags(cmd.Flags())
	waits.AddFlags(cmd.Flags(), "they are gone")
	return cmd
}

// delete deletes an object, and not one that was created with this name in the meantime.
func (o *Objects[T]) delete(ctx context.Context, name string, output *Output) (T, error) {
	found, err := o.Find(ctx, name)
	if err != nil || output.DryRun() {
		return found, err
	}
	uid := found.GetUID()
	if err := output.client(o.Client).Delete(ctx, found, client.Preconditions{UID: &uid}); err != nil {
		return found, o.Explain(name, err)
	}
	return found, nil
}

// AreGone reports whether objects are deleted, otherwise what the deletion of the first one waits for.
func (o *Objects[T]) AreGone(ctx context.Context, deleted ...T) (bool, string, error) {
	for _, object := range deleted {
		found := o.Kind.New()
		err := o.Get(ctx, client.ObjectKeyFromObject(object), found)
		if err == nil && found.GetUID() == object.GetUID() {
			return false, o.Kind.Line(found), nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return false, "", o.Explain(object.GetName(), err)
		}
	}
	return true, "", nil
}
