package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// sweepPeriod is how often clusters without an object are looked for.
	sweepPeriod = time.Minute
	// sweepTimeout is how long one look may take.
	sweepTimeout = 30 * time.Second
	// stopTimeout is how long a cluster may take to end politely.
	stopTimeout = time.Minute
)

// sweeper looks for clusters whose object is gone: somebody has removed the finalizer, or etcd was restored from a
// backup. It runs where the leader is.
type sweeper struct{ *Reconciler }

// Start implements manager.Runnable.
func (s *sweeper) Start(ctx context.Context) error {
	ticker := s.Clock.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for {
		s.Sweep(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// Sweep stops the clusters on this host whose object is certainly gone, and keeps their data. Clusters without an object
// are not asked how they are any more, wherever they run. What cannot be known or done now is for the next time.
func (r *Reconciler) Sweep(ctx context.Context) {
	logger := log.FromContext(ctx).WithName(Name)
	for name, engine := range r.Engines {
		orphans := orphanStopperOf(engine)
		if orphans == nil {
			continue
		}
		found, err := r.findOrphans(ctx, orphans)
		if err != nil {
			logger.Error(err, "Could not look for clusters without an object", "engine", name)
			continue
		}
		r.metrics.orphans.WithLabelValues(string(name)).Set(float64(len(found)))
		for _, orphan := range found {
			if err := r.stopOrphan(ctx, orphans, orphan); err != nil {
				logger.Error(err, "Could not stop a cluster without an object", "Cluster", orphan.Name, "directory", orphan.Dir)
			}
		}
	}
	if err := r.forgetLost(ctx); err != nil {
		logger.Error(err, "Could not look which clusters are asked without an object")
	}
}

// forgetLost stops asking the clusters that have no object. Those that are asked are looked up first: each of them was in
// the cache before, and so is gone if it is not there now.
func (r *Reconciler) forgetLost(ctx context.Context) error {
	asked := r.Prober.Targets()
	if len(asked) == 0 {
		return nil
	}
	var clusters v1alpha1.ClusterList
	if err := r.client.List(ctx, &clusters); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	names := map[string]bool{}
	for i := range clusters.Items {
		delete(asked, clusters.Items[i].UID)
		names[clusters.Items[i].Name] = true
	}
	for uid, name := range asked {
		r.Prober.Forget(uid)
		if !names[name] { // another of its name has the same metrics
			r.metrics.forget(name)
		}
	}
	return nil
}

// findOrphans returns the clusters that run although their object is certainly gone. The cache can only say that it is
// there; that it is not, the API server has to say. An API that does not serve Clusters says nothing: to list them fails,
// where to get one would end as it does when there is none.
func (r *Reconciler) findOrphans(ctx context.Context, orphans OrphanStopper) ([]HostedCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	hosted, err := orphans.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, reader := range []client.Reader{r.client, r.live} {
		if len(hosted) == 0 {
			return nil, nil
		}
		var clusters v1alpha1.ClusterList
		if err := reader.List(ctx, &clusters); err != nil {
			return nil, fmt.Errorf("list Clusters: %w", err)
		}
		hosted = lost(hosted, clusters.Items)
	}
	if len(hosted) == 0 {
		return nil, nil
	}
	managementClusterUID, err := r.managementClusterUID(ctx)
	if err != nil {
		return nil, err
	}
	return ownedByThisCluster(hosted, managementClusterUID), nil
}

// lost returns those of which there is no object. A name can come back, a UID only with its object.
func lost(hosted []HostedCluster, clusters []v1alpha1.Cluster) []HostedCluster {
	known := map[types.UID]bool{}
	for i := range clusters {
		known[clusters[i].UID] = true
	}
	return slices.DeleteFunc(slices.Clone(hosted), func(r HostedCluster) bool { return known[r.UID] })
}

// ownedByThisCluster returns those that were made for the API of that managementClusterUID: of others, which another manager may have made in the
// same directory, this API knows nothing.
func ownedByThisCluster(hosted []HostedCluster, managementClusterUID types.UID) []HostedCluster {
	return slices.DeleteFunc(slices.Clone(hosted), func(r HostedCluster) bool {
		return r.ManagementClusterUID == "" || r.ManagementClusterUID != managementClusterUID
	})
}

// stopOrphan stops a cluster, and says so where its object was. Nobody has asked for the deletion of its data: the object
// may come back with another backup of etcd.
func (r *Reconciler) stopOrphan(ctx context.Context, orphans OrphanStopper, orphan HostedCluster) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	log.FromContext(ctx).WithName(Name).Info("Stopping a cluster whose Cluster is gone",
		"Cluster", orphan.Name, "UID", orphan.UID, "directory", orphan.Dir)
	if err := orphans.Stop(ctx, orphan.UID); err != nil {
		return err
	}
	about := &v1alpha1.Cluster{}
	about.Name, about.UID = orphan.Name, orphan.UID
	r.events.Warning(about, v1alpha1.ReasonOrphanStopped, "Stop", fmt.Sprintf("The cluster had no Cluster with the UID %s any more and is stopped; "+
		"its data is kept in %s. It starts again when that Cluster is restored from a backup of etcd; if it is not wanted any more, remove the directory",
		orphan.UID, orphan.Dir))
	return nil
}

// managementClusterUID returns what stands for the API. It is not remembered: another API may come to be at the same address.
func (r *Reconciler) managementClusterUID(ctx context.Context) (types.UID, error) {
	return kube.ClusterUID(ctx, r.live)
}
