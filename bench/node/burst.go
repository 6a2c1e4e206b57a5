package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// The stages that the observer sees: the Job, the Pod, the Pod with its node, and the Pod whose container has run.
const (
	job   = "Job"
	pod   = "Pod"
	bound = "Pod with its node"
	ended = "ended"
)

// stages returns the stages of a Job or Pod.
func stages(_ watch.EventType, object metav1.Object) ([]string, error) {
	p, isPod := object.(*corev1.Pod)
	if !isPod {
		return []string{job}, nil
	}
	reached := []string{pod}
	if p.Spec.NodeName != "" {
		reached = append(reached, bound)
	}
	switch p.Status.Phase {
	case corev1.PodSucceeded:
		reached = append(reached, ended)
	case corev1.PodFailed:
		return reached, fmt.Errorf("the Pod %s has failed: %s %s", p.Name, p.Status.Reason, p.Status.Message)
	}
	return reached, nil
}

// nextDue returns when a contestant that is prepared from now on is due. All of them leave the node idle for at least rest
// before: removing earlier containers takes it a while, which would not affect a CronJob that waits for its minute.
func nextDue(contestant string, now time.Time, rest time.Duration) time.Time {
	due := now.Add(rest)
	if contestant == cronJob {
		return due.Truncate(time.Minute).Add(time.Minute)
	}
	return due.Truncate(time.Second).Add(time.Second)
}

// burstOfSchedules creates CronTabs or CronJobs that are due at the same second, waits until their containers have run, and
// removes everything.
func (b *bench) burstOfSchedules(ctx context.Context, s *harness.Sample) (err error) {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.empty(context.WithoutCancel(ctx), namespace)) }()
	kube := b.Observer.Kube
	jobs, err := harness.Watch(ctx, kube.BatchV1().Jobs(namespace))
	if err != nil {
		return err
	}
	pods, err := harness.Watch(ctx, kube.CoreV1().Pods(namespace))
	if err != nil {
		return err
	}
	o := harness.Observe(stages, jobs, pods)
	defer o.Stop()
	due := nextDue(s.Contestant, time.Now(), b.rest)
	err = b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		return create(ctx, writer, s.Contestant, namespace, i, due)
	})
	if err != nil {
		return err
	}
	if time.Now().After(due) {
		return errors.New("the schedules were due before all were created: this machine is too busy")
	}
	seen, err := o.Await(ctx, ended, s.Size)
	if err != nil {
		return err
	}
	var lags []time.Duration
	for name := range seen {
		text, err := kube.CoreV1().Pods(namespace).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("read the log of Pod %s: %w", name, err)
		}
		began, err := startOf(string(text))
		if err != nil {
			return fmt.Errorf("the log of Pod %s: %w", name, err)
		}
		lags = append(lags, began.Sub(due))
	}
	s.SetTimes("running", lags...)
	for _, stage := range []string{job, pod, bound} {
		s.SetSeen(stage, due, o.Seen(stage))
	}
	return nil
}

// jobTemplate is the template of all Jobs.
func jobTemplate() batchv1.JobTemplateSpec {
	return batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To[int32](0),
		Template:     corev1.PodTemplateSpec{Spec: podSpec()},
	}}
}

// podSpec has a container that prints when it started.
func podSpec(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "started", Image: image, Args: args}},
	}
}

// create creates the i-th schedule, which is due once a year, at that time.
func create(ctx context.Context, writer harness.Connection, contestant, namespace string, i int, due time.Time) error {
	meta, template := metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("due-%d", i)}, jobTemplate()
	if contestant == keelson {
		_, err := writer.Keelson.StableV1().CronTabs(namespace).Create(ctx, &stablev1.CronTab{ObjectMeta: meta, Spec: stablev1.CronTabSpec{
			Schedule:    stablev1.Schedule(due.UTC().Format("5 4 15 2 1 *")),
			JobTemplate: &stablev1.JobTemplate{Spec: &template.Spec},
		}}, metav1.CreateOptions{})
		return err
	}
	_, err := writer.Kube.BatchV1().CronJobs(namespace).Create(ctx, &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{
		Schedule: due.UTC().Format("4 15 2 1 *"), TimeZone: ptr.To("Etc/UTC"), JobTemplate: template,
	}}, metav1.CreateOptions{})
	return err
}

// empty deletes a namespace and waits until its Pods are gone, so that the node is idle again.
func (b *bench) empty(ctx context.Context, namespace string) error {
	kube := b.Observer.Kube.CoreV1()
	if err := kube.Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return harness.Until(ctx, 100*time.Millisecond, func() error {
		left, err := kube.Pods(namespace).List(ctx, metav1.ListOptions{})
		if err == nil && len(left.Items) > 0 {
			err = fmt.Errorf("%d Pods are left in %s", len(left.Items), namespace)
		}
		return err
	})
}

// inside prepares a command that runs in the file system of the node, where containerd's socket is at its usual place. ctr
// mounts the files of a container before it asks containerd to run it.
func (b *bench) inside(ctx context.Context, words ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(b.node.inside), "--mount", "--pid", "--"}, words...)...)
}

// burstOfFloor runs containers by ctr from a time on. Their programs print to files: of what goes through ctr, it discards
// what it has not read yet when it hears that the container has ended.
func (b *bench) burstOfFloor(ctx context.Context, s *harness.Sample) error {
	commands, outputs := make([]*exec.Cmd, s.Size), make([]string, s.Size)
	for i := range commands {
		b.floors++
		id := fmt.Sprintf("floor-%d", b.floors)
		output := "/run/keelson-bench/" + id
		outputs[i] = b.node.path(output)
		commands[i] = b.inside(ctx, programs+"ctr", "--namespace", "k8s.io", "run", "--rm", "--snapshotter", b.node.snapshotter,
			// By its path, as kubelet's containers have it: another version may be in PATH.
			"--runtime", programs+"containerd-shim-runc-v2", "--log-uri", "file://"+output,
			// Below the node's own, so that it goes with the node.
			"--cgroup", "/keelson-"+b.node.id+"/"+id, image, id)
	}
	due := nextDue(floor, time.Now(), b.rest)
	if err := harness.Pause(ctx, time.Until(due)); err != nil {
		return err
	}
	var group errgroup.Group
	for _, command := range commands {
		group.Go(func() error {
			if said, err := command.CombinedOutput(); err != nil {
				return fmt.Errorf("ctr run: %w: %s", err, said)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	var lags []time.Duration
	for _, path := range outputs {
		output, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		began, err := startOf(string(output))
		if err != nil {
			return err
		}
		lags = append(lags, began.Sub(due))
	}
	s.SetTimes("running", lags...)
	return nil
}

// startOf reads what the program started has printed.
func startOf(text string) (time.Time, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("the container printed no time, but %q", text)
	}
	return time.Unix(0, n), nil
}
