package object

import (
	"context"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/cli/target"
)

// Creation is what commands that create an object of a kind have in common.
type Creation[T client.Object] struct {
	Output
	Waiting Waiting
	// Until reports what --wait waits for.
	Until Look[T]
	// Check returns why an object cannot be created although the API would accept it; nil to check nothing.
	Check func(ctx context.Context, o *Objects[T], object T) error
}

// Create creates an object, prints it, and waits if the flags say so. A dry run of the client only prints it.
func (c *Creation[T]) Create(cmd *cobra.Command, flags *target.Flags, kind Kind[T], object T) error {
	if c.DryRun() {
		object.SetNamespace(flags.Namespace)
		return kind.Print(cmd.OutOrStdout(), object, "created", &c.Output)
	}
	o, err := kind.Open(cmd.Context(), flags)
	if err != nil {
		return err
	}
	if c.Check != nil {
		if err := c.Check(cmd.Context(), o, object); err != nil {
			return err
		}
	}
	if err := o.CreateNew(cmd.Context(), object, &c.Output); err != nil {
		return err
	}
	if err := kind.Print(cmd.OutOrStdout(), object, "created", &c.Output); err != nil || !c.Waits(&c.Waiting) {
		return err
	}
	return o.Until(cmd.Context(), c.Waiting.Timeout, cmd.ErrOrStderr(), c.Until, object.GetName())
}
