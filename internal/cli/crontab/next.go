package crontab

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	controller "github.com/keelson-dev/keelson/internal/controller/crontab"
)

func newNext(flags *target.Flags) *cobra.Command {
	count := 10
	cmd := &cobra.Command{
		Use:   "next NAME",
		Short: "Print the next scheduled times of a CronTab",
		Long: `Print the next scheduled times of a CronTab, in its time zone. They are computed from the spec; with
jitterSeconds a run starts later.`,
		Example: `  keelson crontab next backup --count 3`,
		Args:    oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if count < 1 || count > 1000 {
				return usage.Errorf("--count=%d: must be from 1 to 1000", count)
			}
			c, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			cronTab, err := c.Find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			runs, err := controller.NextRuns(cronTab, time.Now(), count)
			if err != nil {
				return fmt.Errorf("%s: %w", c.Title(cronTab.Name), err)
			}
			if ptr.Deref(cronTab.Spec.Suspend, false) {
				fmt.Fprintf(cmd.ErrOrStderr(), "CronTab %s is suspended: no scheduled run starts until keelson crontab resume %s.\n", cronTab.Name, flags.Words(cronTab.Name))
			}
			if len(runs) == 0 {
				return fmt.Errorf("no time of the schedule of %s is to come", c.Title(cronTab.Name))
			}
			for _, run := range runs {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), run.Format("2006-01-02T15:04:05Z07:00 Mon")); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&count, "count", count, "`number` of times")
	return cmd
}
