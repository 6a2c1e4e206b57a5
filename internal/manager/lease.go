package manager

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

// addLeaderElection makes options take part in the election, if it is enabled.
// controller-runtime would build the lock itself, but always with an identity of its
// own. It returns the cfg for everything else, which writes only while this replica is the
// leader, and the fence, which is nil without an election.
//
// If there is a Lease of that name in the namespace former, where earlier versions have theirs, it is held, too.
func addLeaderElection(options *ctrl.Options, cfg *rest.Config, election LeaderElection, former string) (*rest.Config, *fence, error) {
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
	lease := newLeaseLock(client, election, election.LockNamespace)
	if former != "" {
		lease = &twoLeases{Interface: lease, former: newLeaseLock(client, election, former)}
	}
	options.LeaderElectionResourceLockInterface = fence.lock(lease)
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration = &election.LeaseDuration
	// The elector counts this deadline from its first attempt, which is a retry period after the last renewal. It takes no
	// shorter one than 1.2 retry periods.
	options.RenewDeadline = ptr.To(max(election.RenewDeadline-election.RetryPeriod, election.RetryPeriod*5/4))
	options.RetryPeriod = &election.RetryPeriod
	return guarded, fence, nil
}

func newLeaseLock(client coordinationv1client.LeasesGetter, election LeaderElection, namespace string) resourcelock.Interface {
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: election.LockName},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: election.Identity},
	}
}

// twoLeases is a lock that is held by whoever holds its own Lease and the one of earlier versions, as long as that exists:
// so a manager of an earlier version and this one never lead at the same time. It never creates the former Lease. When that
// is deleted, its own Lease is enough.
//
// It is for the one goroutine of the elector.
type twoLeases struct {
	resourcelock.Interface
	former resourcelock.Interface
	// hasFormer says that the former Lease exists, isFirst that it exists alone.
	hasFormer, isFirst bool
}

// Get implements resourcelock.Interface. Of two Leases it returns the one that another replica holds, the former first. The
// raw record is of both, so that for the elector a holder is silent only if neither changes.
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

// Update implements resourcelock.Interface. The former Lease is first, also when both are released: a replica that ends
// between the two writes leaves its own Lease held, until it expires.
func (l *twoLeases) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.hasFormer {
		if err := l.former.Update(ctx, record); err != nil {
			return err // if it was deleted, the elector looks again
		}
	}
	if l.isFirst {
		err := l.Create(ctx, record)
		l.isFirst = err != nil
		return err
	}
	return l.Interface.Update(ctx, record)
}
