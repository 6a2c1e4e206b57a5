package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// burst is what one contestant did in one round.
type burst struct {
	Contestant string `json:"contestant"`
	Round      int    `json:"round"`
	Objects    int    `json:"objects"`
	// Lag is from the second at which all were due until the observer has seen each Job. Its maximum is the wall time
	// of the burst.
	Lag measure.Distribution `json:"lag"`
	// Answered is from that second until each create was answered, for the floor.
	Answered *measure.Distribution `json:"answered,omitempty"`
	// Own is the lag by the manager's own histogram; nil for others.
	Own *ownLag `json:"own,omitempty"`
	// Steady is from that second until the last request, give or take the time between two looks.
	Steady time.Duration `json:"steadyNanoseconds"`
	// Requests are all from just before that second until then.
	Requests served `json:"requests"`
	// Processor is the processor time that was used until the last Job was seen, and ProcessorSteady that of the
	// controller until the last request; by process, without those that cannot be told.
	Processor       map[string]time.Duration `json:"processorNanoseconds"`
	ProcessorSteady time.Duration            `json:"processorSteadyNanoseconds"`
	// Memory is that of the controller's process then; nil for the floor, or if it cannot be told.
	Memory *measure.Memory `json:"memory,omitempty"`
	// Load is the load of the machine when it began.
	Load float64 `json:"load"`
}

// burst runs one contestant in namespaces of its own and removes everything after it.
func (b *bench) burst(ctx context.Context, contestant string, round, n int) (result *burst, err error) {
	warmed, err := b.cluster.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	namespace, err := b.cluster.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.empty(context.WithoutCancel(ctx), namespace)) }()
	c, err := b.start(ctx, contestant)
	if err != nil {
		return nil, err
	}
	if c != nil {
		// It must not run while its objects are deleted.
		defer func() { err = errors.Join(err, c.Stop()) }()
		var cancel context.CancelFunc
		ctx, cancel = c.During(ctx)
		defer cancel()
	}
	if err := b.warm(ctx, contestant, warmed); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	for lead := range 3 {
		if result, err = b.measure(ctx, contestant, c, namespace, n, lead); !errors.Is(err, errLate) {
			break
		}
		b.Say("%s: %v; once more, with more time", contestant, err)
		if err := b.empty(ctx, namespace); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	result.Contestant, result.Round = contestant, round
	return result, nil
}

// warm has a contestant that has just been started create a few Jobs, so that it has met everything once, and removes
// them. It also checks that the floor creates the same.
func (b *bench) warm(ctx context.Context, contestant, namespace string) error {
	n := b.options.warm
	o, err := cluster.Observe(ctx, "Jobs", b.cluster.Observer.Kube.BatchV1().Jobs(namespace))
	if err != nil {
		return err
	}
	defer o.Stop()
	due := time.Now().Add(2 * time.Second).Truncate(time.Second)
	err = b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
		switch contestant {
		case floor:
			return createJob(ctx, writer, newFloorJob(namespace, i, due))
		case keelson:
			return createCronTab(ctx, writer, namespace, i, due)
		default:
			return missOne(ctx, writer, namespace, i)
		}
	})
	if err != nil {
		return err
	}
	if _, err := o.Await(ctx, n); err != nil {
		return err
	}
	if contestant == keelson {
		if err := b.checkFloor(ctx, namespace, objectName(0), due); err != nil {
			return err
		}
	}
	return b.empty(ctx, namespace)
}

// missOne creates a CronJob that finds out at once that it has missed a run: all others would have to wait for a full
// minute.
func missOne(ctx context.Context, writer cluster.Connection, namespace string, i int) error {
	now := time.Now()
	cronJobs := writer.Kube.BatchV1().CronJobs(namespace)
	created := newCronJob(namespace, objectName(i), now)
	// Not soon: the one that was missed must be the only one.
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

// measure makes n objects that are due at the same second and measures what comes then.
func (b *bench) measure(ctx context.Context, contestant string, c *controller, namespace string, n, lead int) (*burst, error) {
	o, err := cluster.Observe(ctx, "Jobs", b.cluster.Observer.Kube.BatchV1().Jobs(namespace))
	if err != nil {
		return nil, err
	}
	defer o.Stop()
	own, err := c.readOwn(ctx)
	if err != nil {
		return nil, err
	}
	due, before, err := b.prepareBurst(ctx, contestant, namespace, n, lead)
	if err != nil {
		return nil, err
	}
	result := &burst{Objects: n, Load: measure.Load()}
	processes := b.processes(c)
	used := processes.Processor()
	if time.Now().After(due) {
		return nil, errLate
	}
	if contestant == floor {
		if result.Answered, err = b.runFloor(ctx, namespace, n, due); err != nil {
			return nil, err
		}
	}
	seen, err := o.Await(ctx, n)
	if err != nil {
		return nil, err
	}
	result.Processor = processes.ProcessorSince(used)
	result.Lag = measure.Distribute(lags(seen, due))
	after, last, err := b.awaitQuiet(ctx)
	if err != nil {
		return nil, err
	}
	result.Requests, result.Steady = after.since(before), last.Sub(due)
	if c == nil {
		return result, nil
	}
	result.ProcessorSteady = processes.ProcessorSince(used)[c.Name]
	if result.Own, err = c.ownSince(ctx, own); err != nil {
		return nil, err
	}
	if memory, err := measure.MemoryOf(c.PID()); err == nil {
		result.Memory = &memory
	} else if !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	return result, nil
}

// lags returns how long after a time each was seen.
func lags(seen map[string]time.Time, due time.Time) []time.Duration {
	var all []time.Duration
	for _, at := range seen {
		all = append(all, at.Sub(due))
	}
	return all
}

// prepareBurst creates the objects of a contestant, which are then due soon, and returns when, and all requests until
// then. When it returns, there is no work left until that time. More lead gives it more time.
func (b *bench) prepareBurst(ctx context.Context, contestant, namespace string, n, lead int) (due time.Time, before served, err error) {
	if contestant == floor {
		before, err = b.served(ctx)
		return time.Now().Add(3 * time.Second).Truncate(time.Second), before, err
	}
	// Time for creating them and for what the controller does at once with new ones.
	needed := 4*time.Second + b.options.quiet + time.Duration(n)*time.Second/70
	due = time.Now().Add(needed << (2 * lead)).Truncate(time.Second)
	if contestant != keelson {
		due = due.Truncate(time.Minute).Add(time.Minute)
	}
	err = b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
		if contestant == keelson {
			return createCronTab(ctx, writer, namespace, i, due)
		}
		_, err := writer.Kube.BatchV1().CronJobs(namespace).Create(ctx, newCronJob(namespace, objectName(i), due), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return due, nil, err
	}
	if before, _, err = b.awaitQuiet(ctx); err != nil {
		return due, nil, err
	}
	// Not too long before, so that what the machine does else does not count, and not at the last moment.
	return due, before, measure.Pause(ctx, time.Until(due.Add(-time.Second)))
}

func createCronTab(ctx context.Context, writer cluster.Connection, namespace string, i int, due time.Time) error {
	_, err := writer.Keelson.StableV1().CronTabs(namespace).Create(ctx, newCronTab(namespace, objectName(i), due), metav1.CreateOptions{})
	return err
}

// runFloor creates the Jobs from a time on, and returns how long after it each was answered.
func (b *bench) runFloor(ctx context.Context, namespace string, n int, due time.Time) (*measure.Distribution, error) {
	jobs := make([]*batchv1.Job, n)
	for i := range jobs {
		jobs[i] = newFloorJob(namespace, i, due)
	}
	if err := measure.Pause(ctx, time.Until(due)); err != nil {
		return nil, err
	}
	answered := make([]time.Duration, n)
	err := b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
		err := createJob(ctx, writer, jobs[i])
		answered[i] = time.Since(due)
		return err
	})
	d := measure.Distribute(answered)
	return &d, err
}

// processes returns those that take part in a burst; there may be no controller.
func (b *bench) processes(c *controller) measure.Processes {
	all := measure.Processes{"client": os.Getpid()}
	maps.Copy(all, b.cluster.Components)
	if c != nil {
		all[c.Name] = c.PID()
	}
	return all
}

// empty deletes everything in a namespace that this benchmark or a controller has created there. Nobody collects
// garbage here.
func (b *bench) empty(ctx context.Context, namespace string) error {
	cronTabs, err := b.cluster.Observer.Keelson.StableV1().CronTabs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	cronJobs, err := b.cluster.Observer.Kube.BatchV1().CronJobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	err = b.cluster.Each(ctx, len(cronTabs.Items)+len(cronJobs.Items), func(ctx context.Context, writer cluster.Connection, i int) error {
		if i < len(cronTabs.Items) {
			return writer.Keelson.StableV1().CronTabs(namespace).Delete(ctx, cronTabs.Items[i].Name, metav1.DeleteOptions{})
		}
		return writer.Kube.BatchV1().CronJobs(namespace).Delete(ctx, cronJobs.Items[i-len(cronTabs.Items)].Name, metav1.DeleteOptions{})
	})
	if err != nil {
		return err
	}
	jobs, err := b.cluster.Observer.Kube.BatchV1().Jobs(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return b.cluster.Each(ctx, len(jobs.Items), func(ctx context.Context, writer cluster.Connection, i int) error {
		background := metav1.DeletePropagationBackground
		return writer.Kube.BatchV1().Jobs(namespace).Delete(ctx, jobs.Items[i].Name, metav1.DeleteOptions{PropagationPolicy: &background})
	})
}
