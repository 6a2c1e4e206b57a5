package crontab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/crontab"
)

func newHistory(flags *target.Flags) *cobra.Command {
	format := ""
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "Show the runs of a CronTab, with their results",
		Long: `Show the runs of a CronTab, earliest first: when and why they started, how late, how long they took, and how they ended.
A run is shown as long as its Job exists: successfulJobsHistoryLimit and failedJobsHistoryLimit say how many are kept.`,
		Example: "  keelson crontab history backup\n  keelson crontab history backup -o json",
		Args:    oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "" && format != "json" {
				return usage.Errorf("--output=%s: must be json", format)
			}
			c, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			runs, err := c.history(cmd.Context(), args[0])
			switch {
			case err != nil:
				return err
			case format == "json":
				return object.WriteJSON(cmd.OutOrStdout(), runs)
			case len(runs) == 0:
				_, err := fmt.Fprintln(cmd.ErrOrStderr(), "No Job of this CronTab exists.")
				return err
			}
			return printHistory(cmd.OutOrStdout(), runs, time.Now())
		},
	}
	cmd.Flags().StringVarP(&format, "output", "o", format, "`format` of the output: json; a table by default")
	return cmd
}

// Why a run started.
const (
	bySchedule = "Schedule"
	onDemand   = "OnDemand"
	byBackfill = "Backfill"
	after      = "After"
)

// pastRun is a run whose Job exists.
type pastRun struct {
	// Time is the scheduled time, or that of the request.
	Time time.Time `json:"time"`
	// StartedBy is Schedule, OnDemand, Backfill, or After: the end of other CronTabs.
	StartedBy string `json:"startedBy"`
	Job       string `json:"job"`
	// StartTime is when the Job was created.
	StartTime  time.Time  `json:"startTime"`
	FinishTime *time.Time `json:"finishTime,omitempty"`
	// Result is Running, Succeeded or Failed.
	Result string `json:"result"`
	// Reason is why the Job failed, and ExitCode that of the container that failed last, if its Pod exists.
	Reason   string `json:"reason,omitempty"`
	ExitCode *int32 `json:"exitCode,omitempty"`
	// Attempts is the number of Pods that were started.
	Attempts   int32             `json:"attempts"`
	Parameters map[string]string `json:"parameters,omitempty"`
}

// history returns the runs of a CronTab, earliest first.
func (c *cronTabs) history(ctx context.Context, name string) ([]pastRun, error) {
	jobs, pods, err := c.jobs(ctx, name)
	runs := []pastRun{}
	for i := range jobs {
		run := pastRunOf(&jobs[i])
		if run.Result != string(stablev1.RunSucceeded) {
			run.ExitCode = crontab.ExitCode(podsOf(&jobs[i], pods))
		}
		runs = append(runs, run)
	}
	return runs, err
}

// jobs returns the Jobs of a CronTab, earliest first, and their Pods.
func (c *cronTabs) jobs(ctx context.Context, name string) ([]batchv1.Job, []corev1.Pod, error) {
	cronTab, err := c.Find(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	var jobs batchv1.JobList
	var pods corev1.PodList
	of := []client.ListOption{client.InNamespace(c.API.Namespace), client.MatchingLabels{stablev1.NameLabel: name}}
	if err := c.List(ctx, &jobs, of...); err != nil {
		return nil, nil, fmt.Errorf("list the Jobs of CronTab %s/%s: %w", c.API.Namespace, name, err)
	}
	if err := c.List(ctx, &pods, of...); err != nil {
		return nil, nil, fmt.Errorf("list the Pods of CronTab %s/%s: %w", c.API.Namespace, name, err)
	}
	own := slices.DeleteFunc(jobs.Items, func(job batchv1.Job) bool { return !metav1.IsControlledBy(&job, cronTab) })
	slices.SortFunc(own, func(a, b batchv1.Job) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return own, pods.Items, nil
}

// pastRunOf returns what a Job tells about its run.
func pastRunOf(job *batchv1.Job) pastRun {
	run := pastRun{
		Job: job.Name, StartedBy: bySchedule, StartTime: job.CreationTimestamp.Time, Result: "Running",
		Attempts: job.Status.Active + job.Status.Succeeded + job.Status.Failed,
	}
	at := job.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if requested, found := job.Annotations[stablev1.RunRequestedAtAnnotation]; found {
		run.StartedBy, at = onDemand, requested
	} else if _, found := job.Annotations[stablev1.BackfillRequestedAtAnnotation]; found {
		run.StartedBy = byBackfill
	} else if _, found := job.Annotations[stablev1.FollowsAnnotation]; found {
		run.StartedBy = after
	}
	run.Time, _ = time.Parse(time.RFC3339, at)                                                  // zero if somebody has changed it
	_ = json.Unmarshal([]byte(job.Annotations[stablev1.ParametersAnnotation]), &run.Parameters) // the same
	if condition, at := crontab.Ended(job); condition != nil {
		run.Result, run.FinishTime = string(stablev1.RunSucceeded), &at
		if condition.Type == batchv1.JobFailed {
			run.Result, run.Reason = string(stablev1.RunFailed), condition.Reason
		}
	}
	return run
}

// podsOf returns the Pods of a Job.
func podsOf(job *batchv1.Job, pods []corev1.Pod) (own []corev1.Pod) {
	for i := range pods {
		if metav1.IsControlledBy(&pods[i], job) {
			own = append(own, pods[i])
		}
	}
	return own
}

// printHistory prints runs as a table.
func printHistory(out io.Writer, runs []pastRun, now time.Time) error {
	table := object.NewTable(out, "TIME", "STARTED BY", "LAG", "DURATION", "RESULT", "EXIT CODE", "ATTEMPTS", "PARAMETERS", "JOB")
	for _, run := range runs {
		lag, exitCode, parameters := "", "", []string{}
		if run.StartedBy != byBackfill && run.StartedBy != after && !run.Time.IsZero() {
			lag = duration.HumanDuration(max(run.StartTime.Sub(run.Time), 0))
		}
		if run.ExitCode != nil {
			exitCode = strconv.Itoa(int(*run.ExitCode))
		}
		for _, name := range slices.Sorted(maps.Keys(run.Parameters)) {
			parameters = append(parameters, name+"="+run.Parameters[name])
		}
		end, result := now, run.Result
		if run.FinishTime != nil {
			end = *run.FinishTime
		}
		if run.Reason != "" {
			result += " (" + run.Reason + ")"
		}
		table.Add(run.Time.UTC().Format(time.RFC3339), run.StartedBy, lag, duration.HumanDuration(end.Sub(run.StartTime)), result, exitCode,
			run.Attempts, strings.Join(parameters, ","), run.Job)
	}
	return table.Flush()
}
