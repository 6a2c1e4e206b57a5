package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// Engine makes clusters real. Its methods return soon: what takes longer goes on by itself, is found again by a later
// engine of the same place, and is told by Observe. Each of them may be called again at any time, for several clusters
// at once, but not twice at the same time for one of them.
//
// An error is wrapped around one of the values below if it is one that the user can do something about; any other
// error means that it may go by itself.
type Engine interface {
	// Notify sets what the engine calls with the name of a Cluster when there is something new to Observe. It is called
	// once, before anything else. The function does not wait.
	Notify(changed func(cluster string))
	// Observe tells what there is of a cluster. It changes nothing.
	Observe(ctx context.Context, r Request) (Observation, error)
	// Apply begins to make the cluster what the request asks for, or goes on with it, and looks after it from then on.
	Apply(ctx context.Context, r Request) error
	// Delete begins to remove the cluster, or goes on with it. Nothing that is missing keeps it from that. It is done
	// when Observe says that nothing exists.
	Delete(ctx context.Context, r Request) error
	// Abandon forgets a cluster: one that was removed, of which it drops its last notes, or one that could not be removed,
	// of which everything stays.
	Abandon(ctx context.Context, r Request) error
	// Close stops looking after the clusters and leaves them running. Apply and Delete return
	// ErrStopping afterwards, and what was under way is not told as failed: the next manager goes on with it.
	Close() error
}

// OrphanStopper is an Engine whose clusters run on the host of the manager, where nobody else ends them: also when their
// Cluster was lost, because its finalizer was removed by hand or an older backup of etcd was restored.
type OrphanStopper interface {
	// List returns the clusters of which anything runs and whose HostedCluster.ManagementClusterUID is known, but for those that something is
	// being done with.
	List(ctx context.Context) ([]HostedCluster, error)
	// Stop stops what runs of a cluster, and keeps all its data: Apply starts it again. It returns when nothing runs any
	// more. What is left when the context ends is killed. ErrBusy says that an operation is under way, or that another
	// manager looks after the cluster; then nothing was done.
	Stop(ctx context.Context, uid types.UID) error
}

// HostedCluster is a cluster on the host of the manager.
type HostedCluster struct {
	// Name, UID and ManagementClusterUID are those of the last Request that was applied.
	Name                      string
	UID, ManagementClusterUID types.UID
	// Dir is where its data is.
	Dir string
}

// Errors of an Engine.
var (
	// ErrInvalid says that the spec asks for what the engine cannot do.
	ErrInvalid = errors.New("the engine cannot do that")
	// ErrVersion says that the engine does not have the Kubernetes version, or cannot come to it from the present one.
	ErrVersion = errors.New("the Kubernetes version is not available")
	// ErrConfig says that the file of spec.configPath cannot be read or is none.
	ErrConfig = errors.New("the configuration cannot be used")
	// ErrStateMissing says that the cluster was made once, and that what is needed to manage it is gone.
	ErrStateMissing = errors.New("the state of the cluster is missing")
	// ErrUnavailable says that the engine, or a program that it needs, is not there.
	ErrUnavailable = errors.New("the engine is not available")
	// ErrStopping says that the engine was closed, because the manager stops. It is an ErrUnavailable that is never
	// written into a status: nothing about the cluster has changed.
	ErrStopping = fmt.Errorf("%w: the manager is stopping", ErrUnavailable)
	// ErrBusy says that something else has to end first.
	ErrBusy = errors.New("something else has to end first")
)

// FieldError is an ErrInvalid that is known from the spec alone, whatever there is of the cluster.
type FieldError struct {
	// Field is the path of the field, such as spec.apiServer.extraArgs.
	Field string
	// Message says what is wrong with it.
	Message string
}

// Error returns the message after the words of ErrInvalid.
func (e *FieldError) Error() string { return ErrInvalid.Error() + ": " + e.Message }

// Unwrap returns ErrInvalid.
func (e *FieldError) Unwrap() error { return ErrInvalid }

// Request is what an engine is told about a cluster.
type Request struct {
	// Name is the name of the Cluster, for people and for Notify.
	Name string
	// UID is the UID of the Cluster: what the engine makes is named after it, because a name can come back.
	UID types.UID
	// ManagementClusterUID stands for the API that has the Cluster: it is the UID of its namespace kube-system. Only Apply is told.
	ManagementClusterUID types.UID
	// Spec is what is wanted, with the default of the engine filled in.
	Spec v1alpha1.ClusterSpec
	// Rotation asks for new credentials: another value than that of the last rotation begins one. Empty asks for nothing.
	Rotation string
	// Deleting says that the Cluster is being deleted.
	Deleting bool
	// Applied is what Observation.ConfigHash was when the last operation succeeded; empty if none did. It is what tells
	// a new cluster from one of which the state was lost.
	Applied string
	// AppliedConfig is what Observation.Config was then.
	AppliedConfig string
}

// Observation is what an engine sees of a cluster.
type Observation struct {
	// Exists says that there is anything of the cluster that Delete would have to remove.
	Exists bool
	// Applied says that the last operation has made the cluster what the present request asks for. It does not say that
	// the cluster runs.
	Applied bool
	// Attended says that the engine looks after the cluster. Apply makes it do that.
	Attended bool
	// Running says that the processes of the cluster run, as far as the engine has any.
	Running bool
	// Operation is what is under way, or has ended last, as far as that is known.
	Operation *Operation
	// Config is what was applied last, without credentials, and ConfigHash stands for it, credentials included.
	Config, ConfigHash string
	// Rotated is the Request.Rotation for which the credentials were made anew last.
	Rotated string
	// Endpoint is the URL of the API, if the engine decides on it.
	Endpoint string
	// Kubeconfig leads to the cluster; nil if there is none yet.
	Kubeconfig []byte
	// KubeconfigPath is the file that it is in, if that is to be told to users.
	KubeconfigPath string
	// Components are the processes of the control plane; nil if the engine has none.
	Components []Component
	// Waiting says in words what a removal waits for, and after Abandon, what is left.
	Waiting string
	// Notes are what a person should know about the last operation although it has succeeded.
	Notes []string
	// Poll is when to look again if nothing happens; zero means never.
	Poll time.Duration
}

// Operation is what an engine does or has done last.
type Operation struct {
	// Delete says that it removes the cluster; otherwise it applies a request.
	Delete bool
	// Stale says that it was about another request than the present one.
	Stale bool
	// State is how far it is.
	State v1alpha1.OperationState
	// Description is the step that it is at, or why it failed.
	Description string
	// Began and Ended are when it did; Ended is zero before.
	Began, Ended time.Time
	// Err is why it failed. It may be one of the errors above.
	Err error
}

// Component is a process of a control plane.
type Component struct {
	// Name is the name of the component, such as kube-apiserver.
	Name string
	// Up says that it runs.
	Up bool
	// Since is when it was started.
	Since time.Time
	// Detail says how it ended, when it did.
	Detail string
	// Problem says what is wrong with it although it runs, and what to do; empty if nothing is known to be.
	Problem string
}

// The names of the components that Observation.Components may have and that are known to conditions.
const (
	// ComponentAPIServer serves the API.
	ComponentAPIServer = "kube-apiserver"
	// ComponentEtcd keeps the objects.
	ComponentEtcd = "etcd"
)
