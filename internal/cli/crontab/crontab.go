// Package crontab is the command `keelson crontab`: CronTabs and their runs.
package crontab

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/complete"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/crontab"
)

var kind = object.Kind[*stablev1.CronTab]{
	Name: "CronTab", Command: "keelson crontab",
	Resource: complete.Resource{GroupVersionResource: stablev1.SchemeGroupVersion.WithResource("crontabs"), Namespaced: true},
	New:      func() *stablev1.CronTab { return &stablev1.CronTab{} },
	Types: func(scheme *runtime.Scheme) error {
		return errors.Join(stablev1.AddToScheme(scheme), batchv1.AddToScheme(scheme), corev1.AddToScheme(scheme))
	},
	Line: func(cronTab *stablev1.CronTab) string { return cronTab.Name + ": " + State(cronTab) },
}

// New returns the command.
func New() *cobra.Command {
	flags := &target.Flags{}
	cmd := &cobra.Command{
		Use:   "crontab",
		Short: "Run, suspend, list and delete CronTabs",
		Long:  "Run, suspend, list and delete CronTabs.\n\n" + target.Help(),
		Args:  usage.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags.AddFlags(cmd.PersistentFlags())
	flags.AddNamespace(cmd.PersistentFlags())
	cmd.AddCommand(
		kind.NewList(flags, "List CronTabs with their next runs"), kind.NewDescribe(flags, "Show CronTabs with their events"),
		newNext(flags), newTimeline(flags), newHistory(flags), newLogs(flags), newTrigger(flags), newBackfill(flags), newSuspend(flags, true), newSuspend(flags, false),
		kind.NewDelete(flags, object.Deletion[*stablev1.CronTab]{Short: "Delete CronTabs with their Jobs", Example: "  keelson crontab delete backup"}),
	)
	complete.Arguments(kind.Resource, cmd.Commands()...)
	return cmd
}

// cronTabs are the CronTabs of a namespace.
type cronTabs struct {
	*object.Objects[*stablev1.CronTab]
}

func open(ctx context.Context, flags *target.Flags) (*cronTabs, error) {
	o, err := kind.Open(ctx, flags)
	return &cronTabs{o}, err
}

// newSuspend returns the command that suspends the schedule of CronTabs, or the one that resumes it.
func newSuspend(flags *target.Flags, suspend bool) *cobra.Command {
	v := object.Verb[*stablev1.CronTab]{
		Name: "suspend", Past: "suspended", Short: "Suspend the schedule of CronTabs",
		Long:    "Suspend the schedule of CronTabs. Active runs continue, and keelson crontab trigger still starts runs.",
		Example: "  keelson crontab suspend backup",
		Change:  func(cronTab *stablev1.CronTab, _ time.Time) { cronTab.Spec.Suspend = ptr.To(true) },
	}
	if !suspend {
		v.Name, v.Past, v.Short = "resume", "resumed", "Resume the schedule of CronTabs"
		v.Long = "Resume the schedule of CronTabs that are suspended, or that spec.suspendAfterFailures has stopped. Runs that were due in the\nmeantime are not started."
		v.Change = crontab.Resume
		v.Example = "  keelson crontab resume backup"
	}
	return kind.NewVerb(flags, v)
}

// oneCronTab is the arguments of a command for one CronTab.
func oneCronTab() cobra.PositionalArgs { return usage.OneArg("NAME", "the CronTab") }

// State returns the state of a CronTab in a word: the reason of its condition Ready.
func State(cronTab *stablev1.CronTab) string {
	if ready := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionReady); ready != nil {
		return ready.Reason
	}
	return "Pending"
}

// Schedules returns the schedules of a CronTab for display.
func Schedules(cronTab *stablev1.CronTab) string {
	text := string(cronTab.Spec.Schedule)
	for _, schedule := range cronTab.Spec.Schedules {
		if text != "" {
			text += "; "
		}
		text += string(schedule)
	}
	return text
}
