package virtualmachine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// orphanInterval is the interval of collections of servers without a VirtualMachine.
	orphanInterval = time.Minute
	// orphanTimeout limits one collection.
	orphanTimeout = 30 * time.Second
)

// collectOrphans deletes the servers of this cluster whose VirtualMachine is certainly gone, because a user removed the finalizer or
// etcd was restored from a backup. Errors are logged; the next collection retries.
func (r *Reconciler) collectOrphans(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, orphanTimeout)
	defer cancel()
	logger := log.FromContext(ctx).WithName(Name)
	cluster, err := r.cluster.UID(ctx)
	if err != nil {
		logger.Error(err, "Could not collect orphaned machines")
		return
	}
	for _, driver := range r.drivers.openAll() {
		servers, err := driver.List(ctx)
		if err != nil {
			logger.Error(err, "Could not list machines", "driver", driver.Name())
			continue
		}
		var orphans []*backend.Server
		for i := range servers {
			gone, err := r.isOrphan(ctx, &servers[i], cluster)
			if err != nil {
				logger.Error(err, "Could not check whether a machine is orphaned", "driver", driver.Name(), "server", servers[i].ID)
			}
			if gone {
				orphans = append(orphans, &servers[i])
			}
		}
		if len(orphans) > 0 {
			if err := r.checkCluster(ctx, cluster); err != nil {
				logger.Error(err, "Could not confirm that machines are orphaned", "driver", driver.Name(), "servers", len(orphans))
				orphans = nil
			}
		}
		orphanServers.WithLabelValues(driver.Name()).Set(float64(len(orphans)))
		for _, orphan := range orphans {
			if err := r.deleteOrphan(ctx, driver, orphan); err != nil {
				logger.Error(err, "Could not delete an orphaned machine", "driver", driver.Name(), "server", orphan.ID)
			}
		}
	}
}

// isOrphan reports whether a server has no VirtualMachine. The cache can only prove that there
// is one; its absence is confirmed with the API server. It lists rather than gets, because a
// get from an API server that does not serve VirtualMachines also returns NotFound, while a
// list fails. The caller has to confirm with checkCluster that it is still the same cluster.
func (r *Reconciler) isOrphan(ctx context.Context, server *backend.Server, cluster types.UID) (bool, error) {
	if server.Cluster != cluster || server.UID == "" || server.Task == backend.TaskDelete {
		return false, nil
	}
	key := client.ObjectKey{Namespace: server.Namespace, Name: server.Name}
	var vm v1alpha1.VirtualMachine
	switch err := r.Client.Get(ctx, key, &vm); {
	case err == nil && vm.UID == server.UID:
		return false, nil
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("get VirtualMachine %s: %w", key, err)
	}
	var vms v1alpha1.VirtualMachineList
	named := client.MatchingFields{"metadata.name": key.Name}
	if err := r.Live.List(ctx, &vms, client.InNamespace(key.Namespace), named); err != nil {
		return false, fmt.Errorf("list VirtualMachine %s: %w", key, err)
	}
	return !slices.ContainsFunc(vms.Items, func(vm v1alpha1.VirtualMachine) bool { return vm.UID == server.UID }), nil
}

// checkCluster fails unless the API server still belongs to cluster: another cluster may use
// the same address now. Callers call it after the reads that depend on it.
func (r *Reconciler) checkCluster(ctx context.Context, cluster types.UID) error {
	now, err := kube.ClusterUID(ctx, r.Live)
	if err != nil {
		return err
	}
	if now != cluster {
		return fmt.Errorf("another cluster uses this address: the UID of kube-system is %s, it was %s; nothing is deleted. Restart the manager to serve the new cluster",
			now, cluster)
	}
	return nil
}

// deleteOrphan deletes a server except its disks, and records an event for its VirtualMachine. It keeps the disks because nobody
// requested their deletion: the object, and with it its diskPolicy, may have been lost when a backup of etcd was restored.
func (r *Reconciler) deleteOrphan(ctx context.Context, driver Driver, server *backend.Server) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	about := &v1alpha1.VirtualMachine{}
	about.Namespace, about.Name, about.UID = server.Namespace, server.Name, server.UID
	note := fmt.Sprintf("Deleting the machine %s of driver %s, because its VirtualMachine is gone; its disks are kept", server.ID, driver.Name())
	log.FromContext(ctx).WithName(Name).Info("Deleting an orphaned machine", "driver", driver.Name(),
		"server", server.ID, "VirtualMachine", client.ObjectKeyFromObject(about))
	r.Events.Warning(about, v1alpha1.ReasonOrphanDeleted, "DeleteServer", note)
	err := called(ctx, driver, "Driver.Delete", "delete", func(ctx context.Context) error {
		return driver.Delete(ctx, server.Identity, backend.DeleteOptions{KeepDisk: true, KeepAll: true})
	})
	if isInProgress(err) {
		return nil
	}
	return err
}
