package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
)

const (
	// Finalizer is on every Cluster that may have resources outside of the API.
	Finalizer = GroupName + "/provisioner"
	// LegacyFinalizer is the finalizer of the original controller. It is replaced with
	// Finalizer.
	LegacyFinalizer = "provisioner"

	// AnnotationForceDelete is an annotation on a Cluster that removes its finalizer
	// after a time, even if the cluster could not be removed. Its value is that time since
	// the deletion, such as "10m"; any other value means DefaultForceDeleteAfter.
	AnnotationForceDelete = GroupName + "/force-delete"

	// SecretTypeKubeconfig is the type of the Secret with the kubeconfig, and
	// LabelClusterName its label with the name of the Cluster. Both are conventions of
	// Cluster API, so that its tools find the Secret.
	SecretTypeKubeconfig = "cluster.x-k8s.io/secret"
	// LabelClusterName is the label of the Secret with the name of its Cluster.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	// SecretKey is the key of the kubeconfig in that Secret.
	SecretKey = "value"
)

// Engine is the implementation that provisions a Cluster.
// +enum
type Engine string

const (
	// EngineLocal runs a control plane on the host of the manager.
	EngineLocal Engine = "local"
	// EngineHosted runs a control plane as Pods of the cluster that stores the Cluster.
	EngineHosted Engine = "hosted"
	// EngineRKE runs the program rke with a configuration file.
	EngineRKE Engine = "rke"
)

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusters,scope=Cluster,categories=keelson
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.status.engine`,description="Engine of the cluster"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,description="Kubernetes version of the cluster"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`,description="Pending, Provisioning, Provisioned, Stopped, Deleting, Failed or Unknown"
// +kubebuilder:printcolumn:name="Provisioned",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Provisioned")].status`,description="Whether the spec is applied"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the cluster is as requested"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,description="URL of the API of the cluster"
// +kubebuilder:printcolumn:name="Expires",type=string,priority=1,JSONPath=`.status.expiresAt`,description="Time at which the Cluster is deleted because of spec.expiresAfter"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.reason`,description="Reason of the phase"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`,description="Explanation of the phase, with the current step of an operation"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Cluster is a Kubernetes cluster that Keelson provisions, supervises and removes.
// The Kubeconfig with the same name refers to the Secret with its kubeconfig.
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired cluster. The default is a control plane on the host of the manager.
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`

	// The observed state. Only the controller writes it.
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is the desired cluster.
// +kubebuilder:validation:XValidation:rule="!has(self.engine) || self.engine != 'rke' || has(self.configPath) || has(self.ConfigPath)",message="spec.configPath is required with the engine rke: the path of its cluster.yml"
// +kubebuilder:validation:XValidation:rule="!has(self.engine) || self.engine != 'local' || !(has(self.configPath) || has(self.ConfigPath))",message="spec.configPath is for the engine rke only"
// +kubebuilder:validation:XValidation:rule="has(self.hosted) == (has(self.engine) && self.engine == 'hosted')",message="spec.hosted is required with the engine hosted, and for that engine only"
// +kubebuilder:validation:XValidation:rule="has(self.hosted) == has(oldSelf.hosted)",message="the engine is immutable: create another Cluster instead"
// +kubebuilder:validation:XValidation:rule="!has(self.engine) || self.engine != 'hosted' || !(has(self.configPath) || has(self.ConfigPath))",message="spec.configPath is for the engine rke only"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.version)",message="spec.version is for the engine local: with rke, set kubernetes_version in the file of spec.configPath"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.apiServer)",message="spec.apiServer is for the engine local: with rke, set services.kube-api in the file of spec.configPath"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.running) || self.running",message="spec.running is for the engine local: the engine rke cannot stop a cluster"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.idle)",message="spec.idle is for the engine local: the engine rke cannot stop a cluster"
// +kubebuilder:validation:XValidation:rule="!has(self.idle) || !has(self.nodes) || !has(self.nodes.real) || self.nodes.real == 0",message="spec.idle is for clusters without real nodes: Pods run on these, whether or not a client is connected"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.nodes)",message="spec.nodes is for the engine local: with rke, the file of spec.configPath has the nodes"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.users)",message="spec.users is for the engine local: with rke, create users in the cluster"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.from)",message="spec.from is for the engine local: the engine rke has no snapshots"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.snapshots)",message="spec.snapshots is for the engine local: with rke, set services.etcd.backup_config in the file of spec.configPath"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.restore)",message="spec.restore is for the engine local: with rke, run rke etcd snapshot-restore"
// +kubebuilder:validation:XValidation:rule="has(self.from) == has(oldSelf.from)",message="spec.from cannot be added or removed: the cluster was created from it; create another Cluster instead"
// +kubebuilder:validation:XValidation:rule="!has(self.nodes) || !has(self.nodes.real) || self.nodes.real == 0 || !has(self.apiServer) || !has(self.apiServer.address) || self.apiServer.address == '127.0.0.1'",message="spec.apiServer.address must be 127.0.0.1 with real nodes, which reach the API there"
// +kubebuilder:validation:XValidation:rule="(has(self.configPath) || has(self.ConfigPath)) == (has(oldSelf.configPath) || has(oldSelf.ConfigPath))",message="the engine is immutable: spec.configPath cannot be added or removed; create another Cluster instead"
type ClusterSpec struct {
	// Engine that provisions the cluster. rke runs the program rke with the file of
	// configPath and is the default if configPath is set. local runs a control plane
	// on the host of the manager and is the default otherwise. hosted runs a control
	// plane as Pods of this cluster, see hosted. Immutable.
	// +optional
	// +kubebuilder:validation:Enum=local;rke;hosted
	Engine Engine `json:"engine,omitempty"`

	// Where and how the control plane of the engine hosted runs.
	// +optional
	Hosted *HostedControlPlane `json:"hosted,omitempty"`

	// Path of an RKE cluster.yml on the host of the manager. Changes to the file are
	// applied like changes to this spec.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="must be a path"
	ConfigPath string `json:"configPath,omitempty"`

	// Deprecated name of configPath, from the original controller. Its value is moved
	// to configPath.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	LegacyConfigPath string `json:"ConfigPath,omitempty"`

	// Kubernetes version, such as v1.36.3. It must be installed with the manager. A
	// higher version upgrades the cluster. The default is the manager's newest
	// version, so an upgrade of the manager may upgrade the cluster.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`
	Version string `json:"version,omitempty"`

	// Snapshot to create a new local cluster from. The cluster begins with all
	// its objects except nodes, and with new certificates, keys and users. Immutable.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: the cluster was created from it; create another Cluster instead"
	From *ClusterSource `json:"from,omitempty"`

	// Whether the cluster runs. If this is false, all its processes are stopped and its
	// data is kept; other changes of the spec are applied when the cluster starts again.
	// For the engine local only. The default is true.
	// +optional
	Running *bool `json:"running,omitempty"`

	// When a local cluster without clients is stopped. The next connection to its API
	// starts it again. The default is never.
	// +optional
	Idle *ClusterIdle `json:"idle,omitempty"`

	// Nodes of a local cluster. The default is one simulated node.
	// +optional
	Nodes *ClusterNodes `json:"nodes,omitempty"`

	// Users of the cluster, besides its administrator. Each has a Secret with a
	// kubeconfig, named <cluster>-kubeconfig-<user>. Removing a user revokes it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=50
	Users []ClusterUser `json:"users,omitempty"`

	// Snapshots of a local cluster on a schedule.
	// +optional
	Snapshots *commonv1.SnapshotSchedule `json:"snapshots,omitempty"`

	// Replace all objects of a local cluster with those of a snapshot, once.
	// +optional
	Restore *commonv1.Restore `json:"restore,omitempty"`

	// Time of a request to rotate the credentials of the administrator of the
	// cluster, usually the current time. For each new value, the kubeconfig is replaced
	// once; the credentials before are rejected after ten minutes.
	// +optional
	RotateRequestedAt *metav1.Time `json:"rotateRequestedAt,omitempty"`

	// Time after the creation at which the Cluster is deleted, such as 8h. An event
	// announces the deletion five minutes before. Nothing is deleted while paused or
	// deletionProtection is true. The default is to keep the Cluster.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be greater than 0"
	ExpiresAfter *metav1.Duration `json:"expiresAfter,omitempty"`

	// Pause reconciliation: nothing is applied, repaired, rotated or deleted until
	// this is false. A running cluster keeps running.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// Prevent the deletion of the cluster while this is true.
	// +optional
	DeletionProtection bool `json:"deletionProtection,omitempty"`

	// Options of the API server of a local cluster.
	// +optional
	APIServer *APIServer `json:"apiServer,omitempty"`
}

// EngineOrDefault returns the engine, or the default.
func (s *ClusterSpec) EngineOrDefault() Engine {
	switch {
	case s.Engine != "":
		return s.Engine
	case s.ConfigPath != "" || s.LegacyConfigPath != "":
		return EngineRKE
	default:
		return EngineLocal
	}
}

// ClusterIdle says when a cluster without clients is stopped.
type ClusterIdle struct {
	// Time without a client after which the cluster is stopped, such as 30m; at least
	// 1m. Every open connection to the API counts as a client, except those of the
	// control plane and of the manager.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]{1,6}(s|m|h))+$`
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m')",message="must be at least 1m"
	StopAfter metav1.Duration `json:"stopAfter"`
}

// ClusterSource is the source of a new cluster.
type ClusterSource struct {
	// Name of a ClusterSnapshot. It is needed only until the cluster is provisioned.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Snapshot string `json:"snapshot"`
}

// APIServer has options of the API server of a local cluster.
type APIServer struct {
	// IPv4 address of the host of the manager at which the API listens, instead of
	// 127.0.0.1. The administrator of the manager allows addresses, with
	// clusters.addressAllow of its configuration. Real nodes need 127.0.0.1.
	// +optional
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip(self).family() == 4 && !ip(self).isUnspecified() && !ip(self).isLinkLocalMulticast()",message="must be an IPv4 address of one interface"
	Address string `json:"address,omitempty"`

	// Port of the API. The default is a free port, which does not change afterwards.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// Additional names and IP addresses in the certificate of the API, for access
	// through a tunnel or a proxy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || !format.dns1123Subdomain().validate(self.startsWith('*.') ? self.substring(2) : self).hasValue()",message="must be an IP address or a DNS name"
	CertSANs []string `json:"certSANs,omitempty"`

	// Additional flags of kube-apiserver without the leading dashes, such as
	// {"event-ttl": "2h"}. Flags that the cluster depends on are rejected.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(flag, flag.matches('^[a-z][a-z0-9-]*$'))",message="names of flags are written without leading dashes, in lower case"
	// +kubebuilder:validation:XValidation:rule="!self.exists(flag, flag.startsWith('etcd-') || flag.startsWith('tls-cert') || flag.startsWith('tls-private') || flag.startsWith('requestheader-') || flag.startsWith('proxy-client-') || flag.startsWith('service-account-key') || flag.startsWith('service-account-signing') || flag in ['admission-control', 'advertise-address', 'allow-privileged', 'anonymous-auth', 'authentication-config', 'authorization-config', 'authorization-mode', 'bind-address', 'client-ca-file', 'endpoint-reconciler-type', 'external-hostname', 'help', 'permit-address-sharing', 'permit-port-sharing', 'secure-port', 'service-account-issuer', 'service-cluster-ip-range', 'storage-backend', 'version', 'cert-dir', 'egress-selector-config-file', 'disable-admission-plugins', 'emulated-version', 'min-compatibility-version', 'kubelet-preferred-address-types'])",message="a flag that the cluster depends on cannot be set"
	// +kubebuilder:validation:XValidation:rule="!self.exists(flag, flag.matches('-(file|cafile|certfile|keyfile|path|dir|key|authority|certificate|manifest|provider-config|logs-handler)$'))",message="a flag that names a file of the host cannot be set"
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// ClusterStatus is the observed state of a cluster.
type ClusterStatus struct {
	// Phase of the cluster: Pending, Provisioning, Provisioned, Stopped, Deleting,
	// Failed or Unknown. It is for display; programs should use the conditions.
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`

	// Reason of the phase: that of the condition that explains it.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message of that condition.
	// +optional
	Message string `json:"message,omitempty"`

	// Engine of the cluster: spec.engine or its default.
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// URL of the API of the cluster.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// Last reported Kubernetes version of the API of the cluster.
	// +optional
	Version string `json:"version,omitempty"`

	// Last applied configuration as YAML, with masked credentials.
	// +optional
	AppliedConfig string `json:"appliedConfig,omitempty"`

	// Keyed hash of the last applied configuration including credentials, to detect
	// changes. It does not reveal the configuration.
	// +optional
	AppliedConfigHash string `json:"appliedConfigHash,omitempty"`

	// Value of spec.rotateRequestedAt for the last rotation of the credentials.
	// +optional
	LastRotateRequestedAt *metav1.Time `json:"lastRotateRequestedAt,omitempty"`

	// Time at which the Cluster is deleted because of spec.expiresAfter.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// Current or last operation.
	// +optional
	LastOperation *LastOperation `json:"lastOperation,omitempty"`

	// Reference to the kubeconfig.
	// +optional
	KubeconfigRef *KubeconfigReference `json:"kubeconfigRef,omitempty"`

	// Progress of spec.snapshots.
	// +optional
	Snapshots *commonv1.SnapshotScheduleStatus `json:"snapshots,omitempty"`

	// Last restore that has ended.
	// +optional
	Restore *commonv1.RestoreStatus `json:"restore,omitempty"`

	// Users with a Secret.
	// +optional
	// +listType=map
	// +listMapKey=name
	Users []ClusterUserStatus `json:"users,omitempty"`

	// Generation of the Cluster that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Conditions of the cluster. Provisioned is True if the spec is applied, Ready if
	// the API responds or the cluster is stopped as requested.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// ClusterPhase is the phase of a cluster.
// +enum
type ClusterPhase string

const (
	// PhasePending means that no operation was started yet.
	PhasePending ClusterPhase = "Pending"
	// PhaseProvisioning means that the spec is being applied for the first time.
	PhaseProvisioning ClusterPhase = "Provisioning"
	// PhaseProvisioned means that a spec was applied; see the conditions.
	PhaseProvisioned ClusterPhase = "Provisioned"
	// PhaseStopped means that no process runs, because spec.running is false or the cluster is idle.
	PhaseStopped ClusterPhase = "Stopped"
	// PhaseDeleting means that the Cluster is being deleted.
	PhaseDeleting ClusterPhase = "Deleting"
	// PhaseFailed means that the spec could not be applied.
	PhaseFailed ClusterPhase = "Failed"
	// PhaseUnknown means that the engine of the cluster is not available.
	PhaseUnknown ClusterPhase = "Unknown"
)

// KubeconfigReference refers to the kubeconfig of a cluster.
type KubeconfigReference struct {
	// Name of the Kubeconfig.
	// +required
	Name string `json:"name"`

	// The Secret with the kubeconfig.
	// +optional
	SecretRef *SecretReference `json:"secretRef,omitempty"`
}

// +kubebuilder:object:root=true

// ClusterList is a list of Clusters.
type ClusterList struct {
	metav1.TypeMeta `json:",inline"`
	// Standard list metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// The Clusters.
	Items []Cluster `json:"items"`
}
