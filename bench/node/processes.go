package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/bench/internal/realnode"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
)

// realNode is a node that runs.
type realNode struct {
	// outside is its process on the machine, inside the first one in its namespaces.
	outside, inside int
	// id names its cgroup.
	id string
	// snapshotter is containerd's store for root file systems.
	snapshotter string
}

// programs is the folder of the programs inside the node.
const programs = "/run/keelson/programs/"

// findNode finds the node that runs in the data directory of a control plane.
func findNode(ctx context.Context, dir string) (*realNode, error) {
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	n := &realNode{}
	for _, c := range report.Components {
		if c.Name == "node" {
			n.outside = c.PID
		}
	}
	if n.outside == 0 {
		return nil, errors.New("the node does not run")
	}
	if n.inside, err = realnode.Inside(n.outside); err != nil {
		return nil, err
	}
	data, err := os.ReadFile(node.Settings{Dir: node.Dir(dir, 0)}.File())
	if err != nil {
		return nil, err
	}
	var settings node.Settings
	if err := json.Unmarshal(data, &settings); err != nil {
		return nil, fmt.Errorf("the settings of the node: %w", err)
	}
	n.id = settings.ID
	config, err := os.ReadFile(n.path("/run/keelson/containerd.toml"))
	if err != nil {
		return nil, err
	}
	n.snapshotter, err = snapshotterOf(string(config))
	return n, err
}

// path returns the path of a file of the node outside of it.
func (n *realNode) path(inside string) string {
	return fmt.Sprintf("/proc/%d/root%s", n.inside, inside)
}

// snapshotterOf reads which snapshotter containerd is configured to use.
func snapshotterOf(config string) (string, error) {
	for line := range strings.Lines(config) {
		if name, value, found := strings.Cut(line, "="); found && strings.TrimSpace(name) == "snapshotter" {
			return strconv.Unquote(strings.TrimSpace(value))
		}
	}
	return "", errors.New("the configuration of containerd names no snapshotter")
}

// measureMemory measures the memory of the idle node without Pods, and with some.
func (b *bench) measureMemory(ctx context.Context) error {
	b.Say("Memory of the node, and with %d Pods, each after %s", b.pods, b.idle)
	if err := harness.Pause(ctx, b.idle); err != nil {
		return err
	}
	if err := realnode.SetMemory(b.NewSample(emptyNode, 0, b.pods), b.node.outside); err != nil {
		return err
	}
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	err = b.Each(ctx, b.pods, func(ctx context.Context, writer harness.Connection, i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("idle-%d", i)}, Spec: podSpec("stay")}
		_, err := writer.Kube.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return err
	}
	err = harness.Until(ctx, 100*time.Millisecond, func() error {
		pods, err := b.Observer.Kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		if err == nil && len(pods.Items) < b.pods {
			err = fmt.Errorf("%d of %d Pods run", len(pods.Items), b.pods)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := harness.Pause(ctx, b.idle); err != nil {
		return err
	}
	return errors.Join(realnode.SetMemory(b.NewSample(fullNode, 0, b.pods), b.node.outside), b.empty(ctx, namespace))
}
