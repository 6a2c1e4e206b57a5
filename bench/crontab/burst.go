package main

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// measureBurst measures what happens when many objects are due at the same second.
func (b *bench) measureBurst(ctx context.Context, s *harness.Sample, pid int, namespace string) error {
	// Time for creating them and for what the controller does at once with new ones.
	due := time.Now().Add(s.Lead + time.Duration(s.Size)*s.Lead/1000).Truncate(time.Second)
	jobs := make([]*batchv1.Job, s.Size) // of the floor
	return harness.MeasureBurst(ctx, b.Cluster, s, b.Observer.Kube.BatchV1().Jobs(namespace), harness.Burst{
		PID: pid,
		Prepare: func(ctx context.Context) (time.Time, error) {
			if s.Contestant != floor {
				return b.createSchedules(ctx, s, namespace, due)
			}
			for i := range jobs {
				jobs[i] = b.newFloorJob(namespace, i, due)
			}
			return due, nil
		},
		Start: func(ctx context.Context, due time.Time) error {
			if s.Contestant != floor {
				return nil
			}
			if err := harness.Pause(ctx, time.Until(due)); err != nil {
				return err
			}
			return b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
				_, err := writer.Kube.BatchV1().Jobs(namespace).Create(ctx, jobs[i], metav1.CreateOptions{})
				return err
			})
		},
	})
}

// createSchedules creates CronTabs that are due at that second, or CronJobs that are due at the next minute. It returns when.
func (b *bench) createSchedules(ctx context.Context, s *harness.Sample, namespace string, due time.Time) (time.Time, error) {
	if s.Contestant != keelson {
		due = due.Truncate(time.Minute).Add(time.Minute)
	}
	return due, b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		return createSchedule(ctx, writer, s.Contestant, namespace, objectName(i), due)
	})
}

// createSchedule creates a CronTab or a CronJob that is due at a time.
func createSchedule(ctx context.Context, writer harness.Connection, contestant, namespace, name string, due time.Time) (err error) {
	if contestant == keelson {
		_, err = writer.Keelson.StableV1().CronTabs(namespace).Create(ctx, newCronTab(name, due), metav1.CreateOptions{})
	} else {
		_, err = writer.Kube.BatchV1().CronJobs(namespace).Create(ctx, newCronJob(name, due), metav1.CreateOptions{})
	}
	return err
}

// empty deletes everything in a namespace that this benchmark or a controller has created there.
func (b *bench) empty(ctx context.Context, namespace string) error {
	return errors.Join(
		harness.DeleteAll(ctx, b.Observer.Keelson.StableV1().CronTabs(namespace)),
		harness.DeleteAll(ctx, b.Observer.Kube.BatchV1().CronJobs(namespace)),
		harness.DeleteAll(ctx, b.Observer.Kube.BatchV1().Jobs(namespace)))
}
