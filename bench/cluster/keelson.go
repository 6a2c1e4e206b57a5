package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/bench/cluster/floor"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
	"github.com/keelson-dev/keelson/internal/process"
)

func (b *bench) stateDir() string { return filepath.Join(b.base, "state") }

// startManager starts the manager as a user would.
func (b *bench) startManager(ctx context.Context) (err error) {
	b.manager, err = b.host.StartManager(ctx, b.Binary, "cluster,kubeconfig", "--state-dir="+b.stateDir(), fmt.Sprintf("--cluster-real-nodes=%t", b.real > 0))
	return err
}

// endAll ends what an error has left of clusters.
func (b *bench) endAll(ctx context.Context) error {
	atOnce, cancel := context.WithCancel(ctx)
	cancel() // kills without waiting for a graceful end
	_, err := local.StopAll(atOnce, manager.ClusterDir(b.stateDir()))
	if b.peer != nil {
		err = errors.Join(err, b.peer.endAll())
	}
	return err
}

// group are Clusters that were created at once.
type group struct {
	observer *harness.Observer
	dirs     []string // their data directories
}

// The stages of a Cluster.
const (
	ready    = "ready"
	notReady = "not ready" // after it was ready
	gone     = "gone"
)

// create creates Clusters at once and waits until an observer has seen all of them ready. They are removed by remove.
func (b *bench) create(ctx context.Context, s *harness.Sample) (*group, error) {
	w, err := harness.Watch(ctx, b.host.Observer.Keelson.ClusterprovisionerV1alpha1().Clusters())
	if err != nil {
		return nil, err
	}
	wasReady := map[string]bool{}
	o := harness.Observe(func(event watch.EventType, object metav1.Object) ([]string, error) {
		c := object.(*v1alpha1.Cluster)
		switch {
		case event == watch.Deleted:
			return []string{gone}, nil
		case apimeta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady):
			wasReady[c.Name] = true
			return []string{ready}, nil
		case wasReady[c.Name] && c.DeletionTimestamp.IsZero():
			b.Say("Cluster %s is not ready any more: %+v", c.Name, apimeta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionReady))
			return []string{notReady}, nil
		}
		return nil, nil
	}, w)
	g := &group{observer: o, dirs: make([]string, s.Size)}
	err = b.manager.During(ctx, func(ctx context.Context) error {
		began := time.Now()
		err := b.host.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
			created, err := writer.Keelson.ClusterprovisionerV1alpha1().Clusters().Create(ctx,
				&v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%d", i)}}, metav1.CreateOptions{})
			if err == nil {
				g.dirs[i] = filepath.Join(manager.ClusterDir(b.stateDir()), string(created.UID))
			}
			return err
		})
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		seen, err := o.Await(ctx, ready, s.Size)
		s.SetSeen("ready", began, seen)
		return err
	})
	if err != nil {
		o.Stop()
		return nil, err
	}
	return g, nil
}

// remove deletes Clusters at once and waits until they are gone, when nothing may be left of them.
func (b *bench) remove(ctx context.Context, s *harness.Sample, g *group) error {
	defer g.observer.Stop()
	return b.manager.During(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		began := time.Now()
		err := harness.DeleteAll(ctx, b.host.Writers[0].Keelson.ClusterprovisionerV1alpha1().Clusters())
		if err != nil {
			return err
		}
		seen, err := g.observer.Await(ctx, gone, s.Size)
		s.SetSeen("gone", began, seen)
		for _, dir := range g.dirs {
			if err == nil && controlplane.Remains(dir) {
				err = fmt.Errorf("the Clusters are gone, and processes or files are left of %s", dir)
			}
		}
		return err
	})
}

// runKeelson measures Clusters from nothing to nothing.
func (b *bench) runKeelson(ctx context.Context, s *harness.Sample) error {
	g, err := b.create(ctx, s)
	if err != nil {
		return err
	}
	for _, dir := range g.dirs {
		// The nodes come up meanwhile, so that there is something to delete.
		err = errors.Join(err, check(ctx, dir))
	}
	return errors.Join(err, b.remove(ctx, s, g))
}

// check asks a Cluster that is said to be ready.
func check(ctx context.Context, dir string) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return err
	}
	began := time.Now()
	err = floor.AwaitReady(ctx, config)
	if took := time.Since(began); took > time.Second {
		return fmt.Errorf("the Cluster was said to be ready %s before %s was: %w", took, config.Host, err)
	}
	return err
}

// makeModel makes the script from a cluster of ours.
func (b *bench) makeModel(ctx context.Context) error {
	s := &harness.Sample{Size: 1}
	g, err := b.createAll(ctx, s)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(g.dirs[0], "kubeconfig"))
	if err != nil {
		return err
	}
	if b.model, err = floor.NewModel(g.dirs[0], config, filepath.Join(b.base, "model")); err != nil {
		return err
	}
	return b.remove(ctx, s, g)
}

// createAll creates Clusters and waits until all components run, including those that Ready does not wait for.
func (b *bench) createAll(ctx context.Context, s *harness.Sample) (*group, error) {
	g, err := b.create(ctx, s)
	if err != nil {
		return nil, err
	}
	return g, harness.Until(ctx, floor.PollInterval, func() error {
		for _, dir := range g.dirs {
			pids, err := components(dir)
			if err != nil {
				return err
			}
			if len(pids) < len(componentNames) {
				return fmt.Errorf("%d of %d components run in %s", len(pids), len(componentNames), dir)
			}
		}
		return nil
	})
}

// components returns the processes of the components that run in a directory.
func components(dir string) (map[string]int, error) {
	statuses, err := process.Peek(controlplane.Processes(dir))
	if err != nil {
		return nil, err
	}
	pids := map[string]int{}
	for _, s := range statuses {
		if s.State == process.Running && s.PID != 0 { // a shim that starts one does not know its id at once
			pids[s.ID] = s.PID
		}
	}
	return pids, nil
}

// measureMemory measures Clusters that have been left alone for a while.
func (b *bench) measureMemory(ctx context.Context, n int) error {
	b.Say("Memory of %d clusters, after %s", n, b.idle)
	s := b.NewSample(keelsonIdle, 0, n)
	g, err := b.createAll(ctx, s)
	if err != nil {
		return err
	}
	if err := harness.Pause(ctx, b.idle); err != nil {
		return err
	}
	for _, dir := range g.dirs {
		pids, err := components(dir)
		if err != nil {
			return err
		}
		all, shims := 0.0, 0.0
		for name, pid := range pids {
			memory, shim, err := harness.MemoryWithShim(pid)
			if err != nil {
				return err
			}
			s.Set(name, append(s.Figures[name], memory.PSS)...)
			shims += shim.PSS
			all += memory.PSS + shim.PSS
		}
		s.Set("shims", append(s.Figures["shims"], shims)...)
		s.Set("all", append(s.Figures["all"], all)...)
	}
	return b.remove(ctx, s, g)
}

// measureRestarts starts the manager again twice while clusters run.
func (b *bench) measureRestarts(ctx context.Context) error {
	b.Say("Two restarts of the manager with %d clusters, watched for %s each", b.restarts, b.watched)
	s := &harness.Sample{Size: b.restarts}
	g, err := b.createAll(ctx, s)
	if err != nil {
		return err
	}
	for _, way := range []string{afterTerm, afterKill} {
		if err := b.restart(ctx, b.NewSample(way, 0, b.restarts), g); err != nil {
			return err
		}
	}
	return b.remove(ctx, s, g)
}

func (b *bench) restart(ctx context.Context, s *harness.Sample, g *group) error {
	before, err := allComponents(g.dirs)
	if err != nil {
		return err
	}
	g.observer.Forget()
	end := b.manager.Stop
	if s.Contestant == afterKill {
		end = b.manager.Kill
	}
	if err := end(); err != nil {
		return err
	}
	began := time.Now()
	if err := b.startManager(ctx); err != nil {
		return err
	}
	return b.manager.During(ctx, func(ctx context.Context) error {
		err := harness.Until(ctx, floor.PollInterval, func() error {
			for _, dir := range g.dirs {
				holder, err := process.Holder(controlplane.Processes(dir))
				if err != nil || holder != b.manager.PID {
					return fmt.Errorf("%s is held by %d: %w", dir, holder, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		s.SetTimes("attached", time.Since(began))
		if err := harness.Until(ctx, floor.PollInterval, func() error { return b.checkProbed(ctx) }); err != nil {
			return err
		}
		s.SetTimes("probed", time.Since(began))
		if err := harness.Pause(ctx, b.watched); err != nil {
			return err
		}
		s.Set("not ready", float64(len(g.observer.Seen(notReady))))
		after, err := allComponents(g.dirs)
		maps.DeleteFunc(after, func(component string, pid int) bool { return before[component] == pid })
		s.Set("replaced", float64(len(after)))
		return err
	})
}

// checkProbed returns an error unless the manager has probed all clusters.
func (b *bench) checkProbed(ctx context.Context) error {
	metrics, err := b.manager.Metrics(ctx)
	if err != nil {
		return err
	}
	if probed := len(metrics.By("keelson_cluster_probe_seconds", "cluster")); probed < b.restarts {
		return fmt.Errorf("%d of %d clusters were probed", probed, b.restarts)
	}
	return nil
}

// allComponents returns the processes of the components in directories.
func allComponents(dirs []string) (map[string]int, error) {
	all := map[string]int{}
	for _, dir := range dirs {
		pids, err := components(dir)
		if err != nil {
			return nil, err
		}
		for name, pid := range pids {
			all[filepath.Join(dir, name)] = pid
		}
	}
	return all, nil
}
