// Package election adds leader election to a controller-runtime manager, and a fence that rejects writes of replicas that
// do not lead.
package election

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
//
// If former is not empty and a Lease with the same name exists in that namespace, where earlier versions keep theirs, the
// leader holds that Lease, too. controller-runtime could build the lock itself, but only with a generated identity.
func Configure(options *ctrl.Options, cfg *rest.Config, election Options, former string) (*rest.Config, *Fence, error) {
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
	lease := newLeaseLock(client, election, election.LockNamespace)
	if former != "" {
		lease = &twoLeases{Interface: lease, former: newLeaseLock(client, election, former)}
	}
	options.LeaderElectionResourceLockInterface = fence.wrapLock(lease)
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration = &election.LeaseDuration
	// The elector counts this deadline from its first attempt, one retry period after the last renewal. It rejects
	// deadlines of up to 1.2 retry periods.
	options.RenewDeadline = ptr.To(max(election.RenewDeadline-election.RetryPeriod, election.RetryPeriod*5/4))
	options.RetryPeriod = &election.RetryPeriod
	return guarded, fence, nil
}

func newLeaseLock(client coordinationv1client.LeasesGetter, election Options, namespace string) resourcelock.Interface {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: election.LockName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: election.Identity},
	}
}

// twoLeases is a lock that consists of its own Lease and, as long as it exists, the Lease of earlier versions, so that
// managers of earlier versions and this one never lead at the same time. It never creates the former Lease.
//
// It is not safe for concurrent use: only the goroutine of the elector uses it.
type twoLeases struct {
	resourcelock.Interface
	former resourcelock.Interface
	// hasFormer says that the former Lease exists, isFirst that it exists alone.
	hasFormer, isFirst bool
}

// Get implements resourcelock.Interface. If another replica holds one of the Leases, it returns that one, the former
// first. The raw record covers both, so that the elector sees a renewal of either.
func (l *twoLeases) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	former, formerRaw, err := l.former.Get(ctx)
	l.hasFormer, l.isFirst = err == nil, false
	if apierrors.IsNotFound(err) {
		return l.Interface.Get(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	own, raw, err := l.Interface.Get(ctx)
	if l.isFirst = apierrors.IsNotFound(err); l.isFirst {
		return former, formerRaw, nil
	}
	if err != nil {
		return nil, nil, err
	}
	raw = slices.Concat(formerRaw, raw)
	if former.HolderIdentity != "" && former.HolderIdentity != l.Identity() {
		return former, raw, nil
	}
	return own, raw, nil
}

// Update implements resourcelock.Interface. It writes the former Lease first, also for a release: if the replica is killed
// between the two writes, its own Lease stays held until it expires.
func (l *twoLeases) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.hasFormer {
		if err := l.former.Update(ctx, record); err != nil {
			return err // if it was deleted, the elector reads it again
		}
	}
	if l.isFirst {
		err := l.Create(ctx, record)
		l.isFirst = err != nil
		return err
	}
	return l.Interface.Update(ctx, record)
}
