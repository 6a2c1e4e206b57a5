package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

// clusters are Clusters of a manager.
type clusters struct {
	host     *harness.Cluster // where they are objects
	stateDir string
	spec     v1alpha1.ClusterSpec

	observer *harness.Observer
	dirs     []string // their data directories
}

// The stages of a Cluster.
const (
	ready = "ready"
	gone  = "gone"
)

func stage(event watch.EventType, object metav1.Object) string {
	switch {
	case event == watch.Deleted:
		return gone
	case apimeta.IsStatusConditionTrue(object.(*v1alpha1.Cluster).Status.Conditions, v1alpha1.ConditionReady):
		return ready
	}
	return ""
}

// create creates Clusters, sets the figure "ready" when an observer has seen all ready, and returns their UIDs.
func (c *clusters) create(ctx context.Context, s *harness.Sample) (uids []types.UID, err error) {
	if c.observer, err = harness.Observe(ctx, c.host.Observer.Keelson.ClusterprovisionerV1alpha1().Clusters(), stage); err != nil {
		return nil, err
	}
	uids = make([]types.UID, s.Size)
	began := time.Now()
	err = c.host.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		created, err := writer.Keelson.ClusterprovisionerV1alpha1().Clusters().Create(ctx,
			&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: objectName(i)}, Spec: c.spec}, metav1.CreateOptions{})
		if err == nil {
			uids[i] = created.UID
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	seen, err := c.observer.Await(ctx, ready, s.Size)
	if err != nil {
		return nil, err
	}
	s.SetSeen("ready", began, seen)
	return uids, nil
}

// start waits until an observer has seen all Clusters ready, and checks that they are.
func (c *clusters) start(ctx context.Context, s *harness.Sample) error {
	uids, err := c.create(ctx, s)
	if err != nil {
		return err
	}
	c.dirs = nil
	for _, uid := range uids {
		c.dirs = append(c.dirs, filepath.Join(manager.ClusterDir(c.stateDir), string(uid)))
	}
	// The nodes come up meanwhile, so that there is something to delete.
	for _, dir := range c.dirs {
		config, configErr := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
		if configErr != nil {
			return configErr
		}
		err = errors.Join(err, check(ctx, config))
	}
	return err
}

// check asks a Cluster that is said to be ready.
func check(ctx context.Context, config *rest.Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 5*time.Second, errors.New("a Cluster was said to be ready, and is not"))
	defer cancel()
	return awaitReady(ctx, config)
}

// pids returns the components and their shims.
func (c *clusters) pids(ctx context.Context) (pids []int, err error) {
	err = harness.Until(ctx, harness.PollInterval, func() error {
		pids = nil
		for _, dir := range c.dirs {
			statuses, err := process.Peek(controlplane.Processes(dir))
			if err != nil {
				return err
			}
			for _, s := range statuses {
				if s.State != process.Running || s.PID == 0 { // a shim that starts one does not know its id at once
					return fmt.Errorf("%s does not run yet in %s", s.ID, dir)
				}
				shim, err := harness.Parent(s.PID)
				if err != nil {
					return err
				}
				pids = append(pids, s.PID, shim)
			}
		}
		if want := 2 * len(c.dirs) * (2 + len(others)); len(pids) < want {
			return fmt.Errorf("there are %d processes of components and shims, want %d", len(pids), want)
		}
		return nil
	})
	return pids, err
}

// stop waits until the Clusters are gone, when nothing may be left of them.
func (c *clusters) stop(ctx context.Context, s *harness.Sample) error {
	if c.observer == nil {
		return nil
	}
	err := c.remove(ctx, s)
	for _, dir := range c.dirs {
		if err == nil && controlplane.Remains(dir) {
			err = fmt.Errorf("the Clusters are gone, and processes or files are left of %s", dir)
		}
	}
	return err
}

// remove deletes the Clusters and sets the figure "gone".
func (c *clusters) remove(ctx context.Context, s *harness.Sample) error {
	defer c.observer.Stop()
	began := time.Now()
	if err := harness.DeleteAll(ctx, c.host.Writers[0].Keelson.ClusterprovisionerV1alpha1().Clusters()); err != nil {
		return err
	}
	seen, err := c.observer.Await(ctx, gone, s.Size)
	s.SetSeen("gone", began, seen)
	return err
}

// kill ends what an error has left of Clusters, which outlive their manager.
func (c *clusters) kill() error {
	atOnce, cancel := context.WithCancel(context.Background())
	cancel() // kills without waiting for a graceful end
	_, err := local.StopAll(atOnce, manager.ClusterDir(c.stateDir))
	return err
}
