package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	commonv1 "github.com/keelson-dev/keelson/api/common/v1"
)

// Action is the desired power state of a machine.
// +kubebuilder:validation:Enum=active;stopped;paused;asleep
type Action string

// The values of Action.
const (
	// ActionActive keeps the machine running.
	ActionActive Action = "active"
	// ActionStopped keeps it powered off; its disk stays.
	ActionStopped Action = "stopped"
	// ActionPaused keeps it in memory with its processors halted.
	ActionPaused Action = "paused"
	// ActionAsleep keeps its memory in a file on the host: the machine uses neither memory
	// nor processors, and resumes where it was when it is active again.
	ActionAsleep Action = "asleep"
)

// RestartPolicy determines what happens when the guest stops by itself.
// +kubebuilder:validation:Enum=Always;OnFailure;Never
type RestartPolicy string

// The values of RestartPolicy.
const (
	// RestartAlways restarts the machine in any case.
	RestartAlways RestartPolicy = "Always"
	// RestartOnFailure restarts the machine unless the guest powered off cleanly.
	RestartOnFailure RestartPolicy = "OnFailure"
	// RestartNever leaves the machine stopped.
	RestartNever RestartPolicy = "Never"
)

// DiskPolicy determines what happens to the disk when the object is deleted.
// +kubebuilder:validation:Enum=Delete;Retain
type DiskPolicy string

// The values of DiskPolicy.
const (
	// DiskDelete deletes the disk with the machine.
	DiskDelete DiskPolicy = "Delete"
	// DiskRetain keeps the disk; the documentation of the driver has its location.
	DiskRetain DiskPolicy = "Retain"
)

// VirtualMachineSpec is the desired machine.
// +kubebuilder:validation:XValidation:rule="has(self.image) == has(oldSelf.image)",message="cannot be set or removed later: the disk was created from it. Create another VirtualMachine",fieldPath=".image"
// +kubebuilder:validation:XValidation:rule="has(self.driver) == has(oldSelf.driver)",message="cannot be set or removed later: the machine stays where it was created. Create another VirtualMachine",fieldPath=".driver"
// +kubebuilder:validation:XValidation:rule="!has(self.image) || !has(self.image.empty) || (has(self.resource) && has(self.resource.rootDisk))",message="an empty root disk needs a size in resource.rootDisk",fieldPath=".image.empty"
// +kubebuilder:validation:XValidation:rule="!has(self.service) || (has(self.ports) && self.ports.size() > 0)",message="a Service needs at least one port in spec.ports",fieldPath=".service"
// +kubebuilder:validation:XValidation:rule="!has(self.service) || !has(self.ports) || self.ports.all(a, self.ports.exists_one(b, a.port == b.port && a.protocol == b.protocol))",message="with service, each port and protocol may be in spec.ports once",fieldPath=".ports"
// +kubebuilder:validation:XValidation:rule="!has(self.snapshots) || !has(self.snapshots.memory) || !self.snapshots.memory || ((!has(self.firmware) || self.firmware != 'UEFI') && (!has(self.disks) || self.disks.all(d, !has(d.virtualDisk))))",message="the memory of a machine with UEFI firmware or VirtualDisks cannot be in a snapshot: remove the field",fieldPath=".snapshots.memory"
// +kubebuilder:validation:XValidation:rule="(has(self.pod) && has(self.pod.storageClassName)) == (has(oldSelf.pod) && has(oldSelf.pod.storageClassName))",message="cannot be set or removed later: the disk stays in its volume. Create another VirtualMachine",fieldPath=".pod.storageClassName"
// +kubebuilder:validation:XValidation:rule="(has(self.pod) && has(self.pod.storage) && self.pod.storage == 'Ephemeral') == (has(oldSelf.pod) && has(oldSelf.pod.storage) && oldSelf.pod.storage == 'Ephemeral')",message="cannot be changed: the disks are in other volumes. Create another VirtualMachine",fieldPath=".pod.storage"
// +kubebuilder:validation:XValidation:rule="!has(self.pod) || !has(self.pod.storage) || self.pod.storage != 'Ephemeral' || !has(self.diskPolicy) || self.diskPolicy != 'Retain'",message="the disk of an ephemeral machine cannot be kept: remove the field",fieldPath=".diskPolicy"
type VirtualMachineSpec struct {
	// Desired power state: active, stopped, paused or asleep. A machine that is asleep uses no
	// memory, and resumes where it was when it is active again. The drivers qemu and pod support that.
	// +optional
	// +kubebuilder:default=active
	Action Action `json:"action,omitempty"`

	// Size of the machine.
	// +optional
	// +kubebuilder:default={}
	Resource Resources `json:"resource,omitzero"`

	// Determines whether the machine is restarted when the guest stops by itself:
	// Always, OnFailure (not after a clean power-off) or Never. The first restart is
	// immediate, later ones have a backoff of 10 s times the square of the number of
	// consecutive failures, at most 300 s.
	// +optional
	// +kubebuilder:default=Always
	RestartPolicy RestartPolicy `json:"restartPolicy,omitempty"`

	// Times at which the machine is put to sleep and wakes, while action is active: the
	// last one that has passed counts. The drivers qemu and pod support that.
	// +optional
	PowerSchedule *PowerSchedule `json:"powerSchedule,omitempty"`

	// Put the machine to sleep when it is idle, while action is active and powerSchedule
	// does not want it to sleep. The driver qemu supports that.
	// +optional
	Idle *VirtualMachineIdle `json:"idle,omitempty"`

	// A time. A machine that is asleep because of powerSchedule or idle wakes, at that
	// time if it is in the future. It stays awake until the next time of
	// powerSchedule.sleep, or until it has been idle for as long again.
	// +optional
	WakeRequestedAt *metav1.Time `json:"wakeRequestedAt,omitempty"`

	// What happens to the running machine when its host is shut down, and at keelson
	// down: Stop shuts the guest down; Sleep puts the machine to sleep, or shuts it down
	// if its memory cannot be saved in time. The machine is started or woken when
	// Keelson runs again. The default is Stop. The driver qemu supports Sleep.
	// +optional
	OnHostShutdown HostShutdownPolicy `json:"onHostShutdown,omitempty"`

	// Snapshots of the machine on a schedule. The drivers qemu and pod support that.
	// +optional
	Snapshots *SnapshotSchedule `json:"snapshots,omitempty"`

	// Replace the disks of the machine with those of a snapshot, once. The drivers
	// qemu and pod support that.
	// +optional
	Restore *commonv1.Restore `json:"restore,omitempty"`

	// A time. A later value than the last one restarts the machine once, regardless of
	// restartPolicy and backoff, at that time if it is in the future.
	// +optional
	RestartRequestedAt *metav1.Time `json:"restartRequestedAt,omitempty"`

	// Image or kernel to boot. The default is the small Linux guest of this project.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: the disk was created from it. Create another VirtualMachine"
	Image *Image `json:"image,omitempty"`

	// Data for the first boot, which the guest receives as a NoCloud seed.
	// +optional
	CloudInit *CloudInit `json:"cloudInit,omitempty"`

	// Ports of the guest that are forwarded to the host while the machine runs.
	// status.server.endpoints has their addresses.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Ports []Port `json:"ports,omitempty"`

	// Who can reach the machine. By default, the machines of its namespace.
	// +optional
	Network *Network `json:"network,omitempty"`

	// Service with the name of the machine, through which Pods of a real node reach the ports
	// of the guest. The condition ServiceReady reports whether they do.
	// +optional
	Service *Service `json:"service,omitempty"`

	// Check of the guest over its network that Ready waits for, in addition to the
	// guest agent, if there is one.
	// +optional
	ReadinessProbe *Probe `json:"readinessProbe,omitempty"`

	// Disks besides the root disk. They are added, grown and removed while the machine
	// runs; the condition DisksReady reports the progress.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(a, !has(a.virtualDisk) || self.exists_one(b, has(b.virtualDisk) && b.virtualDisk == a.virtualDisk))",message="a VirtualDisk can be in the list once"
	Disks []Disk `json:"disks,omitempty"`

	// CD-ROM drive of the machine, for installers. A machine boots from it if it cannot boot
	// from its root disk. A change requires a restart.
	// +optional
	CDROM *CDROM `json:"cdrom,omitempty"`

	// Firmware of the machine: BIOS or UEFI. A change requires a restart.
	// +optional
	// +kubebuilder:default=BIOS
	Firmware Firmware `json:"firmware,omitempty"`

	// Model of the processors, one of those that the backend supports, such as
	// Skylake-Server. The default is the model of the host or, with software emulation,
	// all supported features. A change requires a restart.
	// +optional
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9._-]*$`
	// +kubebuilder:validation:MaxLength=64
	CPUModel string `json:"cpuModel,omitempty"`

	// Display of the machine, in addition to its serial console. The default is None. A
	// change requires a restart.
	// +optional
	Display *Display `json:"display,omitempty"`

	// Pod and volumes of the machine, for the driver pod.
	// +optional
	Pod *VirtualMachinePod `json:"pod,omitempty"`

	// Backend of the machine, if the manager has several. The default is the first
	// backend of the manager.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z]([a-z0-9-]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed: the machine stays where it was created. Create another VirtualMachine"
	Driver string `json:"driver,omitempty"`

	// Determines what happens to the disk when this object is deleted: Delete or Retain.
	// +optional
	// +kubebuilder:default=Delete
	DiskPolicy DiskPolicy `json:"diskPolicy,omitempty"`

	// Time in seconds for the guest to power off cleanly before the machine is killed.
	// +optional
	// +kubebuilder:default=30
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// Resources are the size of a machine.
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.rootDisk) || (has(self.rootDisk) && quantity(string(self.rootDisk)).compareTo(quantity(string(oldSelf.rootDisk))) >= 0)",message="a disk can only grow: the new size must not be smaller than the old one",fieldPath=".rootDisk"
type Resources struct {
	// Number of processors. The drivers docker and fake accept fractions such as 500m, the
	// others integers from 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).isGreaterThan(quantity('0')) && quantity(string(self)).compareTo(quantity('1024')) <= 0",message="must be more than 0 and at most 1024"
	CPU resource.Quantity `json:"cpu,omitzero"`

	// Memory of the guest in bytes, such as 512Mi or 4G, at most the memory and swap of
	// the host.
	// +optional
	// +kubebuilder:default="512Mi"
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('32Mi')) >= 0 && quantity(string(self)).compareTo(quantity('16Ti')) <= 0",message="must be at least 32Mi and at most 16Ti"
	Memory resource.Quantity `json:"memory,omitzero"`

	// Size of the root disk in bytes, such as 40G. It can grow but not shrink. The
	// default is the size of the image; a machine that boots a kernel then has no disk.
	// +optional
	// +kubebuilder:validation:XValidation:rule="quantity(string(self)).compareTo(quantity('1Mi')) >= 0 && quantity(string(self)).compareTo(quantity('1Pi')) <= 0",message="must be at least 1Mi and at most 1Pi"
	RootDisk *resource.Quantity `json:"rootDisk,omitempty"`
}

// Image is what a machine boots: a disk image by name, path or URL, a kernel, or, with a
// driver that runs containers, a container image.
// +kubebuilder:validation:XValidation:rule="[has(self.name), has(self.path), has(self.url), has(self.kernel), has(self.container), has(self.empty), has(self.snapshot)].filter(given, given).size() == 1",message="must have exactly one of name, path, url, kernel, container, empty and snapshot"
// +kubebuilder:validation:XValidation:rule="!(has(self.name) || has(self.snapshot)) || !has(self.agent) || self.agent",message="is for an image by path or url: a VirtualMachineImage has its own field agent, and a snapshot that of its machine",fieldPath=".agent"
// +kubebuilder:validation:XValidation:rule="has(self.snapshot) || !has(self.snapshotNamespace)",message="goes with snapshot",fieldPath=".snapshotNamespace"
// +kubebuilder:validation:XValidation:rule="has(self.kernel) || !(has(self.initrd) || has(self.cmdline))",message="initrd and cmdline go with a kernel",fieldPath=".kernel"
// +kubebuilder:validation:XValidation:rule="!(has(self.kernel) || has(self.container) || has(self.name) || has(self.snapshot)) || !has(self.format)",message="is for a disk image by path or url",fieldPath=".format"
type Image struct {
	ImageSource `json:",inline"`

	// Name of a VirtualMachineImage, or tiny for the default guest.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`

	// Path of a Linux kernel on the host of the driver, for direct boot.
	// +optional
	// +kubebuilder:validation:Pattern=`^/[^\x00-\x1f,]*$`
	// +kubebuilder:validation:MaxLength=1024
	Kernel string `json:"kernel,omitempty"`

	// Path of the initial RAM disk for the kernel.
	// +optional
	// +kubebuilder:validation:Pattern=`^/[^\x00-\x1f,]*$`
	// +kubebuilder:validation:MaxLength=1024
	Initrd string `json:"initrd,omitempty"`

	// Command line for the kernel.
	// +optional
	// +kubebuilder:validation:Pattern=`^[^\x00-\x1f]*$`
	// +kubebuilder:validation:MaxLength=2048
	Cmdline string `json:"cmdline,omitempty"`

	// True boots an empty root disk of the size in resource.rootDisk, for an installer in
	// cdrom.
	// +optional
	// +kubebuilder:validation:Enum=true
	Empty bool `json:"empty,omitempty"`

	// Name of a VirtualMachineSnapshot, of the same namespace unless snapshotNamespace is set.
	// The machine boots what the machine of the snapshot booted, from a copy of its root disk.
	// Each disk of spec.disks that has the name of a disk of the snapshot begins with a copy of
	// that.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Snapshot string `json:"snapshot,omitempty"`

	// Namespace of the VirtualMachineSnapshot, whose spec.allowedNamespaces must name that of
	// the machine. The default is the namespace of the machine.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	SnapshotNamespace string `json:"snapshotNamespace,omitempty"`

	// Name of a container image, for a driver that runs containers.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]\S*$`
	// +kubebuilder:validation:MaxLength=1024
	Container string `json:"container,omitempty"`

	// Whether the image runs the QEMU guest agent, as cloud images do. Without an
	// agent, Ready only means that the machine is running.
	// +optional
	// +kubebuilder:default=true
	Agent *bool `json:"agent,omitempty"`
}

// CloudInit is the data that a guest reads at its first boot.
// +kubebuilder:validation:XValidation:rule="!(has(self.userData) && has(self.userDataFrom))",message="give userData or userDataFrom, not both",fieldPath=".userData"
// +kubebuilder:validation:XValidation:rule="!(has(self.networkData) && has(self.networkDataFrom))",message="give networkData or networkDataFrom, not both",fieldPath=".networkData"
type CloudInit struct {
	// User data, such as a document that begins with #cloud-config. Invalid YAML, and
	// data that cloud-init would ignore, are rejected.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	UserData string `json:"userData,omitempty"`

	// User data in a Secret, for confidential data.
	// +optional
	UserDataFrom *SecretKey `json:"userDataFrom,omitempty"`

	// Network configuration, in version 1 or 2 of cloud-init.
	// +optional
	// +kubebuilder:validation:MaxLength=65536
	NetworkData string `json:"networkData,omitempty"`

	// Network configuration in a Secret.
	// +optional
	NetworkDataFrom *SecretKey `json:"networkDataFrom,omitempty"`
}

// SecretKey names a value in a Secret of the namespace of the machine.
type SecretKey struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key in the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}
