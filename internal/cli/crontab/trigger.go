package crontab

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
)

func newTrigger() *cobra.Command {
	var f flags
	var waits object.Waiting
	cmd := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Start a run of a CronTab now",
		Long: `Start a run of a CronTab as soon as its concurrencyPolicy allows, also while it is suspended. With --wait
the command fails if the run does.`,
		Example: `  keelson crontab trigger backup --wait`,
		Args:    oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.open(cmd.Context())
			if err != nil {
				return err
			}
			var request string
			err = c.change(cmd.Context(), args[0], func(cronTab *stablev1.CronTab) {
				request = requestAt(cronTab, time.Now())
				metav1.SetMetaDataAnnotation(&cronTab.ObjectMeta, stablev1.RunRequestedAtAnnotation, request)
			})
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "crontab/%s triggered\n", args[0]); err != nil || !waits.Wait {
				return err
			}
			return object.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), func(ctx context.Context) (bool, string, error) {
				return c.runState(ctx, args[0], request)
			})
		},
	}
	f.addTo(cmd)
	waits.AddFlags(cmd.Flags(), "the run has finished")
	return cmd
}

// requestAt returns the value of the annotation that requests a run. It is in seconds, and another one than that of the
// last request.
func requestAt(cronTab *stablev1.CronTab, now time.Time) string {
	at := now.UTC().Truncate(time.Second)
	last, err := time.Parse(time.RFC3339, cronTab.Annotations[stablev1.RunRequestedAtAnnotation])
	if err == nil && at.Equal(last.Truncate(time.Second)) {
		at = at.Add(time.Second)
	}
	return at.Format(time.RFC3339)
}

// runState reports whether the requested run has succeeded, and otherwise its state. A failed run is an error.
func (c *cronTabs) runState(ctx context.Context, name, request string) (bool, string, error) {
	var jobs batchv1.JobList
	if err := c.List(ctx, &jobs, client.InNamespace(c.namespace), client.MatchingLabels{stablev1.NameLabel: name}); err != nil {
		return false, "", fmt.Errorf("list the Jobs of CronTab %s: %w", name, err)
	}
	for i := range jobs.Items {
		if jobs.Items[i].Annotations[stablev1.RunRequestedAtAnnotation] == request {
			return jobState(&jobs.Items[i])
		}
	}
	cronTab, err := c.get(ctx, name)
	if err != nil {
		return false, "", err
	}
	line := name + ": the run has not started"
	if ready := meta.FindStatusCondition(cronTab.Status.Conditions, stablev1.ConditionReady); ready != nil && ready.Message != "" {
		line += ": " + ready.Message
	}
	return false, line, nil
}

// jobState reports whether a Job has succeeded, and otherwise its state. A failed Job is an error.
func jobState(job *batchv1.Job) (bool, string, error) {
	for _, condition := range job.Status.Conditions {
		switch {
		case condition.Status != corev1.ConditionTrue:
		case condition.Type == batchv1.JobComplete:
			return true, "", nil
		case condition.Type == batchv1.JobFailed:
			return false, "", fmt.Errorf("the run failed: Job %s: %s: %s; kubectl logs job/%[1]s has its output", job.Name, condition.Reason, condition.Message)
		}
	}
	return false, fmt.Sprintf("Job %s: %d active, %d failed", job.Name, job.Status.Active, job.Status.Failed), nil
}
