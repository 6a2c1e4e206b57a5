package manager

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
// +kubebuilder:rbac:namespace=keelson-system,groups=coordination.k8s.io,resources=leases,resourceNames=keelson,verbs=get;update;watch

// addLeaderElection makes options take part in the election, if it is enabled.
// controller-runtime would build the lock itself, but always with an identity of its
// own. It returns the cfg for everything else, which writes only while this replica is the
// leader, and the lock, which is nil without an election.
func addLeaderElection(options *ctrl.Options, cfg *rest.Config, election LeaderElection) (*rest.Config, *pacedLock, error) {
	if !*election.Enabled {
		return cfg, nil, nil
	}
	fence := newFence(election)
	guarded := fence.guard(cfg)
	cfg = rest.CopyConfig(cfg)
	// One request that hangs must not cost the lease: there has to be time for
	// another.
	cfg.Timeout = max(election.RenewDeadline/2, time.Second)
	client, err := coordinationv1client.NewForConfig(cfg)
	if err != nil {
		return nil, nil, fmt.Errorf("build the client for leader election: %w", err)
	}
	options.LeaderElection = true
	options.LeaderElectionID = election.LockName
	lock := newPacedLock(fence.lock(&resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: election.LockNamespace, Name: election.LockName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: election.Identity},
	}), client.Leases(election.LockNamespace), election.LockName, election.RetryPeriod)
	options.LeaderElectionResourceLockInterface = lock
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration = &election.LeaseDuration
	options.RenewDeadline = &election.RenewDeadline
	options.RetryPeriod = ptr.To(min(electorPeriod, election.RetryPeriod))
	return guarded, lock, nil
}
