package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// Engine provisions clusters. Its methods do not block: longer operations continue in the background, outlive the manager, and
// are reported by Observe. The methods are idempotent. They may be called for several clusters concurrently, but not concurrently
// for one cluster.
//
// An error that a user can fix wraps one of the errors below. Any other error may be transient.
type Engine interface {
	// Notify sets the function that the engine calls with the name of a Cluster after a change of its observed state. It is
	// called once, before all other methods. The function does not block.
	Notify(changed func(cluster string))
	// Observe returns the observed state of a cluster. It changes nothing.
	Observe(ctx context.Context, r Request) (Observation, error)
	// Apply starts or continues to apply the request, and supervises the cluster from then on. If the request stops the cluster,
	// Apply stops its processes and keeps its data, even if another operation is in progress. It is repeated until the cluster is
	// observed as attended.
	Apply(ctx context.Context, r Request) error
	// Delete starts or continues to remove the cluster. Missing parts are not an error. The removal is complete when Observe
	// returns an Observation without Exists.
	Delete(ctx context.Context, r Request) error
	// Abandon forgets a cluster. If the cluster was removed, Abandon deletes its last records. If it could not be removed, all of
	// it stays.
	Abandon(ctx context.Context, r Request) error
	// Close ends the supervision of the clusters and leaves them running. Afterwards Apply and Delete return ErrStopping.
	// Operations in progress are not reported as failed: the next manager continues them.
	Close() error
}

// OrphanStopper is an Engine whose clusters run on the host of the manager. It stops clusters whose Cluster no longer exists,
// because its finalizer was removed by hand or an older backup of etcd was restored.
type OrphanStopper interface {
	// List returns the clusters with running processes and a known ManagementClusterUID, except those with an operation in
	// progress.
	List(ctx context.Context) ([]HostedCluster, error)
	// StopOrphan stops all processes of a cluster and keeps its data: Apply starts it again. It returns after the last process has
	// exited, and kills the remaining processes when the context ends. It returns ErrBusy, and does nothing, if an operation is
	// in progress or another manager supervises the cluster.
	StopOrphan(ctx context.Context, uid types.UID) error
}

// HostedCluster is a cluster on the host of the manager.
type HostedCluster struct {
	// Name, UID and ManagementClusterUID are those of the last Request that was applied.
	Name                      string
	UID, ManagementClusterUID types.UID
	// Dir is the data directory.
	Dir string
}

// Errors of an Engine.
var (
	// ErrInvalid means that the engine does not support the spec.
	ErrInvalid = errors.New("the engine cannot do that")
	// ErrVersion means that the engine lacks the Kubernetes version, or cannot upgrade to it from the current one.
	ErrVersion = errors.New("the Kubernetes version is not available")
	// ErrConfig means that the file of spec.configPath cannot be read or is invalid.
	ErrConfig = errors.New("the configuration cannot be used")
	// ErrStateMissing means that the cluster was provisioned, but its management state is missing.
	ErrStateMissing = errors.New("the state of the cluster is missing")
	// ErrSnapshot means that the snapshot of which the cluster is to be made is not available.
	ErrSnapshot = errors.New("the snapshot is not available")
	// ErrUnavailable means that the engine, or a program that it needs, is not available.
	ErrUnavailable = errors.New("the engine is not available")
	// ErrStopping means that the engine was closed because the manager stops. It is an ErrUnavailable that is never written to a
	// status, because the cluster has not changed.
	ErrStopping = fmt.Errorf("%w: the manager is stopping", ErrUnavailable)
	// ErrBusy means that another operation has to end first.
	ErrBusy = errors.New("another operation has to end first")
)

// FieldError is an ErrInvalid that depends only on the spec, not on the state of the cluster.
type FieldError struct {
	// Field is the path of the field, such as spec.apiServer.extraArgs.
	Field string
	// Message describes the error.
	Message string
}

// Error returns the text of ErrInvalid and the message.
func (e *FieldError) Error() string { return ErrInvalid.Error() + ": " + e.Message }

// Unwrap returns ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Request describes the desired state of a cluster to an engine.
type Request struct {
	// Name is the name of the Cluster, for messages and for Notify.
	Name string
	// UID is the UID of the Cluster. Resources of the engine are named after it, because a name can be reused.
	UID types.UID
	// ManagementClusterUID is the UID of the namespace kube-system of the API that stores the Cluster. It is set for Apply only.
	ManagementClusterUID types.UID
	// Spec is the desired state, with the default engine set.
	Spec v1alpha1.ClusterSpec
	// Rotation requests new credentials if it differs from the value of the last rotation. Empty requests nothing.
	Rotation string
	// Snapshot is the snapshot of spec.from, of which a new cluster is made.
	Snapshot SnapshotRef
	// Restore requests that the objects of the cluster are replaced; nil requests nothing.
	Restore *Restore
	// Stop requests a cluster without running processes.
	Stop bool
	// Idle is true if Stop is because no client was connected. The engine then listens at the address of the API.
	Idle bool
	// Deleting is true if the Cluster is being deleted.
	Deleting bool
	// Applied is the Observation.ConfigHash after the last successful operation; empty if there was none. It distinguishes a new
	// cluster from one whose state was lost.
	Applied string
	// AppliedConfig is the Observation.Config at that time.
	AppliedConfig string
}

// Restore is a request to replace all objects of a cluster by those of a snapshot of it. It is done once: an Apply that has failed
// before it replaced them has changed nothing, and reports that.
type Restore struct {
	// Token identifies the request.
	Token string
	// Name and UID are those of the ClusterSnapshot.
	Name string
	UID  types.UID
}

// TokenOf returns the token of a Restore; empty for nil.
func TokenOf(r *Restore) string {
	if r == nil {
		return ""
	}
	return r.Token
}

// SnapshotRef identifies the snapshot of spec.from.
type SnapshotRef struct {
	// UID is that of the ClusterSnapshot.
	UID types.UID
	// Err is an ErrSnapshot if there is no such ClusterSnapshot, or if it is not ready. It matters only to a cluster that has no data
	// yet.
	Err error
}

// Observation is the observed state of a cluster.
type Observation struct {
	// Exists is true if there is anything for Delete to remove.
	Exists bool
	// Applied is true if the last operation has applied the current request. It does not mean that the cluster runs.
	Applied bool
	// Attended is true if the engine supervises the cluster, see Apply.
	Attended bool
	// Running is true if the processes of the cluster run, as far as the engine manages processes.
	Running bool
	// Stopped is true if no process of the cluster runs, and the engine starts none.
	Stopped bool
	// LastClient is the last time at which a client was connected to the API of a running cluster with spec.idle; zero if it is not
	// known.
	LastClient time.Time
	// Idle is true from an Apply with Request.Idle until a client connects. Such a cluster is observed as if the request had Stop and
	// Idle.
	Idle bool
	// Listening is true if the engine listens at the address of the API of a stopped cluster.
	Listening bool
	// Woken is true if a client has connected to a cluster that was idle, and that does not run yet.
	Woken bool
	// Operation is the current or the last known operation.
	Operation *Operation
	// Config is the last applied configuration without credentials; ConfigHash is its hash, including credentials.
	Config, ConfigHash string
	// Rotated is the Request.Rotation of the last rotation.
	Rotated string
	// Restored is the token of the last Restore that has replaced the objects of the cluster, as far as the engine knows it.
	Restored string
	// Endpoint is the URL of the API, if the engine assigns it.
	Endpoint string
	// Kubeconfig is the kubeconfig of the cluster; nil if there is none yet.
	Kubeconfig []byte
	// Users are the kubeconfigs of users of the spec that have one.
	Users []UserKubeconfig
	// KubeconfigPath is the file of the kubeconfig, if users need it.
	KubeconfigPath string
	// Components are the processes of the control plane; nil if the engine manages none.
	Components []Component
	// Nodes is the state of the nodes; nil if the engine does not know it.
	Nodes *Nodes
	// Waiting describes what a removal waits for, and after Abandon what is left.
	Waiting string
	// Notes are warnings for the user about the last operation although it succeeded.
	Notes []string
	// Poll is the time until the next reconcile if there is no event; zero means never.
	Poll time.Duration
}

// UserKubeconfig is the kubeconfig of a user of the spec.
type UserKubeconfig struct {
	Name       string
	Kubeconfig []byte
}

// Nodes is the state of the nodes of a cluster.
type Nodes struct {
	// Ready is true if all nodes have become ready since the cluster was started.
	Ready bool
	// Problem describes why they are not ready; empty while they start.
	Problem string
}

// Operation is the current or the last operation of an engine.
type Operation struct {
	// Delete is true for the removal of the cluster; otherwise the operation applies a request.
	Delete bool
	// Restore is the token of the Restore that the operation does; empty if it does none.
	Restore string
	// Stale is true if the operation was for another request than the current one, apart from its Restore.
	Stale bool
	// State is the state of the operation.
	State v1alpha1.OperationState
	// Description is the current step, or the cause of the failure.
	Description string
	// Began and Ended are the start and end times; Ended is zero while the operation is in progress.
	Began, Ended time.Time
	// Err is the error of a failed operation. It may wrap one of the errors above.
	Err error
}

// Component is a process of a control plane.
type Component struct {
	// Name is the name of the component, such as kube-apiserver.
	Name string
	// Up is true if the process runs and is not being replaced.
	Up bool
	// Since is the start time.
	Since time.Time
	// Detail describes how the process exited, if it did.
	Detail string
	// Problem describes a problem of the running component and its remedy; empty if none is known.
	Problem string
}

// The names of components that conditions depend on.
const (
	// ComponentAPIServer is the API server.
	ComponentAPIServer = "kube-apiserver"
	// ComponentEtcd is the database of the API server.
	ComponentEtcd = "etcd"
)
