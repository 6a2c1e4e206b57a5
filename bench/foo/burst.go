package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
)

// The contestants.
const (
	// floorDeployments: a client creates the Deployments; there are no Foos.
	floorDeployments = "floor A: Deployments alone"
	// floorBoth: a client creates the Foos and their Deployments; no controller runs.
	floorBoth = "floor B: Foos and Deployments"
	// keelson: a client creates the Foos, `keelson manager` the Deployments.
	keelson = "keelson"
	// peer: a client creates the Foos, sample-controller the Deployments.
	peer = "sample-controller"
)

// burst is what one contestant did in one round.
type burst struct {
	Contestant string `json:"contestant"`
	Round      int    `json:"round"`
	Objects    int    `json:"objects"`
	// Total is the time from when the first create was sent until the last Deployment was seen.
	Total time.Duration `json:"totalNanoseconds"`
	// FromSent are the times from when a create was sent until its Deployment was seen; FromAnswered begin at the
	// answer to that create. It is the create of the Foo, for floor A that of the Deployment.
	FromSent     measure.Distribution `json:"fromSent"`
	FromAnswered measure.Distribution `json:"fromAnswered"`
	// Processor is the processor time that was used until then, by process; without those that cannot be told.
	Processor map[string]time.Duration `json:"processorNanoseconds"`
	// Requests are those of keelson until all Foos were steady; nil for others.
	Requests *requests `json:"requests,omitempty"`
	// Load is the load of the machine when it began.
	Load float64 `json:"load"`
}

// burst runs one contestant in a namespace of its own and removes everything after it.
func (b *bench) burst(ctx context.Context, contestant string, round, n int) (*burst, error) {
	namespace, err := b.cluster.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	var result *burst
	create := b.creator(contestant, namespace)
	switch contestant {
	case keelson:
		result, err = b.burstOfManager(ctx, namespace, n, create)
	case peer:
		result, err = b.burstOfPeer(ctx, namespace, n, create)
	default:
		result, err = b.create(ctx, nil, namespace, n, create)
	}
	if err != nil {
		return nil, err
	}
	result.Contestant, result.Round = contestant, round
	return result, b.empty(ctx, namespace)
}

// burstOfManager is a burst with `keelson manager` as the controller, which has stopped when it returns: it must not
// run while its Foos are deleted, for it could see the end of a Deployment before that of its Foo.
func (b *bench) burstOfManager(ctx context.Context, namespace string, n int, create createFunc) (_ *burst, err error) {
	warmed, err := b.cluster.Namespace(ctx)
	if err != nil {
		return nil, err
	}
	m, err := b.startManager(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, m.Stop()); err == nil {
			err = b.empty(ctx, warmed)
		}
	}()
	running, cancel := m.During(ctx)
	defer cancel()
	if err := b.warm(running, m, warmed); err != nil {
		return nil, fmt.Errorf("warm up: %w", err)
	}
	count, err := b.startCount(running, m)
	if err != nil {
		return nil, err
	}
	result, err := b.create(running, m.Program, namespace, n, create)
	if err != nil {
		return nil, err
	}
	result.Requests, err = b.awaitSteady(running, count, namespace, n)
	return result, err
}

// burstOfPeer is a burst with sample-controller as the controller.
func (b *bench) burstOfPeer(ctx context.Context, namespace string, n int, create createFunc) (_ *burst, err error) {
	p, err := b.startPeer(ctx, b.peerPath)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.Stop()) }()
	ctx, cancel := p.During(ctx)
	defer cancel()
	return b.create(ctx, p, namespace, n, create)
}

// createFunc creates one object, and with it what the contestant creates itself.
type createFunc func(ctx context.Context, writer cluster.Connection, name string) error

// creator returns how the client of a contestant creates its objects.
func (b *bench) creator(contestant, namespace string) createFunc {
	return func(ctx context.Context, writer cluster.Connection, name string) error {
		if contestant == floorDeployments {
			return createDeployment(ctx, writer, newPlainDeployment(namespace, name))
		}
		foo, err := createFoo(ctx, writer, namespace, name)
		if err == nil && contestant == floorBoth {
			err = createDeployment(ctx, writer, newDeployment(foo))
		}
		return err
	}
}

// warm lets a manager that has just started create a few Deployments, so that its connections are open, checks that
// the floors create the same, and waits until it has nothing more to do.
func (b *bench) warm(ctx context.Context, m *program.Manager, namespace string) error {
	count, err := b.startCount(ctx, m)
	if err != nil {
		return err
	}
	const few = 32
	if _, err = b.create(ctx, m.Program, namespace, few, b.creator(keelson, namespace)); err != nil {
		return err
	}
	if err := b.checkFloor(ctx, namespace, objectName(0)); err != nil {
		return err
	}
	_, err = b.awaitSteady(ctx, count, namespace, few)
	return err
}

// create creates n objects as fast as the API takes them and waits until the observer has seen their Deployments.
func (b *bench) create(ctx context.Context, controller *program.Program, namespace string, n int, create createFunc) (*burst, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o, err := cluster.Observe(ctx, "Deployments", b.cluster.Observer.Kube.AppsV1().Deployments(namespace))
	if err != nil {
		return nil, err
	}
	defer o.Stop()
	result := &burst{Objects: n, Load: measure.Load()}
	sent, answered := make([]time.Time, n), make([]time.Time, n)
	processes := b.processes(controller)
	before := processes.Processor()
	created := make(chan error, 1)
	go func() {
		err := b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
			sent[i] = time.Now()
			err := create(ctx, writer, objectName(i))
			answered[i] = time.Now()
			return err
		})
		if err != nil {
			cancel(err)
		}
		created <- err
	}()
	seen, err := o.Await(ctx, n)
	used := processes.ProcessorSince(before)
	if createErr := <-created; createErr != nil {
		return nil, createErr
	}
	if err != nil {
		return nil, err
	}
	result.Processor = used
	return result, result.sumUp(sent, answered, seen)
}

// sumUp fills in the times.
func (r *burst) sumUp(sent, answered []time.Time, seen map[string]time.Time) error {
	first, last := sent[0], sent[0]
	var fromSent, fromAnswered []time.Duration
	for i := range sent {
		at, found := seen[objectName(i)]
		if !found {
			return fmt.Errorf("there is no Deployment %s, but another", objectName(i))
		}
		fromSent = append(fromSent, at.Sub(sent[i]))
		fromAnswered = append(fromAnswered, at.Sub(answered[i]))
		if sent[i].Before(first) {
			first = sent[i]
		}
		if at.After(last) {
			last = at
		}
	}
	r.Total = last.Sub(first)
	r.FromSent, r.FromAnswered = measure.Distribute(fromSent), measure.Distribute(fromAnswered)
	return nil
}

// processorTime returns the processor time of all processes together.
func (r *burst) processorTime() time.Duration {
	var sum time.Duration
	for _, used := range r.Processor {
		sum += used
	}
	return sum
}

// objectName is the name of the i-th Foo and of its Deployment.
func objectName(i int) string { return fmt.Sprintf("foo-%05d", i) }

func createFoo(ctx context.Context, writer cluster.Connection, namespace, name string) (*v1alpha1.Foo, error) {
	replicas := int32(1)
	return writer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: &replicas},
	}, metav1.CreateOptions{})
}

func createDeployment(ctx context.Context, writer cluster.Connection, deployment *appsv1.Deployment) error {
	_, err := writer.Kube.AppsV1().Deployments(deployment.Namespace).Create(ctx, deployment, metav1.CreateOptions{})
	return err
}
