package crontab

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/cli/object"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/crontab"
	"github.com/keelson-dev/keelson/internal/requests"
)

// answerTimeout is how long trigger waits for the controller to start an earlier requested run that nothing keeps from
// starting.
const answerTimeout = 10 * time.Second

func newTrigger(flags *target.Flags) *cobra.Command {
	var waits object.Waiting
	var output object.Output
	var set []string
	cmd := &cobra.Command{
		Use:   "trigger NAME",
		Short: "Start a run of a CronTab now",
		Long: `Start a run of a CronTab as soon as its concurrencyPolicy allows, also while it is suspended. One requested run
can wait for that: the command fails if one does, or with --wait, waits until that run has started. With --wait
the command also fails if the run does. The run has the defaults of the parameters that --set does not name.`,
		Example: `  keelson crontab trigger backup --wait
  keelson crontab trigger report --set region=eu`,
		Args: oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			values, err := parseValues(set)
			if err != nil {
				return err
			}
			if err := output.Validate(); err != nil {
				return err
			}
			c, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			timeout, progress := answerTimeout, io.Discard
			if output.Waits(&waits) {
				timeout, progress = waits.Timeout, cmd.ErrOrStderr()
			}
			t := trigger{cronTabs: c, name: args[0], values: values, queues: output.Waits(&waits), output: output}
			if err := object.Until(cmd.Context(), timeout, progress, t.request); err != nil {
				return err
			}
			past := "triggered"
			if t.obstacle != "" {
				past += ", the run waits: " + t.obstacle
			}
			if err := t.Kind.Print(cmd.OutOrStdout(), t.changed, past, &output); err != nil || !output.Waits(&waits) {
				return err
			}
			return object.Until(cmd.Context(), waits.Timeout, cmd.ErrOrStderr(), t.hasSucceeded)
		},
	}
	output.AddFlags(cmd.Flags())
	waits.AddFlags(cmd.Flags(), "the run has finished")
	cmd.Flags().StringArrayVar(&set, "set", nil, "value of a parameter of the run, as `NAME=VALUE`; may be repeated")
	return cmd
}

// parseValues returns the values of parameters that are given as NAME=VALUE.
func parseValues(pairs []string) (crontab.Values, error) {
	var values crontab.Values
	for _, pair := range pairs {
		name, value, found := strings.Cut(pair, "=")
		if _, twice := values[name]; !found || name == "" || twice {
			return nil, usage.Errorf("--set %s: give each parameter once, as NAME=VALUE", pair)
		}
		if values == nil {
			values = crontab.Values{}
		}
		values[name] = stablev1.ParameterValue(value)
	}
	return values, nil
}

// trigger requests a run of a CronTab.
type trigger struct {
	*cronTabs
	name   string
	values crontab.Values
	// queues means that it waits until an earlier requested run has started, however long that takes.
	queues bool
	output object.Output

	// changed is the CronTab with the request, requested the time of the request, and obstacle what kept the run from starting at that time.
	changed             *stablev1.CronTab
	requested, obstacle string
	// job is the Job of the run, once it was seen.
	job string
}

// request requests the run, unless an earlier requested run has not started: the request would take its place. It
// reports whether it did, and otherwise what that run waits for.
func (t *trigger) request(ctx context.Context) (bool, string, error) {
	cronTab, err := t.Find(ctx, t.name)
	if err != nil {
		return false, "", err
	}
	switch {
	case !cronTab.DeletionTimestamp.IsZero():
		return false, "", fmt.Errorf("CronTab %s/%s is being deleted", t.API.Namespace, t.name)
	case cronTab.Spec.JobTemplate == nil:
		return false, "", fmt.Errorf("CronTab %s/%s has no spec.jobTemplate, so there is nothing to run", t.API.Namespace, t.name)
	}
	obstacle := crontab.Obstacle(cronTab)
	if open := crontab.OpenRequest(cronTab); !open.IsZero() {
		line := waiting(t.name, open.UTC().Format(time.RFC3339), obstacle)
		if obstacle == "" || t.queues {
			return false, line, nil
		}
		return false, "", fmt.Errorf("%s. Only one requested run can wait, so no other was requested; try again when it has started, "+
			`or cancel it: kubectl patch crontab --namespace %s %s --type merge --patch '{"spec":{"runRequestedAt":null}}'`, line, t.API.Namespace, t.name)
	}
	before := client.MergeFromWithOptions(cronTab.DeepCopy(), client.MergeFromWithOptimisticLock{})
	requested := crontab.NewRequest(cronTab, time.Now())
	cronTab.Spec.RunRequestedAt, cronTab.Spec.RunParameters = &requested, t.values
	if _, err := crontab.RequestedValues(&cronTab.Spec); err != nil {
		return false, "", fmt.Errorf("CronTab %s/%s: %w; --set NAME=VALUE sets the value of a parameter", t.API.Namespace, t.name, err)
	}
	switch err := t.Write(ctx, cronTab, before, &t.output); {
	case apierrors.IsConflict(err):
		// Perhaps somebody else has requested a run.
		return false, t.name + ": the CronTab has changed in the meantime", nil
	case err != nil:
		return false, "", err
	}
	t.changed, t.requested, t.obstacle = cronTab, requests.Token(&requested), obstacle
	return true, "", nil
}

// waiting describes a requested run that has not started.
func waiting(name, request, obstacle string) string {
	line := fmt.Sprintf("%s: the run requested at %s has not started", name, request)
	if obstacle == "" {
		return line + " yet"
	}
	return line + ": " + obstacle
}

// hasSucceeded reports whether the requested run has succeeded, and otherwise its state. A failed run is an error.
func (t *trigger) hasSucceeded(ctx context.Context) (bool, string, error) {
	// Before the Jobs, so that the Job of a run that has started is among them, unless it was deleted.
	cronTab, err := t.Find(ctx, t.name)
	if err != nil {
		return false, "", err
	}
	var jobs batchv1.JobList
	if err := t.List(ctx, &jobs, client.InNamespace(t.API.Namespace), client.MatchingLabels{stablev1.NameLabel: t.name}); err != nil {
		return false, "", fmt.Errorf("list the Jobs of CronTab %s: %w", t.name, err)
	}
	for i := range jobs.Items {
		if jobs.Items[i].Annotations[stablev1.RunRequestedAtAnnotation] == t.requested {
			t.job = jobs.Items[i].Name
			return jobState(&jobs.Items[i])
		}
	}
	if open := crontab.OpenRequest(cronTab); !open.IsZero() && requests.Token(cronTab.Spec.RunRequestedAt) == t.requested {
		return false, waiting(t.name, t.requested, crontab.Obstacle(cronTab)), nil
	}
	switch last := cronTab.Status.LastRun; {
	case last == nil || last.JobName != t.job:
		return false, "", fmt.Errorf("CronTab %s/%s: the run requested at %s has no Job: the request was withdrawn, or the Job was deleted; the result is not known",
			t.API.Namespace, t.name, t.requested)
	case last.Result == stablev1.RunFailed:
		return false, "", fmt.Errorf("the run failed: Job %s: %s; the Job was deleted", t.job, last.Reason)
	}
	return true, "", nil
}

// jobState reports whether a Job has succeeded, and otherwise its state. A failed Job is an error.
func jobState(job *batchv1.Job) (bool, string, error) {
	switch condition, _ := crontab.Ended(job); {
	case condition == nil:
	case condition.Type == batchv1.JobComplete:
		return true, "", nil
	default:
		return false, "", fmt.Errorf("the run failed: Job %s: %s: %s; kubectl logs job/%[1]s has its output", job.Name, condition.Reason, condition.Message)
	}
	return false, fmt.Sprintf("Job %s: %d active, %d failed", job.Name, job.Status.Active, job.Status.Failed), nil
}
