package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/bench/internal/realnode"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/node"
)

// What one Cluster goes through, in this order.
const (
	firstStart  = "first start"
	snapshot    = "snapshot"
	fork        = "fork of it"
	stop        = "stop"
	startAgain  = "start again"
	restore     = "restore"
	firstAnswer = "first answer, idle"
	deletion    = "deletion"
	// With real nodes.
	nodesReady   = "nodes ready"
	podRuns      = "a Pod runs"
	nodesIdle    = "nodes, idle"
	realDeletion = "deletion with nodes"
)

// lifeObjects are the objects in the Cluster that is forked and restored.
const lifeObjects = 500

// podImage is what the Pod on a real node runs.
const podImage = "docker.io/library/bench-pause:v1"

// await makes a change, and returns when a watch has seen what it leads to: object is that of the event, or its last state, if it was
// deleted.
func await[L harness.List, O metav1.Object](ctx context.Context, objects harness.Objects[L], change func() error, reached func(object O, deleted bool) bool) (time.Duration, error) {
	w, err := harness.Watch(ctx, objects)
	if err != nil {
		return 0, err
	}
	o := harness.Observe(func(event watch.EventType, object metav1.Object) ([]string, error) {
		if one, ok := object.(O); ok && reached(one, event == watch.Deleted) {
			return []string{ready}, nil
		}
		return nil, nil
	}, w)
	defer o.Stop()
	ctx, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	began := time.Now()
	if err := change(); err != nil {
		return 0, err
	}
	seen, err := o.Await(ctx, ready, 1)
	for _, at := range seen {
		return at.Sub(began), nil
	}
	return 0, err
}

// cluster makes a change, and returns when the Cluster with this name has reached what it leads to.
func (b *bench) cluster(ctx context.Context, name string, change func() error, reached func(*v1alpha1.Cluster) bool) (time.Duration, error) {
	return await(ctx, b.host.Observer.Keelson.ClusterprovisionerV1alpha1().Clusters(), change, func(c *v1alpha1.Cluster, deleted bool) bool {
		return c.Name == name && !deleted && reached(c)
	})
}

func hasCondition(condition string) func(*v1alpha1.Cluster) bool {
	return func(c *v1alpha1.Cluster) bool { return apimeta.IsStatusConditionTrue(c.Status.Conditions, condition) }
}

// makeCluster creates a Cluster, and returns when it has a condition.
func (b *bench) makeCluster(ctx context.Context, name string, spec v1alpha1.ClusterSpec, condition string) (created *v1alpha1.Cluster, took time.Duration, err error) {
	took, err = b.cluster(ctx, name, func() (err error) {
		created, err = b.host.Writers[0].Keelson.ClusterprovisionerV1alpha1().Clusters().Create(ctx,
			&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
		return err
	}, hasCondition(condition))
	return created, took, err
}

// changeCluster merges a patch into the spec, and returns when that has led to something.
func (b *bench) changeCluster(ctx context.Context, name string, spec any, reached func(*v1alpha1.Cluster) bool) (time.Duration, error) {
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return 0, err
	}
	return b.cluster(ctx, name, func() error {
		_, err := b.host.Writers[0].Keelson.ClusterprovisionerV1alpha1().Clusters().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}, reached)
}

// deleteCluster deletes a Cluster, and returns when it is gone, and nothing is left of it.
func (b *bench) deleteCluster(ctx context.Context, c *v1alpha1.Cluster) (time.Duration, error) {
	clusters := b.host.Writers[0].Keelson.ClusterprovisionerV1alpha1().Clusters()
	took, err := await(ctx, clusters, func() error { return clusters.Delete(ctx, c.Name, metav1.DeleteOptions{}) },
		func(other *v1alpha1.Cluster, deleted bool) bool { return deleted && other.Name == c.Name })
	if err == nil && controlplane.Remains(b.dirOf(c)) {
		err = fmt.Errorf("the Cluster is gone, and processes or files are left of %s", b.dirOf(c))
	}
	return took, err
}

func (b *bench) dirOf(c *v1alpha1.Cluster) string {
	return filepath.Join(manager.ClusterDir(b.stateDir()), string(c.UID))
}

// ask calls do with a client of the API of a Cluster. No connection is left: one would be a client of a Cluster that becomes idle.
func (b *bench) ask(c *v1alpha1.Cluster, do func(kubernetes.Interface) error) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.dirOf(c), "kubeconfig"))
	if err != nil {
		return err
	}
	config.QPS = -1
	connections, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer connections.CloseIdleConnections()
	client, err := kubernetes.NewForConfigAndClient(config, connections)
	if err != nil {
		return err
	}
	return do(client)
}

// fill creates the objects of a Cluster that is forked and restored.
func (b *bench) fill(ctx context.Context, c *v1alpha1.Cluster) error {
	return b.ask(c, func(client kubernetes.Interface) error {
		for i := range lifeObjects {
			one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("one-%d", i)}, Data: map[string]string{"a": "b"}}
			if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, one, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// measureLife takes one Cluster through everything that can be done with it.
func (b *bench) measureLife(ctx context.Context, round int) error {
	record := func(what string, took time.Duration) { b.NewSample(what, round, 1).SetTimes("took", took) }
	api := b.host.Writers[0].Keelson.ClusterprovisionerV1alpha1()
	c, took, err := b.makeCluster(ctx, "life", v1alpha1.ClusterSpec{}, v1alpha1.ConditionReady)
	if err != nil {
		return err
	}
	record(firstStart, took)
	if err := b.fill(ctx, c); err != nil {
		return err
	}
	took, err = await(ctx, api.ClusterSnapshots(), func() error {
		_, err := api.ClusterSnapshots().Create(ctx, &v1alpha1.ClusterSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: "life"}, Spec: v1alpha1.ClusterSnapshotSpec{ClusterName: "life"},
		}, metav1.CreateOptions{})
		return err
	}, func(s *v1alpha1.ClusterSnapshot, _ bool) bool {
		return apimeta.IsStatusConditionTrue(s.Status.Conditions, v1alpha1.ConditionReady)
	})
	if err != nil {
		return err
	}
	record(snapshot, took)
	forked, took, err := b.makeCluster(ctx, "fork", v1alpha1.ClusterSpec{From: &v1alpha1.ClusterSource{Snapshot: "life"}}, v1alpha1.ConditionReady)
	if err != nil {
		return err
	}
	record(fork, took)
	if _, err := b.deleteCluster(ctx, forked); err != nil {
		return err
	}
	for _, step := range []struct {
		name    string
		spec    map[string]any
		reached func(*v1alpha1.Cluster) bool
	}{
		{stop, map[string]any{"running": false}, func(c *v1alpha1.Cluster) bool { return c.Status.Phase == v1alpha1.PhaseStopped }},
		{startAgain, map[string]any{"running": true}, hasCondition(v1alpha1.ConditionReady)},
		{restore, map[string]any{"restore": map[string]any{"snapshot": "life", "requestedAt": time.Now().UTC().Format(time.RFC3339), "keepCurrent": false}}, func(c *v1alpha1.Cluster) bool {
			return hasCondition(v1alpha1.ConditionRestored)(c) && hasCondition(v1alpha1.ConditionReady)(c)
		}},
	} {
		if took, err = b.changeCluster(ctx, "life", step.spec, step.reached); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		record(step.name, took)
	}
	if took, err = b.askIdle(ctx, c); err != nil {
		return fmt.Errorf("%s: %w", firstAnswer, err)
	}
	record(firstAnswer, took)
	took, err = b.deleteCluster(ctx, c)
	if err != nil {
		return err
	}
	record(deletion, took)
	_, err = await(ctx, api.ClusterSnapshots(), func() error { return api.ClusterSnapshots().Delete(ctx, "life", metav1.DeleteOptions{}) },
		func(_ *v1alpha1.ClusterSnapshot, deleted bool) bool { return deleted })
	return err
}

// askIdle waits until a Cluster is stopped because no client is connected, and measures a request until it is answered.
func (b *bench) askIdle(ctx context.Context, c *v1alpha1.Cluster) (took time.Duration, err error) {
	_, err = b.changeCluster(ctx, c.Name, map[string]any{"idle": map[string]any{"stopAfter": "1m"}},
		func(c *v1alpha1.Cluster) bool { return c.Status.Phase == v1alpha1.PhaseStopped })
	if err != nil {
		return 0, err
	}
	err = b.ask(c, func(client kubernetes.Interface) error {
		began := time.Now()
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		took = time.Since(began)
		return err
	})
	return took, err
}

// prepareRealNodes checks that this machine can run real nodes, and builds the program of the Pod, for `keelson image load`.
func (b *bench) prepareRealNodes(ctx context.Context, kube string) error {
	if missing := node.Look(filepath.Join(filepath.Dir(kube), "node")).Missing(); len(missing) > 0 {
		return fmt.Errorf("this machine cannot run real nodes (--real=0 leaves them out); missing: %s", strings.Join(missing, "; "))
	}
	folder := filepath.Join(b.base, "image")
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // of an image
		return err
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(folder, "started"),
		"github.com/keelson-dev/keelson/bench/node/started")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program of the Pod: %w: %s", err, output)
	}
	return nil
}

// measureRealNodes measures a Cluster with real nodes, until a Pod runs in it.
func (b *bench) measureRealNodes(ctx context.Context, round int) (err error) {
	c, took, err := b.makeCluster(ctx, "real", v1alpha1.ClusterSpec{Nodes: &v1alpha1.ClusterNodes{Real: ptr.To(int32(b.real))}}, v1alpha1.ConditionNodesReady)
	if err != nil {
		return err
	}
	b.NewSample(nodesReady, round, b.real).SetTimes("took", took)
	began := time.Now()
	load := exec.CommandContext(ctx, b.Binary, "image", "load", "--cluster", "real", "--data-dir", b.stateDir(), "--name", podImage, filepath.Join(b.base, "image"))
	if output, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("load the image: %w: %s", err, output)
	}
	err = b.ask(c, func(client kubernetes.Interface) error {
		pods := client.CoreV1().Pods(metav1.NamespaceDefault)
		_, err := await(ctx, pods, func() error {
			_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "started"}, Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "started", Image: podImage, Args: []string{"stay"}}},
			}}, metav1.CreateOptions{})
			return err
		}, func(p *corev1.Pod, _ bool) bool { return p.Status.Phase == corev1.PodRunning })
		return err
	})
	if err != nil {
		return errors.Join(err, fmt.Errorf("the Pod of the Cluster %s", c.Name))
	}
	b.NewSample(podRuns, round, b.real).SetTimes("took", took+time.Since(began))
	if round == b.lives-1 {
		if err := b.measureNodeMemory(ctx, c); err != nil {
			return err
		}
	}
	took, err = b.deleteCluster(ctx, c)
	b.NewSample(realDeletion, round, b.real).SetTimes("took", took)
	return err
}

// measureNodeMemory measures the real nodes of a Cluster that have been left alone for a while.
func (b *bench) measureNodeMemory(ctx context.Context, c *v1alpha1.Cluster) error {
	b.Say("Memory of %d real nodes, after %s", b.real, b.idle)
	if err := harness.Pause(ctx, b.idle); err != nil {
		return err
	}
	pids, err := components(b.dirOf(c))
	if err != nil {
		return err
	}
	s := b.NewSample(nodesIdle, 0, b.real)
	for name, pid := range pids {
		if name == "node" || strings.HasPrefix(name, "node-") {
			if err := realnode.SetMemory(s, pid); err != nil {
				return err
			}
		}
	}
	return nil
}

// reportLife reports what the steps of a Cluster's life took.
func (b *bench) reportLife() {
	if b.lives == 0 {
		return
	}
	took := func(what string, size int) harness.Spread {
		return harness.NewSpread(b.Samples.Of(what, size).Pool("took"))
	}
	b.Target("stopped cluster started again", "≤", againLimit, took(startAgain, 1).Median, " s", "")
	b.RatioTarget(fmt.Sprintf("fork with %d objects, in times of an empty cluster", lifeObjects), "≤", forkLimit, b.Samples.Ratios(fork, firstStart, 1, "took", harness.Last))
	steps, sizes := []string{firstStart, snapshot, fork, stop, startAgain, restore, firstAnswer, deletion}, map[string]int{}
	if b.real > 0 {
		b.Target(fmt.Sprintf("created to a Pod that runs, %d real nodes", b.real), "≤", podLimit, took(podRuns, b.real).Median, " s", "with its image loaded from a file")
		b.Target(fmt.Sprintf("%d real nodes deleted until nothing is left", b.real), "≤", realGone, took(realDeletion, b.real).Median, " s", "")
		b.Target(fmt.Sprintf("memory (PSS) a real node, %d of one cluster", b.real), "≤", nodeLimit, b.Samples.Of(nodesIdle, b.real).Median(realnode.Whole, harness.Last)/1e6, " MB", "the largest; without Pods")
		for _, step := range []string{nodesReady, podRuns, realDeletion} {
			steps, sizes[step] = append(steps, step), b.real
		}
	}
	b.Printf("\n## The life of a cluster\n\nThe fork, the restore and the second start have %d objects more than an empty cluster.\n", lifeObjects)
	var rows [][]string
	for _, step := range steps {
		is := took(step, max(1, sizes[step]))
		rows = append(rows, []string{step, harness.Seconds(is.Min), harness.Seconds(is.Median), harness.Seconds(is.Max)})
	}
	b.Table([]string{"", "least", "median", "most"}, rows)
}
