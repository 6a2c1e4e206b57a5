package crontab

import (
	"fmt"

	"github.com/spf13/cobra"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// newSuspend returns the command that suspends the schedule of a CronTab, or the one that resumes it.
func newSuspend(suspend bool) *cobra.Command {
	var f flags
	verb, past, short := "suspend", "suspended", "Suspend the schedule of a CronTab"
	long := "Suspend the schedule of a CronTab. Active runs continue, and keelson crontab trigger still starts runs."
	if !suspend {
		verb, past, short = "resume", "resumed", "Resume the schedule of a CronTab"
		long = "Resume the schedule of a CronTab. Runs that were due while it was suspended are not started."
	}
	cmd := &cobra.Command{
		Use:     verb + " NAME",
		Short:   short,
		Long:    long,
		Example: fmt.Sprintf("  keelson crontab %s backup", verb),
		Args:    oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			if err := c.change(cmd.Context(), args[0], func(cronTab *stablev1.CronTab) { cronTab.Spec.Suspend = &suspend }); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "crontab/%s %s\n", args[0], past)
			return err
		},
	}
	f.addTo(cmd)
	return cmd
}
