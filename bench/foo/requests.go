package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/bench/internal/program"
)

// requests are what the manager has sent in some time.
type requests struct {
	// Methods are its own count, by HTTP method; opening a watch is a GET.
	Methods map[string]float64 `json:"methods"`
	// Served are those that kube-apiserver has served meanwhile from anybody, by verb and resource: writes of
	// Deployments, Foos and events that nobody else wrote, and watches that have ended.
	Served map[string]float64 `json:"served"`
	// Steady is the time until the last of them.
	Steady time.Duration `json:"steadyNanoseconds"`
}

// total returns the number of requests that are not the beginning of a watch. Each watch that has ended in that time
// was followed by another.
func (r *requests) total() float64 {
	sum := 0.0
	for _, n := range r.Methods {
		sum += n
	}
	for what, n := range r.Served {
		if isWatch(what) {
			sum -= n
		}
	}
	return sum
}

// writes returns the number of requests that change something.
func (r *requests) writes() float64 {
	sum := 0.0
	for method, n := range r.Methods {
		if method != "GET" {
			sum += n
		}
	}
	return sum
}

// events returns the number of writes of events.
func (r *requests) events() float64 { return r.Served["POST events"] + r.Served["PATCH events"] }

// counter counts the requests of a manager.
type counter struct {
	manager        *program.Manager
	methods        map[string]float64
	served         map[string]float64
	began, changed time.Time
	last           map[string]float64
}

// startCount begins to count.
func (b *bench) startCount(ctx context.Context, m *program.Manager) (*counter, error) {
	c := &counter{manager: m}
	var err error
	if c.methods, err = c.sent(ctx); err != nil {
		return nil, err
	}
	if c.served, err = b.served(ctx); err != nil {
		return nil, err
	}
	c.began = time.Now()
	c.changed, c.last = c.began, c.methods
	return c, nil
}

func (c *counter) sent(ctx context.Context) (map[string]float64, error) {
	metrics, err := c.manager.Scrape(ctx)
	if err != nil {
		return nil, err
	}
	const name = "rest_client_requests_total"
	if metrics.Value(name) == 0 {
		return nil, fmt.Errorf("the manager's metrics have no %s, or it has sent nothing", name)
	}
	return metrics.By(name, "method"), nil
}

// served returns what kube-apiserver has served, see requests.Served.
func (b *bench) served(ctx context.Context) (map[string]float64, error) {
	all, err := b.cluster.Served(ctx, "foos", "deployments", "events")
	maps.DeleteFunc(all, func(what string, _ float64) bool { return !isCounted(what) })
	return all, err
}

// isQuiet looks whether something was sent since the last look, and returns whether nothing was for the given time.
func (c *counter) isQuiet(ctx context.Context, quiet time.Duration) (bool, error) {
	now, err := c.sent(ctx)
	if err != nil {
		return false, err
	}
	if !maps.Equal(now, c.last) {
		c.changed, c.last = time.Now(), now
	}
	return time.Since(c.changed) >= quiet, nil
}

// end returns what was sent since the start of the count.
func (b *bench) end(ctx context.Context, c *counter) (*requests, error) {
	methods, err := c.sent(ctx)
	if err != nil {
		return nil, err
	}
	served, err := b.served(ctx)
	if err != nil {
		return nil, err
	}
	return &requests{
		Methods: measure.Increase(c.methods, methods),
		Served:  measure.Increase(c.served, served),
		Steady:  c.changed.Sub(c.began),
	}, nil
}

// awaitSteady waits until n Foos have the status that they will keep and the manager sends nothing any more, and
// returns what it has sent since the start of the count.
func (b *bench) awaitSteady(ctx context.Context, c *counter, namespace string, n int) (*requests, error) {
	err := cluster.Until(ctx, func(ctx context.Context) error {
		isQuiet, err := c.isQuiet(ctx, b.options.quiet)
		if err != nil {
			return err
		}
		if !isQuiet {
			return fmt.Errorf("the manager still sends requests: %v", c.last)
		}
		return b.checkSteady(ctx, namespace, n)
	})
	if err != nil {
		return nil, fmt.Errorf("wait until the Foos are steady: %w", err)
	}
	return b.end(ctx, c)
}

// checkSteady returns an error unless n Foos say of themselves what is right. Without Kubernetes' own controllers no
// Deployment ever becomes available.
func (b *bench) checkSteady(ctx context.Context, namespace string, n int) error {
	foos, err := b.cluster.Observer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(foos.Items) != n {
		return fmt.Errorf("there are %d Foos, want %d", len(foos.Items), n)
	}
	for i := range foos.Items {
		foo := &foos.Items[i]
		if foo.Status.ObservedGeneration != foo.Generation {
			return fmt.Errorf("the Foo %s has no status yet", foo.Name)
		}
		if b.options.Full && !apimeta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("the Foo %s is not ready", foo.Name)
		}
	}
	return nil
}
