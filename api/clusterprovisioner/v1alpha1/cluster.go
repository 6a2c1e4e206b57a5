package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Finalizer is on every Cluster for which something may exist outside of the API.
	Finalizer = GroupName + "/provisioner"
	// LegacyFinalizer is what the original controller used. It is replaced with
	// Finalizer.
	LegacyFinalizer = "provisioner"

	// AnnotationVersion is an annotation on a Cluster: the Kubernetes version that its API server
	// reported last.
	AnnotationVersion = GroupName + "/kubernetes-version"
	// AnnotationForceDelete is an annotation on a Cluster that lets it go when what
	// it is made of cannot be removed in time. Its value is that time, such as "10m",
	// counted from the deletion; anything else means DefaultForceDeleteAfter.
	AnnotationForceDelete = GroupName + "/force-delete"

	// AnnotationRotateCredentials is an annotation on a Cluster that asks for new credentials: whenever its value is
	// another one than status.rotatedCredentials, and not empty, the kubeconfig is made anew, and the credentials of
	// before are refused after DefaultCredentialsOverlap.
	AnnotationRotateCredentials = GroupName + "/rotate-credentials"

	// SecretTypeKubeconfig is the type of the Secret with the kubeconfig, and
	// LabelClusterName its label with the name of the Cluster. Both are conventions of
	// Cluster API, whose tools find the Secret by them.
	SecretTypeKubeconfig = "cluster.x-k8s.io/secret"
	// LabelClusterName is the label of the Secret with the name of its Cluster.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	// SecretKey is the key of the kubeconfig in that Secret.
	SecretKey = "value"
)

// Engine is what makes the cluster of a Cluster.
// +enum
type Engine string

const (
	// EngineLocal runs a control plane on the host of the manager.
	EngineLocal Engine = "local"
	// EngineRKE runs the program rke with a file that describes the cluster.
	EngineRKE Engine = "rke"
)

// +genclient
// +genclient:nonNamespaced
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusters,scope=Cluster,categories=keelson
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.status.engine`,description="What makes the cluster"
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`,description="The Kubernetes version that runs"
// +kubebuilder:printcolumn:name="Provisioned",type=string,JSONPath=`.status.conditions[?(@.type=="Provisioned")].status`,description="Whether the present spec is applied"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the API of the cluster answers"
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoint`,description="Where the API of the cluster is served"
// +kubebuilder:printcolumn:name="Phase",type=string,priority=1,JSONPath=`.status.phase`,description="Where the cluster is in its life"
// +kubebuilder:printcolumn:name="Operation",type=string,priority=1,JSONPath=`.status.lastOperation.description`,description="What is being done, or was done last"
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Cluster is ready, or is not"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`

// Cluster is a Kubernetes cluster that is provisioned, kept healthy and removed.
// Its kubeconfig is in the Secret that the Kubeconfig of the same name refers to.
type Cluster struct {
	metav1.TypeMeta `json:",inline"`
	// Standard object metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The cluster that is wanted. An empty one is a control plane on the host of
	// the manager.
	// +optional
	Spec ClusterSpec `json:"spec,omitempty"`

	// What was last seen of it. Written by the controller only.
	// +optional
	Status ClusterStatus `json:"status,omitempty"`
}

// ClusterSpec is the cluster that is wanted.
// +kubebuilder:validation:XValidation:rule="!has(self.engine) || self.engine != 'rke' || has(self.configPath) || has(self.ConfigPath)",message="spec.configPath is required with the engine rke: the path of its cluster.yml"
// +kubebuilder:validation:XValidation:rule="!has(self.engine) || self.engine != 'local' || !(has(self.configPath) || has(self.ConfigPath))",message="spec.configPath is for the engine rke only"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.version)",message="spec.version is for the engine local: with rke, kubernetes_version in the file of spec.configPath decides"
// +kubebuilder:validation:XValidation:rule="!(has(self.configPath) || has(self.ConfigPath)) || !has(self.apiServer)",message="spec.apiServer is for the engine local: with rke, services.kube-api in the file of spec.configPath decides"
// +kubebuilder:validation:XValidation:rule="(has(self.configPath) || has(self.ConfigPath)) == (has(oldSelf.configPath) || has(oldSelf.ConfigPath))",message="the engine cannot be changed: spec.configPath stays set, or stays unset; create another Cluster instead"
type ClusterSpec struct {
	// What makes the cluster: rke runs the program rke with the file of configPath,
	// and is the default where configPath is set; local runs a control plane on the
	// host of the manager, and is the default elsewhere. It cannot be changed.
	// +optional
	// +kubebuilder:validation:Enum=local;rke
	Engine Engine `json:"engine,omitempty"`

	// Path of an RKE cluster.yml on the file system of the manager. A change of the
	// file is applied like a change of this spec.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="!self.contains('\\u0000')",message="must be a path"
	ConfigPath string `json:"configPath,omitempty"`

	// The same as configPath, as the original controller stored it. It is moved to
	// configPath when it is seen.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	LegacyConfigPath string `json:"ConfigPath,omitempty"`

	// Kubernetes version, such as v1.36.3; one that the manager has. A higher one
	// than the present upgrades the cluster. Without it, the manager takes its
	// newest, also after it was itself replaced with a newer one.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$`
	Version string `json:"version,omitempty"`

	// Leave the cluster alone: nothing is applied, repaired, rotated or deleted
	// until this is false. What runs goes on.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// Refuse the deletion of this Cluster as long as this is true.
	// +optional
	DeletionProtection bool `json:"deletionProtection,omitempty"`

	// How the API of a local cluster is served.
	// +optional
	APIServer *APIServer `json:"apiServer,omitempty"`
}

// APIServer is how the API of a local cluster is served.
type APIServer struct {
	// Port on 127.0.0.1. Without it a free one is chosen and kept.
	// +optional
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`

	// More names and IP addresses that the certificate of the API is good for, for
	// those who reach it through a tunnel or a proxy.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || !format.dns1123Subdomain().validate(self.startsWith('*.') ? self.substring(2) : self).hasValue()",message="must be an IP address or a DNS name"
	CertSANs []string `json:"certSANs,omitempty"`

	// More flags of kube-apiserver, without the leading dashes, such as
	// {"event-ttl": "2h"}. Flags that the cluster depends on are refused.
	// +optional
	// +kubebuilder:validation:MaxProperties=50
	// +kubebuilder:validation:XValidation:rule="self.all(flag, flag.matches('^[a-z][a-z0-9-]*$'))",message="names of flags are written without leading dashes, in lower case"
	// +kubebuilder:validation:XValidation:rule="!self.exists(flag, flag.startsWith('etcd-') || flag.startsWith('tls-cert') || flag.startsWith('tls-private') || flag.startsWith('requestheader-') || flag.startsWith('proxy-client-') || flag.startsWith('service-account-key') || flag.startsWith('service-account-signing') || flag in ['admission-control', 'advertise-address', 'allow-privileged', 'anonymous-auth', 'authentication-config', 'authorization-config', 'authorization-mode', 'bind-address', 'client-ca-file', 'endpoint-reconciler-type', 'external-hostname', 'help', 'permit-address-sharing', 'permit-port-sharing', 'secure-port', 'service-account-issuer', 'service-cluster-ip-range', 'storage-backend', 'version', 'cert-dir', 'egress-selector-config-file', 'disable-admission-plugins', 'emulated-version', 'min-compatibility-version', 'kubelet-preferred-address-types'])",message="a flag that the cluster depends on cannot be set; docs/cluster.md lists them"
	// +kubebuilder:validation:XValidation:rule="!self.exists(flag, flag.matches('-(file|cafile|certfile|keyfile|path|dir|key|authority|certificate|manifest|provider-config|logs-handler)$'))",message="a flag that names a file of the host cannot be set"
	ExtraArgs map[string]string `json:"extraArgs,omitempty"`
}

// ClusterStatus is what was last seen of a cluster.
type ClusterStatus struct {
	// Where the cluster is in its life: Pending, Provisioning, Provisioned, Deleting,
	// Failed or Unknown. It is for people; programs read the conditions.
	// +optional
	Phase ClusterPhase `json:"phase,omitempty"`

	// What makes the cluster: spec.engine, or its default.
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// URL of the API of the cluster.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`

	// Kubernetes version that the API of the cluster reported last.
	// +optional
	Version string `json:"version,omitempty"`

	// The configuration that was applied last, as YAML. Credentials in it are
	// replaced with asterisks.
	// +optional
	AppliedConfig string `json:"appliedConfig,omitempty"`

	// Stands for the configuration that was applied last, credentials included, so
	// that a change of it is noticed. It is keyed: nothing can be learned from it.
	// +optional
	AppliedConfigHash string `json:"appliedConfigHash,omitempty"`

	// Value of the annotation clusterprovisioner.rke.io/rotate-credentials for which the
	// credentials were made anew last.
	// +optional
	RotatedCredentials string `json:"rotatedCredentials,omitempty"`

	// What is being done, or was done last.
	// +optional
	LastOperation *LastOperation `json:"lastOperation,omitempty"`

	// Where the kubeconfig is.
	// +optional
	KubeconfigRef *KubeconfigReference `json:"kubeconfigRef,omitempty"`

	// Generation of the Cluster that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The current state of the cluster. Provisioned says that the present spec is
	// applied, Ready that the API of the cluster answers.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +patchStrategy=merge
	// +patchMergeKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// ClusterPhase is where a cluster is in its life.
// +enum
type ClusterPhase string

const (
	// PhasePending means: nothing was done yet.
	PhasePending ClusterPhase = "Pending"
	// PhaseProvisioning means: the spec is being applied for the first time.
	PhaseProvisioning ClusterPhase = "Provisioning"
	// PhaseProvisioned means: a spec was applied; the conditions say more.
	PhaseProvisioned ClusterPhase = "Provisioned"
	// PhaseDeleting means: the Cluster is being deleted.
	PhaseDeleting ClusterPhase = "Deleting"
	// PhaseFailed means: the spec could not be applied.
	PhaseFailed ClusterPhase = "Failed"
	// PhaseUnknown means: what makes the cluster cannot be asked.
	PhaseUnknown ClusterPhase = "Unknown"
)

// OperationType is a kind of operation.
// +enum
type OperationType string

const (
	// OperationProvision makes the cluster.
	OperationProvision OperationType = "Provision"
	// OperationUpdate applies a changed spec or configuration.
	OperationUpdate OperationType = "Update"
	// OperationUpgrade changes the Kubernetes version.
	OperationUpgrade OperationType = "Upgrade"
	// OperationRotate makes the credentials anew.
	OperationRotate OperationType = "RotateCredentials"
	// OperationStart starts what had stopped.
	OperationStart OperationType = "Start"
	// OperationDelete removes the cluster.
	OperationDelete OperationType = "Delete"
)

// OperationState is how far an operation is.
// +enum
type OperationState string

const (
	// OperationProcessing means: it is under way.
	OperationProcessing OperationState = "Processing"
	// OperationSucceeded means: it has ended well.
	OperationSucceeded OperationState = "Succeeded"
	// OperationFailed means: it has failed and is tried again later.
	OperationFailed OperationState = "Failed"
)

// LastOperation is what is being done, or was done last.
type LastOperation struct {
	// What is done: Provision, Update, Upgrade, RotateCredentials, Start or Delete.
	// +required
	Type OperationType `json:"type"`

	// How far it is: Processing, Succeeded or Failed.
	// +required
	State OperationState `json:"state"`

	// The step that it is at, or why it failed, in words.
	// +optional
	Description string `json:"description,omitempty"`

	// How often it was tried. The pause before the next attempt grows with it.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// When state or description changed last.
	// +optional
	LastUpdateTime metav1.Time `json:"lastUpdateTime,omitempty"`
}

// KubeconfigReference says where the kubeconfig of a cluster is.
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
