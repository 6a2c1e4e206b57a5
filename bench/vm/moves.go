package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// nodeMilliCPU is what nodes that share a machine with two processors have for Pods, less a little.
const nodeMilliCPU = 950

// outOfService is the taint by which somebody says that a node is off.
const outOfService = "node.kubernetes.io/out-of-service"

// measureMoves measures machines that leave a node. They have no disks, so that they may run on any node.
func (b *bench) measureMoves(ctx context.Context) error {
	if err := b.kubectl(ctx, env.SmallRequests(nodeMilliCPU/b.pods), "apply", "-f", "-"); err != nil {
		return err
	}
	if err := b.awaitSmallRequests(ctx); err != nil {
		return err
	}
	for range b.rounds(many) {
		if err := b.move(ctx, drained, b.pods, b.drain); err != nil {
			return fmt.Errorf("drain a node: %w", err)
		}
	}
	for range b.losses {
		if err := b.move(ctx, lost, aloneSize, b.lose); err != nil {
			return fmt.Errorf("lose a node: %w", err)
		}
	}
	return nil
}

// awaitSmallRequests waits until the policy is in force.
func (b *bench) awaitSmallRequests(ctx context.Context) error {
	wanted := newInPod(metav1.NamespaceDefault, 0, inPod).Spec.Resource.CPU
	return harness.Until(ctx, 100*time.Millisecond, func() error {
		made, err := b.Observer.Kube.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "trial"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "trial", Image: launcherImage, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: *wanted.ToDec()}},
			}}},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && made.Spec.Containers[0].Resources.Requests.Cpu().Cmp(wanted) >= 0 {
			err = errors.New("the policy for small requests has no effect")
		}
		return err
	})
}

// move creates n machines on the second node, has them leave it, and waits until they are ready on the first one.
func (b *bench) move(ctx context.Context, contestant string, n int, leave func(ctx context.Context, s *harness.Sample, namespace string) (began time.Time, err error)) error {
	s := b.NewSample(contestant, 0, n)
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	if err := b.kubectl(ctx, "", "cordon", node.Name(0)); err != nil {
		return err
	}
	boot := &harness.Sample{Contestant: contestant, Size: n}
	g, err := b.createReady(ctx, boot, namespace, func(i int) *v1alpha1.VirtualMachine { return newInPod(namespace, i, contestant) })
	if err != nil {
		return err
	}
	s.Set("boot", boot.Figures["ready"]...)
	if err := errors.Join(b.setPods(ctx, s, g.began), b.kubectl(ctx, "", "uncordon", node.Name(0))); err != nil {
		return err
	}
	o, err := b.observeRuns(ctx, namespace)
	if err != nil {
		return err
	}
	defer o.Stop()
	began, err := leave(ctx, s, namespace)
	if err != nil {
		return err
	}
	seen, err := o.Await(ctx, movedOn, n)
	if err != nil {
		return errors.Join(err, b.explain(context.WithoutCancel(ctx), namespace))
	}
	s.SetSeen("ready", began, seen)
	b.Say("%s with %d machines: the last one is ready elsewhere after %s", contestant, n, harness.Seconds(harness.Last(s.Figures["ready"])))
	return errors.Join(b.comeBack(ctx), b.removeFromPods(ctx, s, namespace))
}

// movedOn is the stage of a machine that is ready in another run.
const movedOn = "ready in another run"

// observeRuns observes when the machines of a namespace are ready in another run than now.
func (b *bench) observeRuns(ctx context.Context, namespace string) (*harness.Observer, error) {
	vms := b.Observer.Keelson.CloudnativeV1alpha1().VirtualMachines(namespace)
	list, err := vms.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	runs := map[string]string{}
	for _, vm := range list.Items {
		runs[vm.Name] = vm.Status.Server.Run
	}
	w, err := harness.Watch(ctx, vms)
	if err != nil {
		return nil, err
	}
	return harness.Observe(func(_ watch.EventType, object metav1.Object) ([]string, error) {
		vm := object.(*v1alpha1.VirtualMachine)
		if vm.Status.Server != nil && vm.Status.Server.Run != runs[vm.Name] && apimeta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionReady) {
			return []string{movedOn}, nil
		}
		return nil, nil
	}, w), nil
}

// drain drains the second node, as an administrator does.
func (b *bench) drain(ctx context.Context, s *harness.Sample, _ string) (began time.Time, err error) {
	began = time.Now()
	err = b.kubectl(ctx, "", "drain", node.Name(1), "--force", "--delete-emptydir-data", "--ignore-daemonsets")
	s.SetTimes("empty", time.Since(began))
	return began, err
}

// lose powers the second node off, and taints it when Kubernetes has noticed that it is away.
func (b *bench) lose(ctx context.Context, s *harness.Sample, namespace string) (began time.Time, err error) {
	machine, err := b.findNodePrograms()
	if err != nil {
		return began, err
	}
	pods, err := b.Observer.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return began, err
	}
	if err := b.keelson(ctx, machine, "node", "kill", node.Name(1)); err != nil {
		return began, err
	}
	if err := b.kubectl(ctx, "", "wait", "--for=condition=Ready=Unknown", "node/"+node.Name(1), "--timeout=3m"); err != nil {
		return began, err
	}
	began = time.Now()
	if err := b.kubectl(ctx, "", "taint", "node", node.Name(1), outOfService+"=lost:NoExecute"); err != nil {
		return began, err
	}
	err = harness.Until(ctx, 20*time.Millisecond, func() error {
		now, err := b.Observer.Kube.CoreV1().Pods(namespace).Get(ctx, pods.Items[0].Name, metav1.GetOptions{})
		if err == nil && now.UID == pods.Items[0].UID {
			return errors.New("the Pod on the lost node exists")
		}
		return nil
	})
	s.SetTimes("Pod gone", time.Since(began))
	return began, err
}

// comeBack makes the second node one that Pods are scheduled to again.
func (b *bench) comeBack(ctx context.Context) error {
	machine, err := b.findNodePrograms()
	if err != nil {
		return err
	}
	name := node.Name(1)
	err = errors.Join(b.keelson(ctx, machine, "node", "start", name), b.kubectl(ctx, "", "uncordon", name))
	lostNode, getErr := b.Observer.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if getErr == nil {
		for _, taint := range lostNode.Spec.Taints {
			if taint.Key == outOfService {
				err = errors.Join(err, b.kubectl(ctx, "", "taint", "node", name, outOfService+"-"))
			}
		}
	}
	return errors.Join(err, getErr, b.kubectl(ctx, "", "wait", "--for=condition=Ready", "node/"+name, "--timeout=3m"))
}
