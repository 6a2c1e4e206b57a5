package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// maxObjects is the number of names of the same length.
const maxObjects = 99999

// objectName is the name of the i-th CronTab or CronJob of a burst.
func objectName(i int) string { return fmt.Sprintf("due-%05d", i) }

// jobTemplate is the template of all Jobs.
func jobTemplate() batchv1.JobTemplateSpec {
	labels := map[string]string{"app.kubernetes.io/name": "bench"}
	return batchv1.JobTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](3),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					RestartPolicy: corev1.RestartPolicyNever,
					Containers:    []corev1.Container{{Name: "run", Image: "busybox:1.37", Command: []string{"sh", "-c", "date"}}},
				},
			},
		},
	}
}

// newCronTab is due once a year, at that second.
func newCronTab(namespace, name string, due time.Time) *stablev1.CronTab {
	template := jobTemplate()
	return &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: stablev1.CronTabSpec{
			Schedule:    stablev1.Schedule(due.UTC().Format("5 4 15 2 1 *")),
			JobTemplate: &stablev1.JobTemplate{ObjectMeta: template.ObjectMeta, Spec: &template.Spec},
		},
	}
}

// newCronJob is due once a year, at the beginning of that minute.
func newCronJob(namespace, name string, due time.Time) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule:    due.UTC().Format("4 15 2 1 *"),
			TimeZone:    ptr.To("Etc/UTC"),
			JobTemplate: jobTemplate(),
		},
	}
}

// newJob returns what the controller creates for a CronTab; checkFloor verifies it.
func newJob(namespace, crontab string, uid types.UID, due time.Time) *batchv1.Job {
	template := jobTemplate()
	nominal := map[string]string{batchv1.CronJobScheduledTimestampAnnotation: due.UTC().Format(time.RFC3339)}
	template.Spec.Template.Annotations = nominal
	owner := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: crontab, UID: uid}}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   namespace,
			Name:        crontab + "-" + strconv.FormatInt(due.Unix(), 10),
			Labels:      template.Labels,
			Annotations: nominal,
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(owner, stablev1.SchemeGroupVersion.WithKind("CronTab")),
			},
		},
		Spec: template.Spec,
	}
}

// newFloorJob returns the Job that the i-th CronTab would have.
func newFloorJob(namespace string, i int, due time.Time) *batchv1.Job {
	return newJob(namespace, objectName(i), uuid.NewUUID(), due)
}

func createJob(ctx context.Context, writer harness.Connection, job *batchv1.Job) error {
	_, err := writer.Kube.BatchV1().Jobs(job.Namespace).Create(ctx, job, metav1.CreateOptions{})
	return err
}

// checkFloor returns an error if the floor does not create what the controller created: its work would be less or more.
func (b *bench) checkFloor(ctx context.Context, namespace, crontab string, due time.Time) error {
	owner, err := b.Observer.Keelson.StableV1().CronTabs(namespace).Get(ctx, crontab, metav1.GetOptions{})
	if err != nil {
		return err
	}
	wanted := newJob(namespace, crontab, owner.UID, due)
	jobs := b.Observer.Kube.BatchV1().Jobs(namespace)
	ours, err := jobs.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	// A dry run fills in the defaults of the API.
	wanted.Name += "-floor"
	filled, err := jobs.Create(ctx, wanted, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return err
	}
	type compared struct {
		Labels, Annotations map[string]string
		Owners              []metav1.OwnerReference
		Parallelism         *int32
		BackoffLimit        *int32
		Pods                map[string]string // their annotations
		Pod                 corev1.PodSpec
	}
	reduce := func(job *batchv1.Job) compared {
		return compared{job.Labels, job.Annotations, job.OwnerReferences, job.Spec.Parallelism, job.Spec.BackoffLimit, job.Spec.Template.Annotations, job.Spec.Template.Spec}
	}
	if diff := cmp.Diff(reduce(ours), reduce(filled)); diff != "" {
		return fmt.Errorf("the floor does not create what the controller creates, update newJob in bench/crontab (-controller +floor):\n%s", diff)
	}
	return nil
}

func createCronTab(ctx context.Context, writer harness.Connection, namespace string, i int, due time.Time) error {
	_, err := writer.Keelson.StableV1().CronTabs(namespace).Create(ctx, newCronTab(namespace, objectName(i), due), metav1.CreateOptions{})
	return err
}

// createDaily creates a CronTab that is due once a day, at that minute.
func createDaily(ctx context.Context, writer harness.Connection, namespace string, i int, due time.Time) error {
	daily := newCronTab(namespace, objectName(i), due)
	daily.Spec.Schedule = stablev1.Schedule(due.UTC().Format("4 15 * * *"))
	_, err := writer.Keelson.StableV1().CronTabs(namespace).Create(ctx, daily, metav1.CreateOptions{})
	return err
}
