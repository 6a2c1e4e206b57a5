package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/bench/internal/cluster"
	"github.com/keelson-dev/keelson/bench/internal/measure"
)

// The two parts of the program keelson-node; all others have the names of their programs.
const (
	partOutside = "keelson-node, on the machine"
	partInside  = "keelson-node, inside"
)

// The parts of a node in the order of tables: those that it always has, and those that each Pod has.
var (
	always = []string{"containerd", "kubelet", "kube-proxy", partInside, partOutside}
	perPod = []string{"containerd-shim-runc-v2", "pause"}
	parts  = slices.Concat(always, perPod)
)

// footprint is the memory of a node that had nothing to do for a while, by part. Of those that there are several of, it is
// the sum.
type footprint map[string]measure.Memory

// pss returns the memory of some parts together. What they share with others counts in part.
func (f footprint) pss(of []string) int64 {
	sum := int64(0)
	for _, part := range of {
		sum += f[part].PSS
	}
	return sum
}

// add adds the memory of a process.
func (f footprint) add(part string, pid int) error {
	m, err := measure.MemoryOf(pid)
	if err != nil {
		return err
	}
	sum := f[part]
	f[part] = measure.Memory{RSS: sum.RSS + m.RSS, PSS: sum.PSS + m.PSS, Peak: sum.Peak + m.Peak, File: sum.File + m.File}
	return nil
}

// look measures the memory of all parts. What containers run is not the node's.
func (n *realNode) look() (footprint, error) {
	f := footprint{}
	if err := errors.Join(f.add(partOutside, n.outside), f.add(partInside, n.inside)); err != nil {
		return nil, err
	}
	all, err := descendants(n.inside)
	if err != nil {
		return nil, err
	}
	for _, process := range all {
		if !slices.Contains(parts, process.name()) {
			continue
		}
		if err := f.add(process.name(), process.pid); err != nil {
			return nil, err
		}
	}
	for _, part := range always {
		if f[part].PSS == 0 {
			return nil, fmt.Errorf("%s does not run", part)
		}
	}
	return f, nil
}

// measureMemory measures the memory of the node without Pods, and with some that have nothing to do.
func (b *bench) measureMemory(ctx context.Context) (err error) {
	n := b.options.Pods
	b.Say("Memory of the node, and with %d Pods, each after %s", n, b.options.Idle)
	if err := measure.Pause(ctx, b.options.Idle); err != nil {
		return err
	}
	if b.results.Empty, err = b.node.look(); err != nil {
		return err
	}
	namespace, err := b.cluster.Namespace(ctx)
	if err != nil {
		return err
	}
	err = b.cluster.Each(ctx, n, func(ctx context.Context, writer cluster.Connection, i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("idle-%d", i)}, Spec: podSpec("stay")}
		_, err := writer.Kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	err = cluster.Until(ctx, func(ctx context.Context) error {
		pods, err := b.cluster.Observer.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err == nil && len(pods.Items) < n {
			err = fmt.Errorf("%d of %d Pods run", len(pods.Items), n)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := measure.Pause(ctx, b.options.Idle); err != nil {
		return err
	}
	if b.results.Full, err = b.node.look(); err != nil {
		return err
	}
	return b.empty(ctx, namespace)
}
