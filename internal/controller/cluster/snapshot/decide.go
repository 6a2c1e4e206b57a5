package snapshot

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// waitInterval is the interval of attempts while something else has to happen first. The controller watches Clusters, too, but not the
// processes of one.
const waitInterval = 15 * time.Second

// action is what a reconcile does.
type action string

const (
	// keep: the snapshot is taken.
	keep action = "keep"
	// released: the object is being deleted, and has no finalizer of this controller.
	released action = "released"
	// claim: the finalizer is added before there are files.
	claim action = "claim"
	// take: the snapshot is taken.
	take action = "take"
	// missing: the Cluster does not exist.
	missing action = "missing"
	// unsupported: the engine of the Cluster has no snapshots.
	unsupported action = "unsupported"
	// wait: the cluster does not run.
	wait action = "wait"
	// read: another controller reads the snapshot from the store.
	read action = "read"
	// lost: the snapshot was taken, and its files are gone. It is not taken again: that would be another one.
	lost action = "lost"
	// unreadable: the store has an error.
	unreadable action = "unreadable"
	// remove: the files and the finalizer are removed.
	remove action = "remove"
)

// plan is the result of decide.
type plan struct {
	now    time.Time
	action action
	// requeueAfter is when to reconcile again without an event; zero means never.
	requeueAfter time.Duration
}

// decide returns the next action for a snapshot. It is a pure function of the observed state.
func decide(s *v1alpha1.ClusterSnapshot, seen observation, now time.Time) plan {
	claimed := slices.Contains(s.Finalizers, v1alpha1.SnapshotFinalizer)
	p := plan{now: now}
	switch {
	case !s.DeletionTimestamp.IsZero() && !claimed:
		p.action = released
	case !s.DeletionTimestamp.IsZero():
		p.action = remove
	case seen.err != nil:
		p.action, p.requeueAfter = unreadable, waitInterval
	case !claimed:
		p.action = claim
	case seen.taken != nil:
		p.action = keep
	case s.Spec.Stored != "" || s.Status.Location != "":
		p.action, p.requeueAfter = read, waitInterval
	case s.Status.TakenAt != nil:
		p.action, p.requeueAfter = lost, waitInterval
	case seen.cluster == nil:
		p.action, p.requeueAfter = missing, waitInterval
	case seen.cluster.Spec.EngineOrDefault() == v1alpha1.EngineRKE:
		p.action, p.requeueAfter = unsupported, waitInterval
	case !isRunning(seen.cluster):
		p.action, p.requeueAfter = wait, waitInterval
	default:
		p.action = take
	}
	return p
}

// newCondition returns the condition Ready.
func newCondition(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message}
}
