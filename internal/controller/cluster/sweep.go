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
	// sweepPeriod is the interval between two sweeps.
	sweepPeriod = time.Minute
	// sweepTimeout limits the search for orphans.
	sweepTimeout = 30 * time.Second
	// stopTimeout limits the graceful stop of a cluster.
	stopTimeout = time.Minute
)

// Sweep stops the orphans on this host and keeps their data: the clusters whose Cluster no longer exists, because its finalizer was
// removed by hand, or etcd was restored from a backup. It also stops probing clusters without a Cluster, on any host. Errors
// are logged, and the next sweep retries.
func (r *Reconciler) Sweep(ctx context.Context) {
	logger := log.FromContext(ctx).WithName(Name)
	for name, engine := range r.Engines {
		orphans := orphanStopperOf(engine)
		if orphans == nil {
			continue
		}
		found, err := r.findOrphans(ctx, orphans)
		if err != nil {
			logger.Error(err, "Could not list clusters without a Cluster", "engine", name)
			continue
		}
		r.metrics.orphans.WithLabelValues(string(name)).Set(float64(len(found)))
		for _, orphan := range found {
			if err := r.stopOrphan(ctx, orphans, orphan); err != nil {
				logger.Error(err, "Failed to stop an orphaned cluster", "Cluster", orphan.Name, "directory", orphan.Dir)
			}
		}
	}
	if err := r.forgetLost(ctx); err != nil {
		logger.Error(err, "Could not list the probed clusters without a Cluster")
	}
}

// forgetLost stops probing clusters without a Cluster. It lists the targets first: each of them was in the cache, so a Cluster that
// is not in the cache now was deleted.
func (r *Reconciler) forgetLost(ctx context.Context) error {
	probed := r.Prober.Targets()
	if len(probed) == 0 {
		return nil
	}
	var clusters v1alpha1.ClusterList
	if err := r.Client.List(ctx, &clusters); err != nil {
		return fmt.Errorf("list Clusters: %w", err)
	}
	names := map[string]bool{}
	for i := range clusters.Items {
		delete(probed, clusters.Items[i].UID)
		names[clusters.Items[i].Name] = true
	}
	for uid, name := range probed {
		r.Prober.Forget(uid)
		if !names[name] { // a new Cluster with the same name has the same metrics
			r.metrics.forget(name)
		}
	}
	return nil
}

// findOrphans returns the running clusters whose Cluster does not exist. A Cluster that is in the cache exists; that one does not
// exist is only certain from the API server. findOrphans uses a list and not a get, because a get also returns NotFound from an
// API that does not serve Clusters.
func (r *Reconciler) findOrphans(ctx context.Context, orphans OrphanStopper) ([]HostedCluster, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	hosted, err := orphans.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, reader := range []client.Reader{r.Client, r.Live} {
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

// lost returns the hosted clusters without a Cluster. It compares UIDs, because a name can be reused.
func lost(hosted []HostedCluster, clusters []v1alpha1.Cluster) []HostedCluster {
	known := map[types.UID]bool{}
	for i := range clusters {
		known[clusters[i].UID] = true
	}
	return slices.DeleteFunc(slices.Clone(hosted), func(r HostedCluster) bool { return known[r.UID] })
}

// ownedByThisCluster returns the clusters that were created for this API. Another manager may have created others in the same
// directory, for another API.
func ownedByThisCluster(hosted []HostedCluster, managementClusterUID types.UID) []HostedCluster {
	return slices.DeleteFunc(slices.Clone(hosted), func(r HostedCluster) bool {
		return r.ManagementClusterUID == "" || r.ManagementClusterUID != managementClusterUID
	})
}

// stopOrphan stops a cluster and records an event. It keeps the data, because the Cluster may be restored from a backup of etcd.
func (r *Reconciler) stopOrphan(ctx context.Context, orphans OrphanStopper, orphan HostedCluster) error {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	log.FromContext(ctx).WithName(Name).Info("Stopping an orphaned cluster",
		"Cluster", orphan.Name, "UID", orphan.UID, "directory", orphan.Dir)
	if err := orphans.StopOrphan(ctx, orphan.UID); err != nil {
		return err
	}
	about := &v1alpha1.Cluster{}
	about.Name, about.UID = orphan.Name, orphan.UID
	r.Events.Warning(about, v1alpha1.ReasonOrphanStopped, "Stop", fmt.Sprintf("The Cluster with the UID %s no longer exists, so its cluster is stopped. "+
		"Its data is kept in %s. It starts again if the Cluster is restored from a backup of etcd; if you no longer need it, remove the directory",
		orphan.UID, orphan.Dir))
	return nil
}

// managementClusterUID returns the identity of the API. It is not cached: another API may replace it at the same address.
func (r *Reconciler) managementClusterUID(ctx context.Context) (types.UID, error) {
	return kube.ClusterUID(ctx, r.Live)
}
