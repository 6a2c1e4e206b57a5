package vm

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/target"
)

func newLogs(flags *target.Flags) *cobra.Command {
	tail, follow := -1, false
	cmd := &cobra.Command{
		Use:     "logs NAME",
		Short:   "Print the serial log of a machine",
		Long:    "Print what a machine has written to its serial console, through the Kubernetes API.",
		Example: "  keelson vm logs web --tail 20 -f",
		Args:    oneMachine(),
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			log, err := client.ReadLog(cmd.Context(), m.API.Config, m.API.Namespace, args[0], tail, follow)
			if err != nil {
				return err
			}
			return errors.Join(printLog(cmd.Context(), cmd.OutOrStdout(), log, args[0]), log.Close())
		},
	}
	cmd.Flags().IntVar(&tail, "tail", tail, "`number` of lines from the end; -1: all")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new output until Ctrl-C")
	return cmd
}

// printLog prints the log of a machine until it, or the context, ends.
func printLog(ctx context.Context, out io.Writer, log io.Reader, name string) error {
	_, err := io.Copy(out, log)
	if ctx.Err() != nil {
		return nil // the user ended it
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the connection to the log of %s is lost, as when the manager restarts: run the command again", name)
	}
	return err
}
