package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/node"
)

// Labels and annotations of the objects of a machine.
const (
	// labelUID marks an object as one of the machine with this UID.
	labelUID = "cloudnative.tw/virtualmachine-uid"
	// labelName is for users: names of more than 63 characters are not in it.
	labelName = "cloudnative.tw/virtualmachine-name"
	// labelCluster is the cluster that has the VirtualMachine.
	labelCluster = "cloudnative.tw/cluster-uid"
	// annotationName is the name of the VirtualMachine.
	annotationName = "cloudnative.tw/virtualmachine-name"
	// annotationRun is the name of the run in a Pod.
	annotationRun = "cloudnative.tw/virtualmachine-run"
	// annotationSeed is the checksum of the seed of a run.
	annotationSeed = "cloudnative.tw/virtualmachine-seed"
	// labelDisk is the name of the disk of a claim; that of the root disk has none.
	labelDisk = "cloudnative.tw/virtualmachine-disk"
	// annotationPolicy is what happens to a disk, other than the root disk, that is removed.
	annotationPolicy = "cloudnative.tw/virtualmachine-disk-policy"
	// annotationMemory is the part of a claim, in bytes, that is for the memory of a machine that is asleep.
	annotationMemory = "cloudnative.tw/virtualmachine-memory"
	// annotationTemplate is the checksum of the PodTemplate of a run.
	annotationTemplate = "cloudnative.tw/virtualmachine-template"
)

const (
	// container is the name of the only container.
	container = "machine"
	// user is the user and group of the launcher.
	user int64 = 1000
	// launcherMemory is the memory of a Pod besides the guest and translated code: launcher, QEMU, seed and page tables.
	launcherMemory = 64 << 20
	// displayMemory is that of a display: its card, and what its VNC server keeps for its clients.
	displayMemory = 64 << 20
	// guestCode and imageCode are the buffers for translated code of each processor, in MiB: of the default guest, and of others.
	guestCode, imageCode = 32, 128
	// diskOverhead is the part of a disk, 1/16, that its claim has in addition, for the file system of the volume and the
	// tables of qcow2.
	diskOverhead = 16
	// tableParts is the part of the memory of a guest, 1/256, that page tables have in addition with hardware virtualization: those of the
	// processors, and those of QEMU.
	tableParts = 256
	// tableSpan is the number of bytes of a disk for which QEMU keeps 1 MiB of the tables of qcow2 in memory, 8 bytes for each 64 KiB, and
	// maxTables the most that it keeps of a disk, in MiB.
	tableSpan, maxTables = 8 << 30, 32
	// usualGrace is how long a guest has to power off if somebody else deletes its Pod, in seconds.
	usualGrace = 60
	// firstReadyPort is the port of the readiness probe; the next one that the guest does not have.
	firstReadyPort = 65000
	// probeWait is how long the launcher holds a negative response back. The timeout of the probe is a second longer.
	probeWait = 9
)

// objectName is the name of all objects of a machine. It is fixed, so that there is at most one Pod: the API server has no second
// object of the same name.
func objectName(uid types.UID) string { return "keelson-" + string(uid) }

// newMeta returns the metadata of an object of a machine.
func newMeta(id backend.Identity) metav1.ObjectMeta {
	meta := metav1.ObjectMeta{
		Namespace: id.Namespace, Name: objectName(id.UID),
		Labels:      map[string]string{labelUID: string(id.UID), labelCluster: string(id.Cluster)},
		Annotations: map[string]string{annotationName: id.Name},
	}
	if len(validation.IsValidLabelValue(id.Name)) == 0 {
		meta.Labels[labelName] = id.Name
	}
	return meta
}

// ownedBy returns the owner of the objects of a machine that hold no data of it: the VirtualMachine. kubectl drain evicts a Pod only if it
// has a controller.
func ownedBy(id backend.Identity) []metav1.OwnerReference {
	return []metav1.OwnerReference{{
		APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "VirtualMachine", Name: id.Name, UID: id.UID, Controller: ptr.To(true),
	}}
}

// identityOf returns the identity of the machine whose Pod or record an object is; its UID is empty if it is neither. Tenants can write labels,
// so a Pod only ever belongs to a machine of its own namespace, and has the name that the Pod of that machine has.
func identityOf(object metav1.Object) backend.Identity {
	id := machineOf(object, object.GetLabels()[labelUID])
	if name := objectName(id.UID); object.GetName() != name && object.GetName() != recordName(id.Namespace, name) {
		id.UID = ""
	}
	return id
}

// machineOf returns the identity of the machine with a UID that an object is part of.
func machineOf(object metav1.Object, uid string) backend.Identity {
	return backend.Identity{
		UID: types.UID(uid), Cluster: types.UID(object.GetLabels()[labelCluster]),
		Namespace: namespaceOf(object), Name: object.GetAnnotations()[annotationName],
	}
}

// newDefinition returns what the launcher runs.
func newDefinition(machine *backend.Machine) launcher.Definition {
	d := launcher.Definition{
		UID: string(machine.UID), Namespace: machine.Namespace, Name: machine.Name,
		CPUs: machine.MilliCPU / 1000, CPUModel: machine.CPUModel, MemoryBytes: machine.MemoryBytes, CodeMiB: guestCode,
		Display: machine.Display != "", DiskBytes: machine.DiskBytes, Ephemeral: machine.HasEphemeralDisks(), ReadyPort: firstReadyPort, SleepWhenEvicted: machine.Pod.EvictionPolicy == v1alpha1.EvictionSleep,
	}
	for _, disk := range machine.Disks {
		d.Disks = append(d.Disks, launcher.Disk{Name: disk.Name, Bytes: disk.SizeBytes})
	}
	if machine.Image != nil {
		d.Image, d.CodeMiB, d.NoAgent = machine.Image.Container != "", imageCode, !ptr.Deref(machine.Image.Agent, true)
		d.ImageURL, d.ImageSHA256, d.ImageFormat = machine.Image.URL, machine.Image.Sha256, machine.Image.Format
	}
	for _, port := range machine.Ports {
		d.Ports = append(d.Ports, launcher.Port{Port: port.Port, UDP: port.Protocol == v1alpha1.ProtocolUDP})
	}
	for slices.ContainsFunc(d.Ports, func(port launcher.Port) bool { return port.Port == d.ReadyPort && !port.UDP }) {
		d.ReadyPort++
	}
	return d
}

// definitionOf returns what a Pod runs; false if it is not readable.
func definitionOf(pod *corev1.Pod) (d launcher.Definition, ok bool) {
	for _, c := range pod.Spec.Containers {
		for _, variable := range c.Env {
			if c.Name == container && variable.Name == launcher.Variable {
				return d, json.Unmarshal([]byte(variable.Value), &d) == nil
			}
		}
	}
	return d, false
}

// images are the images of a Pod.
type images struct{ launcher, guest string }

// pullPolicy returns the pull policy of an image. Each node has those that Keelson brings to its nodes, and no registry does.
func pullPolicy(image string) corev1.PullPolicy {
	if strings.HasPrefix(image, node.OwnImages) {
		return corev1.PullNever
	}
	return corev1.PullIfNotPresent
}

// processors is how Pods get the processors of guests.
type processors struct {
	// ratio is how many of them share one processor of a node.
	ratio int64
	// kvm is the resource of the device plugin for hardware virtualization; empty means that they are emulated.
	kvm corev1.ResourceName
	// group is that of the device; 0 means that the launcher needs none.
	group int64
}

// addTo adds the resources of a machine to a Pod, with the device.
func (p processors) addTo(spec *corev1.PodSpec, d *launcher.Definition) {
	resources := newResources(d, p.ratio)
	if p.kvm != "" {
		resources.Requests[p.kvm], resources.Limits[p.kvm] = resource.MustParse("1"), resource.MustParse("1")
		if p.group != 0 {
			spec.SecurityContext.SupplementalGroups = []int64{p.group}
		}
	}
	spec.Containers[0].Resources = resources
}

// newPod returns the Pod of the run of a record. mustBeAsleep means that the machine is certainly asleep.
func newPod(rec *record, images images, processors processors, mustBeAsleep bool) *corev1.Pod {
	machine := rec.Started
	definition := newDefinition(machine)
	definition.Asleep, definition.Epoch, definition.KVM = mustBeAsleep, rec.Epoch, processors.kvm != ""
	pod := newRestrictedPod(newMeta(machine.Identity), images.launcher, corev1.EnvVar{Name: launcher.Variable, Value: string(mustJSON(definition))})
	pod.Spec.Hostname, pod.Spec.TerminationGracePeriodSeconds = hostName(machine.Name), ptr.To(graceOf(&definition))
	// QEMU listens at the ports of the guest.
	pod.Spec.SecurityContext.Sysctls = []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}}
	c := &pod.Spec.Containers[0]
	c.Ports, c.ReadinessProbe = containerPorts(machine.Ports), newProbe(&definition)
	pod.OwnerReferences = ownedBy(machine.Identity)
	if machine.Set != "" {
		pod.Labels[v1alpha1.LabelSet] = machine.Set
	}
	pod.Annotations[annotationRun], pod.Annotations[annotationSeed] = rec.Run, rec.SeedSum
	addTemplate(pod, machine.Pod.Template)
	addVolumes(&pod.Spec, machine, images)
	processors.addTo(&pod.Spec, &definition)
	return pod
}

// newRestrictedPod returns a Pod of the launcher, which gets a variable. It has what Pod Security "restricted" demands, and no token.
func newRestrictedPod(meta metav1.ObjectMeta, image string, variable corev1.EnvVar) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		RestartPolicy:                corev1.RestartPolicyNever, // the controller decides about restarts
		AutomountServiceAccountToken: ptr.To(false),
		EnableServiceLinks:           ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(user), RunAsGroup: ptr.To(user), FSGroup: ptr.To(user),
			FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
			SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: container, Image: image, ImagePullPolicy: pullPolicy(image),
			// An image from an archive or folder may have no entry point, or another one.
			Command:                []string{"/keelson-launcher"},
			Env:                    []corev1.EnvVar{variable, {Name: "TMPDIR", Value: launcher.RunDir}},
			TerminationMessagePath: launcher.TerminationLog,
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}}
}

// addRunDir adds the folder for temporary files, which is in memory.
func addRunDir(spec *corev1.PodSpec) {
	addVolume(spec, "run", launcher.RunDir, false, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}})
}

// addTemplate adds what the user wants the Pod to have. Labels and annotations of the driver come first.
func addTemplate(pod *corev1.Pod, template *v1alpha1.PodTemplate) {
	if template == nil {
		return
	}
	pod.Annotations[annotationTemplate] = templateSum(template)
	pod.Labels = merge(template.Metadata.Labels, pod.Labels)
	pod.Annotations = merge(template.Metadata.Annotations, pod.Annotations)
	pod.Spec.NodeSelector, pod.Spec.Affinity, pod.Spec.Tolerations = template.Spec.NodeSelector, template.Spec.Affinity, template.Spec.Tolerations
	pod.Spec.TopologySpreadConstraints, pod.Spec.PriorityClassName = template.Spec.TopologySpreadConstraints, template.Spec.PriorityClassName
}

// merge returns the entries of both maps; those of the second one take precedence.
func merge(a, b map[string]string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// templateSum returns the checksum of a template; "" without one.
func templateSum(template *v1alpha1.PodTemplate) string {
	if template == nil {
		return ""
	}
	sum := sha256.Sum256(mustJSON(template))
	return hex.EncodeToString(sum[:8])
}

// addVolumes adds the volumes of a machine.
func addVolumes(spec *corev1.PodSpec, machine *backend.Machine, images images) {
	add := func(name, path string, readOnly bool, source corev1.VolumeSource) {
		addVolume(spec, name, path, readOnly, source)
	}
	addRunDir(spec)
	// It is not optional: without its Secret, no Pod of a deleted machine starts.
	add("seed", launcher.SeedDir, true, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
		SecretName: objectName(machine.UID), DefaultMode: ptr.To[int32](0o440), Items: []corev1.KeyToPath{
			{Key: launcher.TokenFile, Path: launcher.TokenFile},
			{Key: launcher.UserDataFile, Path: launcher.UserDataFile}, {Key: launcher.NetworkDataFile, Path: launcher.NetworkDataFile},
		},
	}})
	image := func(reference string) corev1.VolumeSource {
		return corev1.VolumeSource{Image: &corev1.ImageVolumeSource{Reference: reference, PullPolicy: pullPolicy(reference)}}
	}
	switch {
	case machine.Image == nil:
		add("guest", launcher.GuestDir, true, image(images.guest))
	case machine.Image.Container != "":
		add("image", launcher.ImageDir, true, image(machine.Image.Container))
	}
	addDisks(spec, machine)
}

// addVolume adds a volume, and its mount.
func addVolume(spec *corev1.PodSpec, name, path string, readOnly bool, source corev1.VolumeSource) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
}

// addDisks adds the volumes of the disks of a machine.
func addDisks(spec *corev1.PodSpec, machine *backend.Machine) {
	for _, disk := range disksOf(machine) {
		volume, path := "disk", launcher.DiskDir
		if disk.Name != rootDisk {
			volume, path = "disk-"+disk.Name, filepath.Join(launcher.DisksDir, disk.Name)
		}
		source := claimSource(claimName(machine.UID, disk.Name))
		if machine.HasEphemeralDisks() {
			source = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(claimSize(disk.SizeBytes))}}
		}
		addVolume(spec, volume, path, false, source)
	}
}

// claimSource returns the source of a volume of a claim.
func claimSource(name string) corev1.VolumeSource {
	return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
}

// newResources returns the resources of a Pod: a processor of the node for each ratio of the guest, which seldom uses all of its own. They have no
// limit: QEMU has other threads, too.
func newResources(d *launcher.Definition, ratio int64) corev1.ResourceRequirements {
	bytes := d.MemoryBytes + launcherMemory
	if d.KVM {
		bytes += d.MemoryBytes / tableParts
	} else {
		bytes += d.CPUs * (d.CodeMiB << 20)
	}
	if d.Display {
		bytes += displayMemory
	}
	for _, disk := range d.AllDisks() {
		bytes += min(disk.Bytes/tableSpan, maxTables) << 20
	}
	memory := *resource.NewQuantity(bytes, resource.BinarySI)
	resources := corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity((d.CPUs*1000+ratio-1)/ratio, resource.DecimalSI), corev1.ResourceMemory: memory},
		Limits:   corev1.ResourceList{corev1.ResourceMemory: memory},
	}
	if d.Ephemeral {
		var storage resource.Quantity
		for _, disk := range d.AllDisks() {
			storage.Add(claimSize(disk.Bytes))
		}
		resources.Requests[corev1.ResourceEphemeralStorage] = storage
	}
	return resources
}

// newProbe returns the probe for the guest agent. The launcher holds the response back until the agent answers.
func newProbe(d *launcher.Definition) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path: fmt.Sprintf("%s?wait=%ds", launcher.ReadyPath, probeWait), Port: intstr.FromInt32(d.ReadyPort),
		}},
		PeriodSeconds: 1, TimeoutSeconds: probeWait + 1, FailureThreshold: 1,
	}
}

func containerPorts(ports []v1alpha1.Port) (all []corev1.ContainerPort) {
	for _, port := range ports {
		p := corev1.ContainerPort{ContainerPort: port.Port, Protocol: corev1.Protocol(port.Protocol)}
		if len(validation.IsValidPortName(port.Name)) == 0 {
			p.Name = port.Name // names of container ports have at most 15 characters
		}
		all = append(all, p)
	}
	return all
}

// hostName returns the host name of a Pod; "" leaves it to kubelet.
func hostName(name string) string {
	name, _, _ = strings.Cut(name, ".")
	if len(validation.IsDNS1123Label(name)) > 0 {
		return ""
	}
	return name
}
