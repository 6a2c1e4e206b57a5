package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// The contestants.
const (
	// floor: containerd's own client is started at that second.
	floor = "ctr run"
	// keelson: `keelson manager` creates Jobs for CronTabs.
	keelson = "CronTab"
	// cronJob: Kubernetes creates them for CronJobs.
	cronJob = "CronJob"
)

// everybody are the contestants in the order of tables.
var everybody = []string{floor, keelson, cronJob}

// burst is what one contestant did once.
type burst struct {
	Contestant string `json:"contestant"`
	Round      int    `json:"round"`
	Due        int    `json:"due"`
	// Lags are from the second at which all were due until the program of each container ran, by the clock of the machine
	// as the program saw it; Running sums them up.
	Lags    []time.Duration      `json:"lagsNanoseconds"`
	Running measure.Distribution `json:"running"`
	// Job, Pod and Bound are until the observer has seen each Job, each Pod, and each Pod with its node; nil of the floor.
	Job   *measure.Distribution `json:"job,omitempty"`
	Pod   *measure.Distribution `json:"pod,omitempty"`
	Bound *measure.Distribution `json:"bound,omitempty"`
	// Load is the load of the machine when it began.
	Load float64 `json:"load"`
}

// burst runs one contestant and removes everything after it.
func (b *bench) burst(ctx context.Context, contestant string, n int) (*burst, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, b.options.Patience, errPatience)
	defer cancel()
	load := measure.Load()
	var result *burst
	var err error
	if contestant == floor {
		result, err = b.burstOfFloor(ctx, n)
	} else {
		result, err = b.burstOfSchedules(ctx, contestant, n)
	}
	if err != nil {
		return nil, err
	}
	result.Due, result.Load, result.Running = n, load, measure.Distribute(result.Lags)
	return result, nil
}

// nextDue returns when a contestant that is prepared from now on is due. For all of them the node has at least so long a
// rest before: what it has to do for containers that are gone takes a while, and a CronJob that waits for its minute would
// be spared that.
func nextDue(contestant string, now time.Time, rest time.Duration) time.Time {
	due := now.Add(rest)
	if contestant == cronJob {
		return due.Truncate(time.Minute).Add(time.Minute)
	}
	return due.Truncate(time.Second).Add(time.Second)
}

// burstOfSchedules creates CronTabs or CronJobs that are due at the same second, and waits until their Pods have ended.
func (b *bench) burstOfSchedules(ctx context.Context, contestant string, n int) (_ *burst, err error) {
	namespace, err := b.cluster.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.empty(context.WithoutCancel(ctx), namespace)) }()
	o, err := b.observe(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer o.stop()
	due := nextDue(contestant, time.Now(), b.options.rest)
	err = b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
		return create(ctx, writer, contestant, namespace, i, due)
	})
	if err != nil {
		return nil, err
	}
	if time.Now().After(due) {
		return nil, errors.New("they were due before all were created: this machine is too busy")
	}
	if err := o.await(ctx, n); err != nil {
		return nil, err
	}
	result := &burst{}
	for pod := range o.ended {
		text, err := b.cluster.Observer.Kube.CoreV1().Pods(namespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("read the log of Pod %s: %w", pod, err)
		}
		began, err := startOf(string(text))
		if err != nil {
			return nil, fmt.Errorf("the log of Pod %s: %w", pod, err)
		}
		result.Lags = append(result.Lags, began.Sub(due))
	}
	result.Job, result.Pod, result.Bound = since(o.jobs, due), since(o.pods, due), since(o.bound, due)
	return result, nil
}

// since sums up how long after a time things were seen.
func since(seen map[string]time.Time, due time.Time) *measure.Distribution {
	var lags []time.Duration
	for _, at := range seen {
		lags = append(lags, at.Sub(due))
	}
	d := measure.Distribute(lags)
	return &d
}

// jobTemplate is what CronTabs and CronJobs make Jobs from.
func jobTemplate() batchv1.JobTemplateSpec {
	return batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{
		BackoffLimit: ptr.To[int32](0),
		Template:     corev1.PodTemplateSpec{Spec: podSpec()},
	}}
}

// podSpec is a container that prints when it was started.
func podSpec(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers:    []corev1.Container{{Name: "started", Image: image, Args: args}},
	}
}

// create creates the schedule of a number, which is due once a year, at that time.
func create(ctx context.Context, writer cluster.Connection, contestant, namespace string, i int, due time.Time) error {
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

// empty deletes a namespace and waits until its Pods are gone, so that the node has nothing to do for them any more.
func (b *bench) empty(ctx context.Context, namespace string) error {
	kube := b.cluster.Observer.Kube.CoreV1()
	if err := kube.Namespaces().Delete(ctx, namespace, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return cluster.Until(ctx, func(ctx context.Context) error {
		left, err := kube.Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		if len(left.Items) > 0 {
			return fmt.Errorf("%d Pods are left in %s", len(left.Items), namespace)
		}
		return nil
	})
}
