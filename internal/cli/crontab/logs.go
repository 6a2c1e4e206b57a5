package crontab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/crontab"
)

// logs prints what the containers of a run have written.
type logs struct {
	*cronTabs
	name, run string
	tail      int
	follow    bool

	// open opens the log of a container, with the new output as well to follow.
	open func(ctx context.Context, pod, container string, follow bool) (io.ReadCloser, error)
	// printed are the containers whose logs were printed, as pod/container/restarts.
	printed []string
}

// pollInterval is how often logs looks for the containers that start next.
const pollInterval = time.Second

func newLogs(flags *target.Flags) *cobra.Command {
	l := logs{tail: -1}
	cmd := &cobra.Command{
		Use:   "logs NAME",
		Short: "Print the logs of a run of a CronTab",
		Long: `Print what the containers of a run have written, of all its attempts. The run is the last one whose Job exists, unless --run
names another one.`,
		Example: "  keelson crontab logs backup -f\n  keelson crontab logs backup --run 2026-12-24T03:00:00Z",
		Args:    oneCronTab(),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if l.cronTabs, err = open(cmd.Context(), flags); err != nil {
				return err
			}
			l.name = args[0]
			if l.open, err = l.fromAPI(); err != nil {
				return err
			}
			err = l.print(cmd.Context(), cmd.OutOrStdout())
			if cmd.Context().Err() != nil {
				return nil // the user ended it
			}
			return err
		},
	}
	cmd.Flags().StringVar(&l.run, "run", "", "`TIME` of the run, or the name of its Job, as keelson crontab history prints them")
	cmd.Flags().IntVar(&l.tail, "tail", l.tail, "`number` of lines from the end of each log; -1: all")
	cmd.Flags().BoolVarP(&l.follow, "follow", "f", false, "continue with new output until the run has finished")
	return cmd
}

// fromAPI returns a function that opens logs in the API.
func (l *logs) fromAPI() (func(ctx context.Context, pod, container string, follow bool) (io.ReadCloser, error), error) {
	config := rest.CopyConfig(l.API.Config)
	config.APIPath, config.GroupVersion = "/api", &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(l.Scheme()).WithoutConversion()
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, pod, container string, follow bool) (io.ReadCloser, error) {
		request := api.Get().Namespace(l.API.Namespace).Resource("pods").Name(pod).SubResource("log").
			Param("container", container).Param("follow", strconv.FormatBool(follow))
		if l.tail >= 0 {
			request.Param("tailLines", strconv.Itoa(l.tail))
		}
		return request.Stream(ctx)
	}, nil
}

// print prints the logs of the run. To follow, it prints those of each container as it starts, until the run has finished.
func (l *logs) print(ctx context.Context, out io.Writer) error {
	for {
		job, pods, err := l.find(ctx)
		if err != nil {
			return err
		}
		// Before the logs, so that containers which start meanwhile are seen in the next round.
		ended, _ := crontab.Ended(job)
		before := len(l.printed)
		if err := l.printPods(ctx, out, pods); err != nil {
			return err
		}
		switch {
		case l.follow && ended == nil:
		case len(l.printed) == 0:
			return fmt.Errorf("no container of Job %s/%s has started; kubectl describe job %[2]s --namespace %[1]s says why", job.Namespace, job.Name)
		default:
			return nil
		}
		if len(l.printed) > before {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pollInterval):
		}
	}
}

// find returns the Job of the run and its Pods, the first attempt first.
func (l *logs) find(ctx context.Context) (*batchv1.Job, []corev1.Pod, error) {
	jobs, pods, err := l.jobs(ctx, l.name)
	if err != nil {
		return nil, nil, err
	}
	at := len(jobs) - 1
	if l.run != "" {
		at = slices.IndexFunc(jobs, func(job batchv1.Job) bool {
			wanted, err := time.Parse(time.RFC3339, l.run)
			return job.Name == l.run || err == nil && pastRunOf(&job).Time.Equal(wanted)
		})
	}
	switch {
	case at < 0 && l.run != "":
		return nil, nil, fmt.Errorf("CronTab %s/%s has no run %s whose Job exists; keelson crontab history %[2]s lists the runs", l.API.Namespace, l.name, l.run)
	case at < 0:
		return nil, nil, fmt.Errorf("no Job of CronTab %s/%s exists, so there are no logs", l.API.Namespace, l.name)
	}
	l.run = jobs[at].Name // also when a later one starts
	own := podsOf(&jobs[at], pods)
	slices.SortFunc(own, func(a, b corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return &jobs[at], own, nil
}

// printPods prints the logs of containers that have started, and were not printed before.
func (l *logs) printPods(ctx context.Context, out io.Writer, pods []corev1.Pod) error {
	several := len(pods) > 1
	for i := range pods {
		pod := &pods[i]
		several = several || len(pod.Spec.InitContainers)+len(pod.Spec.Containers) > 1
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			started := status.State.Running != nil || status.State.Terminated != nil || status.LastTerminationState.Terminated != nil
			key := fmt.Sprintf("%s/%s/%d", pod.Name, status.Name, status.RestartCount)
			if !started || slices.Contains(l.printed, key) {
				continue
			}
			if several || len(l.printed) > 0 {
				if _, err := fmt.Fprintf(out, "==> Pod %s, container %s <==\n", pod.Name, status.Name); err != nil {
					return err
				}
			}
			l.printed = append(l.printed, key)
			if err := l.printContainer(ctx, out, pod.Name, status.Name); err != nil {
				return fmt.Errorf("the log of container %s of Pod %s/%s: %w", status.Name, pod.Namespace, pod.Name, err)
			}
		}
	}
	return nil
}

func (l *logs) printContainer(ctx context.Context, out io.Writer, pod, container string) error {
	log, err := l.open(ctx, pod, container, l.follow)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, log)
	return errors.Join(err, log.Close())
}
