// Package election adds leader election to a controller-runtime manager, and a fence that rejects writes of replicas that
// do not lead.
package election

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// +kubebuilder:rbac:namespace=keelson-system,groups=coordination.k8s.io,resources=leases,verbs=create
// +kubebuilder:rbac:namespace=keelson-system,groups=coordination.k8s.io,resources=leases,resourceNames=keelson,verbs=get;update

// Configure adds leader election to options, if it is enabled. It returns the config for all other clients, which can
// write only while this replica leads, and the fence. Without leader election it returns cfg and nil.
// controller-runtime could build the lock itself, but only with a generated identity.
func Configure(options *ctrl.Options, cfg *rest.Config, election Options) (*rest.Config, *Fence, error) {
	if !*election.Enabled {
		return cfg, nil, nil
	}
	fence := newFence(election)
	guarded := fence.wrapConfig(cfg)
	cfg = rest.CopyConfig(cfg)
	// If a request hangs, there must be time for another before the deadline.
	cfg.Timeout = max(election.RenewDeadline/2, time.Second)
	client, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("build the client for leader election: %w", err)
	}
	options.LeaderElection = true
	options.LeaderElectionID = election.LockName
	options.LeaderElectionResourceLockInterface = fence.wrapLock(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: election.LockNamespace, Name: election.LockName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: election.Identity},
	})
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration = &election.LeaseDuration
	// The elector counts this deadline from its first attempt, one retry period after the last renewal. It rejects
	// deadlines of up to 1.2 retry periods.
	options.RenewDeadline = ptr.To(max(election.RenewDeadline-election.RetryPeriod, election.RetryPeriod*5/4))
	options.RetryPeriod = &election.RetryPeriod
	return guarded, fence, nil
}
