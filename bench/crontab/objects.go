package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
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
func newCronTab(name string, due time.Time) *stablev1.CronTab {
	template := jobTemplate()
	return &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: stablev1.CronTabSpec{
			Schedule:    stablev1.Schedule(due.UTC().Format("5 4 15 2 1 *")),
			JobTemplate: &stablev1.JobTemplate{ObjectMeta: template.ObjectMeta, Spec: &template.Spec},
		},
	}
}

// newCronJob is due once a year, at the beginning of that minute.
func newCronJob(name string, due time.Time) *batchv1.CronJob {
	return &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: batchv1.CronJobSpec{
			Schedule:    due.UTC().Format("4 15 2 1 *"),
			TimeZone:    ptr.To("Etc/UTC"),
			JobTemplate: jobTemplate(),
		},
	}
}

// newFloorJob returns the Job that the controller would create for the i-th CronTab, a copy of one that it has created.
func (b *bench) newFloorJob(namespace string, i int, due time.Time) *batchv1.Job {
	owner := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: objectName(i), UID: uuid.NewUUID()}}
	nominal := map[string]string{batchv1.CronJobScheduledTimestampAnnotation: due.UTC().Format(time.RFC3339)}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d", owner.Name, due.Unix()), Labels: b.model.Labels, Annotations: nominal,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, stablev1.SchemeGroupVersion.WithKind("CronTab"))},
		},
		Spec: *b.model.Spec.DeepCopy(),
	}
	job.Spec.Template.Annotations = nominal
	return job
}

// learn makes a Job of keelson the model of the floor's, without the selector and the labels that the API server adds to
// each Job. It returns an error if copies of it would differ in more than those.
func (b *bench) learn(ctx context.Context, contestant, namespace string) error {
	if contestant != keelson {
		return nil
	}
	jobs, err := b.Observer.Kube.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	job := &jobs.Items[0]
	due, err := time.Parse(time.RFC3339, job.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	if err != nil {
		return fmt.Errorf("the Job %s: %w", job.Name, err)
	}
	job.Spec.Selector = nil
	maps.DeleteFunc(job.Spec.Template.Labels, func(label, _ string) bool {
		return strings.HasSuffix(label, "controller-uid") || strings.HasSuffix(label, "job-name")
	})
	b.model = job
	floors := b.newFloorJob(namespace, 0, due)
	if diff := cmp.Diff(job.Annotations, floors.Annotations) + cmp.Diff(job.Spec, floors.Spec); diff != "" {
		return fmt.Errorf("the floor does not create what the controller creates, update newFloorJob in bench/crontab (-controller +floor):\n%s", diff)
	}
	return nil
}
