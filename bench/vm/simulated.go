package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// The contestants on simulated nodes, whose Pods become ready without a launcher.
const (
	// plainPod: clients create Pods like those of machines.
	plainPod = "plain Pod"
	// simulatedMachine: clients create VirtualMachines, and the manager their Pods.
	simulatedMachine = "VirtualMachine in a simulated Pod"
	crowd            = "steady machines in simulated Pods"
)

// The targets on simulated nodes.
const (
	crowdMemory  = 400.0 // megabytes (RSS) of the manager
	crowdRate    = 0.8   // times plain Pods, machines a second
	crowdTimeout = 20 * time.Minute
	// machinesPerNode is for how many machines a simulated node has processors, less a few.
	machinesPerNode = 250
	// requests is the figure with the requests of the manager while nothing changes.
	requests = "requests"
)

// measureSimulated measures the manager with many machines of the driver pod, on a control plane of its own.
func (b *bench) measureSimulated(ctx context.Context) (err error) {
	if len(*b.simulated) == 0 && b.burstSize == 0 {
		return nil
	}
	c := *b
	nodes := slices.Max(append(slices.Clone(*b.simulated), b.burstSize))/machinesPerNode + 1
	if c.Cluster, err = b.StartCluster(ctx, controlplane.Options{Nodes: nodes}, writers); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Stop()) }()
	c.Counted = []string{"virtualmachines", "events", "secrets", "pods", "persistentvolumeclaims"}
	m, err := c.StartManager(ctx, b.Binary, "virtualmachine", "--vm-driver=pod", "--vm-launcher-image="+launcherImage, "--vm-guest-image="+guestImage, "--profiling")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	return m.During(ctx, func(ctx context.Context) error {
		if b.burstSize > 0 {
			err := b.InTurns(b.rounds(many), b.burstSize, []string{plainPod, simulatedMachine}, "ready", func(s *harness.Sample) error {
				return c.burstSimulated(ctx, m, s)
			})
			if err != nil {
				return err
			}
		}
		have := 0
		for _, n := range *b.simulated {
			b.Say("Creating machines in Pods of simulated nodes until there are %d, and watching their manager for %s", n, b.idle)
			if err := c.measureCrowd(ctx, m, b.NewSample(crowd, 0, n), n-have); err != nil {
				return err
			}
			have = n
		}
		return nil
	})
}

// burstSimulated creates machines or Pods, waits until all are ready, and deletes them.
func (b *bench) burstSimulated(ctx context.Context, m *harness.Program, s *harness.Sample) error {
	ctx, cancel := context.WithTimeoutCause(ctx, crowdTimeout, errCrowd)
	defer cancel()
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	before, err := b.Served(ctx)
	if err != nil {
		return err
	}
	err = b.withProcessorTime(ctx, m, s, s.Size, func() error {
		if s.Contestant == plainPod {
			return b.createPods(ctx, s, namespace)
		}
		_, err := b.createReady(ctx, s, namespace, func(i int) *v1alpha1.VirtualMachine { return newInPod(namespace, i, s.Contestant) })
		return err
	})
	if err != nil {
		return err
	}
	after, err := b.Served(ctx)
	s.Requests = after.Since(before)
	return errors.Join(err, b.emptyNamespace(ctx, namespace))
}

// simulators are the programs whose processor time a machine on a simulated node takes; processor is their sum. Unlike the rate, it hardly
// depends on what else runs.
var simulators = []string{"kube-apiserver", "etcd", "kube-scheduler", "kube-controller-manager", "kwok", keelsonManager}

const (
	keelsonManager = "keelson manager"
	processor      = "processor time"
)

// withProcessorTime creates n objects with work, and sets the processor time that each of them took.
func (b *bench) withProcessorTime(ctx context.Context, m *harness.Program, s *harness.Sample, n int, work func() error) error {
	report, err := controlplane.Inspect(ctx, b.Dir)
	if err != nil {
		return err
	}
	pids := map[string]int{keelsonManager: m.PID}
	for _, component := range report.Components {
		pids[component.Name] = component.PID
	}
	before := map[string]float64{}
	for name, pid := range pids {
		before[name] = harness.ProcessorTime(pid)
	}
	if err := work(); err != nil {
		return err
	}
	sum := 0.0
	for _, name := range simulators {
		each := (harness.ProcessorTime(pids[name]) - before[name]) / float64(n)
		s.Set(name, each)
		sum += each
	}
	s.Set(processor, sum)
	return nil
}

// createPods creates Pods like those of machines, and waits until all are ready.
func (b *bench) createPods(ctx context.Context, s *harness.Sample, namespace string) error {
	w, err := harness.Watch(ctx, b.Observer.Kube.CoreV1().Pods(namespace))
	if err != nil {
		return err
	}
	const ready = "ready"
	o := harness.Observe(func(_ watch.EventType, object metav1.Object) ([]string, error) {
		if slices.ContainsFunc(object.(*corev1.Pod).Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		}) {
			return []string{ready}, nil
		}
		return nil, nil
	}, w)
	defer o.Stop()
	began := time.Now()
	err = b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		_, err := writer.Kube.CoreV1().Pods(namespace).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pod-%d", i)},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "machine", Image: launcherImage}}},
		}, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	seen, err := o.Await(ctx, ready, s.Size)
	s.SetSeen(ready, began, seen)
	return err
}

// measureCrowd creates more machines, waits until nothing is written any more, and watches their manager. The machines remain.
func (b *bench) measureCrowd(ctx context.Context, m *harness.Program, s *harness.Sample, more int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, crowdTimeout, errCrowd)
	defer cancel()
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	added := &harness.Sample{Size: more}
	err = b.withProcessorTime(ctx, m, s, more, func() error {
		_, err := b.createReady(ctx, added, namespace, func(i int) *v1alpha1.VirtualMachine { return newInPod(namespace, i, s.Contestant) })
		return err
	})
	if err != nil {
		return err
	}
	s.Set("ready", added.Figures["ready"]...)
	if _, _, err := b.AwaitQuiet(ctx, b.quiet); err != nil {
		return err
	}
	before, err := m.Metrics(ctx)
	if err != nil {
		return err
	}
	if _, err := b.Idle(ctx, s, m, b.idle); err != nil {
		return err
	}
	after, err := m.Metrics(ctx)
	if err != nil {
		return err
	}
	const made = "rest_client_requests_total"
	s.Set(requests, after.Value(made)-before.Value(made))
	return nil
}

var errCrowd = fmt.Errorf("the time limit of the benchmark is over, %s", crowdTimeout)

// emptyNamespace deletes all machines and Pods of a namespace, and waits until they are gone.
func (b *bench) emptyNamespace(ctx context.Context, namespace string) error {
	vms, pods := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace), b.Observer.Kube.CoreV1().Pods(namespace)
	if err := harness.DeleteAll(ctx, vms); err != nil {
		return err
	}
	for { // Until has a shorter limit
		left, err := vms.List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		if len(left.Items) == 0 {
			break
		}
		if err := harness.Pause(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	if err := harness.DeleteAll(ctx, pods); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return harness.Until(ctx, 500*time.Millisecond, func() error {
		left, err := pods.List(ctx, metav1.ListOptions{Limit: 1})
		if err == nil && len(left.Items) > 0 {
			err = errors.New("there are still Pods")
		}
		return err
	})
}

// reportSimulated reports the machines in Pods of simulated nodes.
func (b *bench) reportSimulated() {
	if len(*b.simulated) == 0 && b.burstSize == 0 {
		return
	}
	all := b.Samples
	var columns []harness.Column
	for _, figure := range append(slices.Clone(simulators), processor) {
		columns = append(columns, harness.Column{Header: figure, Figure: figure, Stat: harness.Last, Format: harness.Milliseconds})
	}
	b.Printf("\n## Machines in Pods of simulated nodes\n")
	if n := b.burstSize; n > 0 {
		b.RatioTarget(fmt.Sprintf("%d machines created at once: rate, in times of plain Pods", n), "≥", crowdRate,
			all.Ratios(plainPod, simulatedMachine, n, "ready", harness.Last))
		b.SampleTable(n, []string{plainPod, simulatedMachine}, append(harness.Distribution("ready", harness.Seconds),
			harness.Column{Header: "× plain Pods", Figure: "ready", Stat: harness.Last, Over: plainPod})...)
		b.Printf("\nProcessor time of each until it is ready:\n")
		b.SampleTable(n, []string{plainPod, simulatedMachine}, append(slices.Clone(columns), harness.Column{Header: "× plain Pods", Figure: processor, Stat: harness.Last, Over: plainPod})...)
		for _, contestant := range []string{plainPod, simulatedMachine} {
			served, objects := all.Requests(contestant)
			b.Printf("\n- Requests a %s: %s\n", contestant, served.Each(max(1, objects)))
		}
	}
	for _, n := range *b.simulated {
		of := all.Of(crowd, n)
		b.Target(fmt.Sprintf("%d machines in Pods: memory of the manager", n), "<", crowdMemory, of.Median("RSS", harness.Last)/1e6, " MB",
			fmt.Sprintf("RSS after %s; peak %s", b.idle, harness.Megabytes(of.Median("peak", harness.Last))))
		b.Target(fmt.Sprintf("%d machines in Pods: requests of the manager in a minute", n), "≤", 0,
			of.Median(requests, harness.Last)*float64(time.Minute)/float64(b.idle), "", "while nothing changes")
		b.SampleTable(n, []string{crowd}, append(slices.Clone(harness.IdleColumns), harness.Column{Header: "all ready", Figure: "ready", Stat: harness.Last, Format: harness.Seconds})...)
		b.Printf("\nProcessor time of each of those that were added:\n")
		b.SampleTable(n, []string{crowd}, columns...)
	}
}
