package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// burst measures one contestant in namespaces of its own and removes everything after it.
func (b *bench) burst(ctx context.Context, s *harness.Sample) (err error) {
	warmed, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.empty(context.WithoutCancel(ctx), namespace)) }()
	work := func(ctx context.Context, pid int) error {
		if err := b.warm(ctx, s.Contestant, warmed); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		for lead := range 3 {
			if err = b.measureBurst(ctx, s, pid, namespace, lead); !errors.Is(err, errLate) {
				return err
			}
			b.Say("%s: %v; once more, with more time", s.Contestant, err)
			if err := b.empty(ctx, namespace); err != nil {
				return err
			}
		}
		return err
	}
	if s.Contestant == floor {
		return work(ctx, os.Getpid())
	}
	c, err := b.start(ctx, s.Contestant)
	if err != nil {
		return err
	}
	err = c.During(ctx, func(ctx context.Context) error { return work(ctx, c.PID) })
	// It must not run while its objects are deleted.
	return errors.Join(err, c.Stop())
}

// warm lets a contestant that has just started create a few Jobs, and removes them. The floor creates copies of those of
// keelson.
func (b *bench) warm(ctx context.Context, contestant, namespace string) error {
	o, err := harness.ObserveCreation(ctx, b.Observer.Kube.BatchV1().Jobs(namespace))
	if err != nil {
		return err
	}
	defer o.Stop()
	var due time.Time
	for lead := 2 * time.Second; ; lead *= 2 {
		due = time.Now().Add(lead).Truncate(time.Second)
		err = b.Each(ctx, few, func(ctx context.Context, writer harness.Connection, i int) error {
			switch contestant {
			case floor:
				return createJob(ctx, writer, b.newFloorJob(namespace, i, due))
			case keelson, before:
				return createCronTab(ctx, writer, namespace, i, due)
			default:
				return missOne(ctx, writer, namespace, i)
			}
		})
		if err != nil {
			return err
		}
		if time.Now().Before(due) || contestant != keelson && contestant != before {
			break
		}
		// On a busy machine some were due before they existed, and would wait for a year.
		if err := b.empty(ctx, namespace); err != nil {
			return err
		}
		o.Forget()
	}
	if _, err := o.Await(ctx, harness.Created, few); err != nil {
		return err
	}
	if contestant == keelson {
		if err := b.learn(ctx, namespace, due); err != nil {
			return err
		}
	}
	return b.empty(ctx, namespace)
}

// missOne creates a CronJob that finds at once that it has missed a run: for any other run, the warm-up would have to wait
// for a full minute.
func missOne(ctx context.Context, writer harness.Connection, namespace string, i int) error {
	now := time.Now()
	cronJobs := writer.Kube.BatchV1().CronJobs(namespace)
	created := newCronJob(namespace, objectName(i), now)
	// Not soon: the missed run must be the only one.
	created.Spec.Schedule = fmt.Sprintf("%d * * * *", (now.Minute()+30)%60)
	created, err := cronJobs.Create(ctx, created, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	created.Status.LastScheduleTime = &metav1.Time{Time: now.Add(-2 * time.Hour)}
	_, err = cronJobs.UpdateStatus(ctx, created, metav1.UpdateOptions{})
	return err
}

// errLate says that the objects of a burst were due too early.
var errLate = errors.New("the objects were due before everything was ready, because the machine is too busy")

// measureBurst creates objects that are due at the same second and measures what happens then.
func (b *bench) measureBurst(ctx context.Context, s *harness.Sample, pid int, namespace string, lead int) error {
	o, err := harness.ObserveCreation(ctx, b.Observer.Kube.BatchV1().Jobs(namespace))
	if err != nil {
		return err
	}
	defer o.Stop()
	due, served, err := b.prepareBurst(ctx, s, namespace, lead)
	if err != nil {
		return err
	}
	used := harness.ProcessorTime(pid)
	if time.Now().After(due) {
		return errLate
	}
	if s.Contestant == floor {
		if err := b.runFloor(ctx, namespace, s.Size, due); err != nil {
			return err
		}
	}
	seen, err := o.Await(ctx, harness.Created, s.Size)
	if err != nil {
		return err
	}
	s.SetSeen("lag", due, seen)
	after, last, err := b.AwaitQuiet(ctx, quiet)
	if err != nil {
		return err
	}
	s.Requests = after.Since(served)
	s.SetTimes("steady", last.Sub(due))
	s.Set("processor", harness.ProcessorTime(pid)-used)
	if s.Contestant == floor {
		return nil
	}
	memory, err := harness.MemoryOf(pid)
	s.SetMemory(memory)
	return err
}

// prepareBurst creates the objects of a contestant. It returns shortly before they are due, when there is no work left until
// then, with all requests so far. More lead gives it more time.
func (b *bench) prepareBurst(ctx context.Context, s *harness.Sample, namespace string, lead int) (due time.Time, served harness.Requests, err error) {
	if s.Contestant == floor {
		served, err = b.Served(ctx)
		return time.Now().Add(3 * time.Second).Truncate(time.Second), served, err
	}
	// Time for creating them and for what the controller does at once with new ones.
	needed := 4*time.Second + quiet + time.Duration(s.Size)*time.Second/70
	due = time.Now().Add(needed << (2 * lead)).Truncate(time.Second)
	isCronTab := s.Contestant == keelson || s.Contestant == before
	if !isCronTab {
		due = due.Truncate(time.Minute).Add(time.Minute)
	}
	err = b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		if isCronTab {
			return createCronTab(ctx, writer, namespace, i, due)
		}
		_, err := writer.Kube.BatchV1().CronJobs(namespace).Create(ctx, newCronJob(namespace, objectName(i), due), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return due, nil, err
	}
	if served, _, err = b.AwaitQuiet(ctx, quiet); err != nil {
		return due, nil, err
	}
	// Neither long before, so that other work of the machine does not count, nor at the last moment.
	return due, served, harness.Pause(ctx, time.Until(due.Add(-time.Second)))
}

// runFloor creates the Jobs when they are due.
func (b *bench) runFloor(ctx context.Context, namespace string, n int, due time.Time) error {
	jobs := make([]*batchv1.Job, n)
	for i := range jobs {
		jobs[i] = b.newFloorJob(namespace, i, due)
	}
	if err := harness.Pause(ctx, time.Until(due)); err != nil {
		return err
	}
	return b.Each(ctx, n, func(ctx context.Context, writer harness.Connection, i int) error {
		return createJob(ctx, writer, jobs[i])
	})
}

// empty deletes everything in a namespace that this benchmark or a controller has created there. There is no garbage
// collector.
func (b *bench) empty(ctx context.Context, namespace string) error {
	return errors.Join(
		harness.DeleteAll(ctx, b.Observer.Keelson.StableV1().CronTabs(namespace)),
		harness.DeleteAll(ctx, b.Observer.Kube.BatchV1().CronJobs(namespace)),
		harness.DeleteAll(ctx, b.Observer.Kube.BatchV1().Jobs(namespace)))
}
