package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/floor"
	"github.com/keelson-dev/keelson/bench/internal/program"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/manager"
)

// patience is how long anything may take that is waited for.
const patience = 3 * time.Minute

func (b *bench) stateDir() string { return filepath.Join(b.base, "state") }

// dir is the data directory of a cluster.
func (b *bench) dir(uid types.UID) string {
	return filepath.Join(manager.ClusterDir(b.stateDir()), string(uid))
}

// startManager starts the manager as a user would.
func (b *bench) startManager(ctx context.Context) (err error) {
	b.manager, err = program.StartManager(ctx, b.binary, b.host.Kubeconfig, filepath.Join(b.host.Dir, "manager.log"),
		"cluster,kubeconfig", "--state-dir="+b.stateDir())
	return err
}

func (b *bench) stopManager() error {
	if b.manager == nil {
		return nil
	}
	return b.manager.Stop()
}

// endAll ends what is left of all clusters, which is nothing unless something went wrong.
func (b *bench) endAll(ctx context.Context) error {
	atOnce, cancel := context.WithCancel(ctx)
	cancel() // does not wait for a polite end
	_, err := local.StopAll(atOnce, manager.ClusterDir(b.stateDir()))
	if b.peer != nil {
		err = errors.Join(err, b.peer.endAll())
	}
	return err
}

// observer sees what becomes of Clusters. It is not the client that creates them.
type observer struct {
	cancel context.CancelFunc
	watch  watch.Interface

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every event
	ready    map[string]time.Time
	gone     map[string]time.Time
	notReady []string // what was seen of Clusters that had been ready
	err      error
}

// observe begins to watch all Clusters, from now on.
func (b *bench) observe(ctx context.Context) (*observer, error) {
	clusters := b.host.Observer.Keelson.ClusterprovisionerV1alpha1().Clusters()
	list, err := clusters.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list Clusters: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	w, err := clusters.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("watch Clusters: %w", err)
	}
	o := &observer{cancel: cancel, watch: w, changed: make(chan struct{}), ready: map[string]time.Time{}, gone: map[string]time.Time{}}
	for _, c := range list.Items {
		if isReady(&c) {
			o.ready[c.Name] = time.Now()
		}
	}
	go o.run()
	return o, nil
}

func isReady(c *v1alpha1.Cluster) bool {
	return meta.IsStatusConditionTrue(c.Status.Conditions, v1alpha1.ConditionReady)
}

func (o *observer) run() {
	for event := range o.watch.ResultChan() {
		o.see(event, time.Now())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = errors.New("the watch of Clusters has ended")
	close(o.changed)
}

func (o *observer) see(event watch.Event, at time.Time) {
	cluster, ok := event.Object.(*v1alpha1.Cluster)
	if !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, wasReady := o.ready[cluster.Name]
	switch {
	case event.Type == watch.Deleted:
		o.gone[cluster.Name] = at
	case isReady(cluster) && !wasReady:
		o.ready[cluster.Name] = at
	case !isReady(cluster) && wasReady && cluster.DeletionTimestamp.IsZero():
		o.notReady = append(o.notReady, fmt.Sprintf("%s: %+v", cluster.Name, meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.ConditionReady)))
	default:
		return
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// await returns when all names are in seen, one of the maps of the observer.
func (o *observer) await(ctx context.Context, names []string, seen map[string]time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		o.mu.Lock()
		missing, changed, err := 0, o.changed, o.err
		for _, name := range names {
			if _, found := seen[name]; !found {
				missing++
			}
		}
		o.mu.Unlock()
		switch {
		case missing == 0:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d Clusters are still waited for: %w", missing, len(names), context.Cause(ctx))
		case <-changed:
		}
	}
}

// since returns how long after a moment each name was seen.
func (o *observer) since(began time.Time, names []string, seen map[string]time.Time) []time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []time.Duration
	for _, name := range names {
		all = append(all, seen[name].Sub(began))
	}
	return all
}

// create creates n Clusters at once and waits until the observer has seen all of them ready.
func (b *bench) create(ctx context.Context, o *observer, n int) (names []string, uids []types.UID, took []time.Duration, err error) {
	ctx, cancel := b.manager.During(ctx)
	defer cancel()
	uids = make([]types.UID, n)
	for i := range n {
		names = append(names, fmt.Sprintf("bench-%d", i))
	}
	began := time.Now()
	var group errgroup.Group
	for i, name := range names {
		group.Go(func() error {
			cluster := &v1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
			created, err := b.host.Writers[0].Keelson.ClusterprovisionerV1alpha1().Clusters().Create(ctx, cluster, metav1.CreateOptions{})
			if err == nil {
				uids[i] = created.UID
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, nil, err
	}
	if err := o.await(ctx, names, o.ready); err != nil {
		return nil, nil, nil, err
	}
	return names, uids, o.since(began, names, o.ready), nil
}

// remove deletes Clusters at once and waits until they are gone, when nothing may be left of them.
func (b *bench) remove(ctx context.Context, o *observer, names []string, uids []types.UID) ([]time.Duration, error) {
	ctx, cancel := b.manager.During(ctx)
	defer cancel()
	began := time.Now()
	var group errgroup.Group
	for _, name := range names {
		group.Go(func() error {
			return b.host.Writers[0].Keelson.ClusterprovisionerV1alpha1().Clusters().Delete(ctx, name, metav1.DeleteOptions{})
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if err := o.await(ctx, names, o.gone); err != nil {
		return nil, err
	}
	var left []string
	for _, uid := range uids {
		if controlplane.Remains(b.dir(uid)) {
			left = append(left, b.dir(uid))
		}
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("the Clusters are gone, and processes or files are left of %s", strings.Join(left, ", "))
	}
	return o.since(began, names, o.gone), nil
}

// runKeelson measures Clusters from nothing to nothing.
func (b *bench) runKeelson(ctx context.Context, s *sample) error {
	o, err := b.observe(ctx)
	if err != nil {
		return err
	}
	defer o.cancel()
	names, uids, took, err := b.create(ctx, o, s.Clusters)
	if err != nil {
		return err
	}
	s.Ready = took
	for _, uid := range uids {
		// Usable, as it says. The nodes come up meanwhile, so that there is something to delete.
		if err := b.check(ctx, uid); err != nil {
			return err
		}
	}
	s.Gone, err = b.remove(ctx, o, names, uids)
	return err
}

// check asks a cluster that is said to be ready, with the kubeconfig in its directory.
func (b *bench) check(ctx context.Context, uid types.UID) error {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir(uid), "kubeconfig"))
	if err != nil {
		return err
	}
	began := time.Now()
	if err := floor.AwaitReady(ctx, config); err != nil {
		return err
	}
	if took := time.Since(began); took > time.Second {
		return fmt.Errorf("the Cluster was said to be ready %s before %s was", took, config.Host)
	}
	return nil
}

// makeModel makes the script like a cluster of ours.
func (b *bench) makeModel(ctx context.Context) error {
	o, err := b.observe(ctx)
	if err != nil {
		return err
	}
	defer o.cancel()
	names, uids, _, err := b.create(ctx, o, 1)
	if err != nil {
		return err
	}
	if err := b.awaitComponents(ctx, uids); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(b.dir(uids[0]), "kubeconfig"))
	if err != nil {
		return err
	}
	// The certificates must outlive the cluster.
	if b.model, err = floor.NewModel(b.dir(uids[0]), config); err != nil {
		return err
	}
	if err := b.model.Keep(filepath.Join(b.base, "model")); err != nil {
		return err
	}
	_, err = b.remove(ctx, o, names, uids)
	return err
}

// awaitComponents waits until all components of clusters run, also those that nobody has to wait for.
func (b *bench) awaitComponents(ctx context.Context, uids []types.UID) error {
	return until(ctx, func() error {
		for _, uid := range uids {
			pids, err := components(b.dir(uid))
			if err != nil {
				return err
			}
			if len(pids) < componentCount {
				return fmt.Errorf("%d of %d components run in %s", len(pids), componentCount, b.dir(uid))
			}
		}
		return nil
	})
}

// until asks again and again until there is no error.
func until(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(floor.PollInterval)
	defer ticker.Stop()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}

// runFloor measures so many scripts at once, from the start of the first shell to /readyz of each.
func (b *bench) runFloor(ctx context.Context, s *sample) (err error) {
	dir := filepath.Join(b.base, "floor")
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	floors := make([]*floor.Floor, s.Clusters)
	for i := range floors {
		if floors[i], err = b.model.Prepare(filepath.Join(dir, fmt.Sprint(i)), floor.Script{All: true}); err != nil {
			return err
		}
	}
	defer func() {
		for _, f := range floors {
			err = errors.Join(err, f.Stop())
		}
	}()
	s.Ready = make([]time.Duration, s.Clusters)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i, f := range floors {
		if err := f.Start(); err != nil {
			return err
		}
		group.Go(func() error {
			err := f.AwaitReady(ctx)
			s.Ready[i] = time.Since(began)
			return err
		})
	}
	return group.Wait()
}
