package virtualmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// sweepPeriod is how often servers without an object are looked for.
	orphanInterval = time.Minute
	// sweepTimeout is how long one look may take.
	orphanTimeout = 30 * time.Second
)

// sweeper looks for servers whose object is gone: somebody has removed the finalizer, or
// etcd was restored from a backup. It runs where the leader is.
type orphanCollector struct {
	r     *Reconciler
	clock clock.WithTicker
}

// Start implements manager.Runnable.
func (s *orphanCollector) Start(ctx context.Context) error {
	ticker := s.clock.NewTicker(orphanInterval)
	defer ticker.Stop()
	for {
		s.r.collectOrphans(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// sweep deletes the servers of this cluster whose object is certainly gone. What cannot
// be known or done now is for the next time.
func (r *Reconciler) collectOrphans(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	logger := log.FromContext(ctx).WithName(Name)
	cluster, err := r.cluster(ctx)
	if err != nil {
		logger.Error(err, "Could not look for servers without an object")
		return
	}
	for _, driver := range r.drivers.openAll() {
		servers, err := driver.List(ctx)
		if err != nil {
			logger.Error(err, "Could not list servers", "driver", driver.Name())
			continue
		}
		var orphans []*backend.Server
		for i := range servers {
			gone, err := r.isOrphan(ctx, &servers[i], cluster)
			if err != nil {
				logger.Error(err, "Could not tell whether a server has an object", "driver", driver.Name(), "server", servers[i].ID)
			}
			if gone {
				orphans = append(orphans, &servers[i])
			}
		}
		if len(orphans) > 0 {
			if err := r.checkCluster(ctx, cluster); err != nil {
				logger.Error(err, "Could not tell whether servers have an object", "driver", driver.Name(), "servers", len(orphans))
				orphans = nil
			}
		}
		orphanServers.WithLabelValues(driver.Name()).Set(float64(len(orphans)))
		for _, orphan := range orphans {
			if err := r.deleteOrphan(ctx, driver, orphan); err != nil {
				logger.Error(err, "Could not delete a server without an object", "driver", driver.Name(), "server", orphan.ID)
			}
		}
	}
}

// isOrphan reports whether this API has no object for a server. The cache can only say
// that there is one; that there is none, the API server has to say. An API that does not
// serve VirtualMachines says nothing: to list them fails, where to get one would end as
// it does when there is none. What the answer is worth, checkCluster tells.
func (r *Reconciler) isOrphan(ctx context.Context, server *backend.Server, cluster types.UID) (bool, error) {
	if server.Cluster != cluster || server.UID == "" || server.Task == backend.TaskDelete {
		return false, nil
	}
	key := client.ObjectKey{Namespace: server.Namespace, Name: server.Name}
	var vm v1alpha1.VirtualMachine
	switch err := r.client.Get(ctx, key, &vm); {
	case err == nil && vm.UID == server.UID:
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("get VirtualMachine %s: %w", key, err)
	}
	var vms v1alpha1.VirtualMachineList
	named := client.MatchingFields{"metadata.name": key.Name}
	if err := r.live.List(ctx, &vms, client.InNamespace(key.Namespace), named); err != nil {
		return false, fmt.Errorf("list VirtualMachine %s: %w", key, err)
	}
	return !slices.ContainsFunc(vms.Items, func(vm v1alpha1.VirtualMachine) bool { return vm.UID == server.UID }), nil
}

// checkCluster fails unless the API is still that of cluster: another may have come to be
// at the same address. It is asked after what depends on it.
func (r *Reconciler) checkCluster(ctx context.Context, cluster types.UID) error {
	now, err := kube.ClusterUID(ctx, r.live)
	if err != nil {
		return err
	}
	if now != cluster {
		return fmt.Errorf("another cluster is at this address: kube-system has the UID %s, and had %s; nothing is deleted, restart the manager to work for the new one",
			now, cluster)
	}
	return nil
}

// deleteOrphan deletes a server but its disk, and says so where its object was. Nobody has asked for the deletion of the disk: the
// object may have been lost with a restored backup of etcd, and what diskPolicy it had is lost with it.
func (r *Reconciler) deleteOrphan(ctx context.Context, driver Driver, server *backend.Server) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	about := &v1alpha1.VirtualMachine{}
	about.Namespace, about.Name, about.UID = server.Namespace, server.Name, server.UID
	note := fmt.Sprintf("The server %s of driver %s had no VirtualMachine any more and is deleted; its disk is kept", server.ID, driver.Name())
	log.FromContext(ctx).WithName(Name).Info("Deleting a server whose VirtualMachine is gone", "driver", driver.Name(),
		"server", server.ID, "VirtualMachine", client.ObjectKeyFromObject(about))
	r.events.Warning(about, v1alpha1.ReasonOrphanDeleted, "DeleteServer", note)
	err := driver.Delete(ctx, server.Identity, backend.DeleteOptions{KeepDisk: true})
	if isInProgress(err) {
		return nil
	}
	return err
}
