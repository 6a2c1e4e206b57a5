package pod

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/launcher"
	"github.com/keelson-dev/keelson/internal/node"
)

func quantity(text string) *resource.Quantity { return ptr.To(resource.MustParse(text)) }

// emulated are the processors of guests without KVM.
var emulated = processors{ratio: 10}

func newMachine() backend.Machine {
	return backend.Machine{
		Identity: backend.Identity{UID: "0b5b4d8e-0000-4000-8000-0000000000cc", Namespace: "default", Name: "vm", Cluster: "cluster"},
		MilliCPU: 2000, MemoryBytes: 512 << 20, Hash: "1",
		Ports: []v1alpha1.Port{{Name: "ssh", Port: 22, Protocol: v1alpha1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: v1alpha1.ProtocolUDP}},
	}
}

func TestValidate(t *testing.T) {
	for field, change := range map[string]func(*backend.Machine){
		"": func(m *backend.Machine) {
			m.DiskBytes, m.SleepsOnSchedule, m.Pod.EvictionPolicy, m.Display = 1<<30, true, v1alpha1.EvictionSleep, v1alpha1.DisplayVGA
			m.TakesSnapshots, m.IsRestored = true, true
		},
		"spec.image":                func(m *backend.Machine) { m.Image = &v1alpha1.Image{ImageSource: v1alpha1.ImageSource{Path: "/disk"}} },
		"spec.resource.rootDisk":    func(m *backend.Machine) { m.Image = &v1alpha1.Image{Container: "disk:v1"} },
		"spec.network":              func(m *backend.Machine) { m.Network = &v1alpha1.Network{} },
		"spec.disks":                func(m *backend.Machine) { m.Disks = []backend.Disk{{Name: "data"}} },
		"spec.firmware":             func(m *backend.Machine) { m.Firmware = v1alpha1.FirmwareUEFI },
		"spec.onHostShutdown":       func(m *backend.Machine) { m.SleepsAtShutdown = true },
		"spec.powerSchedule":        func(m *backend.Machine) { m.SleepsOnSchedule = true },                     // without a disk
		"spec.pod.evictionPolicy":   func(m *backend.Machine) { m.Pod.EvictionPolicy = v1alpha1.EvictionSleep }, // without a disk
		"spec.idle":                 func(m *backend.Machine) { m.SleepsWhenIdle = true },
		"spec.resource.cpu":         func(m *backend.Machine) { m.MilliCPU = 1500 },
		"spec.pod.storageClassName": func(m *backend.Machine) { m.Pod.Storage, m.Pod.StorageClassName = v1alpha1.StorageEphemeral, "fast" },
		"spec.image.snapshot": func(m *backend.Machine) {
			m.Pod.Storage, m.Image = v1alpha1.StorageEphemeral, &v1alpha1.Image{Snapshot: "gold"}
		},
		"spec.disks[].deletePolicy": func(m *backend.Machine) {
			m.Pod.Storage, m.Disks = v1alpha1.StorageEphemeral, []backend.Disk{{Name: "data", SizeBytes: 1 << 20, Retain: true}}
		},
		"spec.cloudInit": func(m *backend.Machine) { m.Seed = &backend.Seed{UserData: strings.Repeat("x", maxSeed+1)} },
	} {
		machine := newMachine()
		change(&machine)
		err := Validate(&machine)
		var wrong *backend.FieldError
		if errors.As(err, &wrong) != (field != "") || wrong != nil && wrong.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	twice := newMachine()
	twice.CDROM, twice.Firmware = &v1alpha1.Image{}, v1alpha1.FirmwareUEFI
	for range 100 { // a message that alternates would be written again and again
		if wrong := (*backend.FieldError)(nil); !errors.As(Validate(&twice), &wrong) || wrong.Field != "spec.cdrom" {
			t.Fatalf("two fields: %v", wrong)
		}
	}
	fork := newMachine()
	fork.Image, fork.SleepsOnSchedule = &v1alpha1.Image{Snapshot: "before"}, true
	if err := Validate(&fork); err != nil {
		t.Errorf("a machine of a snapshot: %v", err)
	}
}

func TestPod(t *testing.T) {
	machine := newMachine()
	pod := newPod(&record{Started: &machine, Run: "run", SeedSum: "sum"}, images{launcher: "launcher:v1", guest: "guest:v1"}, emulated, false)
	if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != machine.UID || owner.Name != machine.Name {
		t.Errorf("its controller is %+v", owner)
	}
	c := pod.Spec.Containers[0]
	if got, want := c.Resources.Requests.Memory().Value(), int64(512+64+2*32)<<20; got != want || c.Resources.Limits.Memory().Value() != want {
		t.Errorf("requests memory %d, want %d", got, want)
	}
	if got := c.Resources.Requests.Cpu().MilliValue(); got != 200 {
		t.Errorf("requests %dm", got)
	}
	if len(c.Ports) != 2 || c.Ports[1].ContainerPort != 53 || c.Ports[1].Protocol != corev1.ProtocolUDP {
		t.Errorf("ports %+v", c.Ports)
	}
	definition, ok := definitionOf(pod)
	withDisplay := definition
	withDisplay.Display = true
	resources := newResources(&withDisplay, 10)
	if got, want := resources.Requests.Memory().Value(), int64(512+64+64+2*32)<<20; got != want {
		t.Errorf("with a display, it requests memory %d, want %d", got, want)
	}
	withDisks := definition
	withDisks.DiskBytes, withDisks.Disks = 20<<30, []launcher.Disk{{Name: "huge", Bytes: 1 << 40}, {Name: "small", Bytes: 1 << 30}}
	resources = newResources(&withDisks, 10)
	if got, want := resources.Requests.Memory().Value(), int64(512+64+2*32+2+32)<<20; got != want {
		t.Errorf("with large disks, it requests memory %d, want %d", got, want)
	}
	if !ok || definition.CPUs != 2 || definition.HasDisk() || definition.ReadyPort != firstReadyPort {
		t.Errorf("definition %+v", definition)
	}
	if id := identityOf(pod); id != machine.Identity {
		t.Errorf("identity %+v", id)
	}
	sources := map[string]corev1.VolumeSource{}
	for _, volume := range pod.Spec.Volumes {
		sources[volume.Name] = volume.VolumeSource
	}
	if sources["guest"].Image.Reference != "guest:v1" || len(sources) != 3 {
		t.Errorf("volumes %+v", sources)
	}
	if items := sources["seed"].Secret.Items; slices.ContainsFunc(items, func(item corev1.KeyToPath) bool { return item.Key == recordKey }) || len(items) == 0 {
		t.Errorf("the launcher gets %+v", items)
	}
}

// With a device plugin for KVM, the Pod requests its device, and memory for page tables instead of translated code.
func TestPodWithKVM(t *testing.T) {
	const device = "devices.kubevirt.io/kvm"
	machine := newMachine()
	rec := &record{Started: &machine, Run: "run", SeedSum: "sum"}
	pod := newPod(rec, images{launcher: "launcher:v1", guest: "guest:v1"}, processors{ratio: 10, kvm: device, group: 107}, false)
	resources := pod.Spec.Containers[0].Resources
	if requested, limit := resources.Requests[device], resources.Limits[device]; requested.Value() != 1 || limit.Value() != 1 {
		t.Errorf("resources %+v", resources)
	}
	if got, want := resources.Requests.Memory().Value(), int64(512+64+2)<<20; got != want || resources.Limits.Memory().Value() != want {
		t.Errorf("requests memory %d, want %d", got, want)
	}
	if groups := pod.Spec.SecurityContext.SupplementalGroups; !slices.Equal(groups, []int64{107}) {
		t.Errorf("groups %v", groups)
	}
	if definition, ok := definitionOf(pod); !ok || !definition.KVM {
		t.Errorf("definition %+v", definition)
	}
	rec.Machine, rec.Fill = machine, &fill{}
	if filling := newFillPod(rec, images{launcher: "launcher:v1"}, processors{ratio: 10, kvm: device}); !equality.Semantic.DeepEqual(filling.Spec.Containers[0].Resources, resources) {
		t.Errorf("the Pod that makes its disks, and decides about their node, requests other resources: %+v", filling)
	}
	if server, err := describe(nil, pod, nil, time.Now()); err != nil || server.Emulated {
		t.Errorf("emulated %t, %v", server.Emulated, err)
	}
}

// The disks of an ephemeral machine are on the storage of the node, which the scheduler counts.
func TestEphemeralPod(t *testing.T) {
	machine := newMachine()
	machine.Pod.Storage, machine.DiskBytes, machine.Disks = v1alpha1.StorageEphemeral, 1<<30, []backend.Disk{{Name: "data", SizeBytes: 1 << 30}}
	pod := newPod(&record{Started: &machine, Run: "run", SeedSum: "sum"}, images{launcher: "launcher:v1", guest: "guest:v1"}, emulated, false)
	const limit = 1089 << 20 // 1 GiB, 1/16, and 1 MiB
	for _, volume := range pod.Spec.Volumes {
		if isDisk := strings.HasPrefix(volume.Name, "disk"); isDisk && (volume.EmptyDir == nil || volume.EmptyDir.SizeLimit.Value() != limit) {
			t.Errorf("volume %+v", volume)
		}
	}
	if got := pod.Spec.Containers[0].Resources.Requests.StorageEphemeral().Value(); got != 2*limit {
		t.Errorf("it requests storage of %d bytes", got)
	}
	if definition, ok := definitionOf(pod); !ok || definition.CanSleep() {
		t.Errorf("definition %+v", definition)
	}
}

// A Pod in the cache describes a machine as that in the API does.
func TestSlim(t *testing.T) {
	machine := newMachine()
	rec := &record{Machine: machine, Started: &machine, Run: "run"}
	secret := newSecret(recordNamespace, rec, nil)
	pod := newPod(rec, images{launcher: "launcher:v1", guest: "guest:v1"}, emulated, false)
	pod.Spec.NodeName = "node-1"
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: container, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
	}
	now := time.Unix(1000, 0)
	whole := pod.DeepCopy()
	for range 2 { // an informer may transform an object again
		if got, err := slim(pod); got != pod || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
	}
	if len(pod.Spec.Volumes) > 0 || pod.Spec.Containers[0].ReadinessProbe != nil {
		t.Errorf("the cache has %+v", pod.Spec)
	}
	for _, deleted := range []*metav1.Time{nil, {Time: now}, {Time: now.Add(-time.Hour)}} { // it runs, ends, and is lost
		whole.DeletionTimestamp, pod.DeletionTimestamp = deleted, deleted
		want, wantErr := describe(secret, whole, nil, now)
		got, err := describe(secret, pod, nil, now)
		if diff := cmp.Diff(want, got); diff != "" || errors.Join(wantErr, err) != nil {
			t.Errorf("%v, %v (-API +cache):\n%s", wantErr, err, diff)
		}
	}
}

func TestPodTemplate(t *testing.T) {
	machine := newMachine()
	machine.Pod.StorageClassName, machine.DiskBytes, machine.Set = "fast", 1<<30, "web"
	machine.Pod.Template = &v1alpha1.PodTemplate{
		Metadata: v1alpha1.PodMetadata{Labels: map[string]string{"app": "shop", labelUID: "other"}, Annotations: map[string]string{"team": "a"}},
		Spec: v1alpha1.PodScheduling{
			NodeSelector: map[string]string{"disk": "ssd"}, PriorityClassName: "high",
			Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
		},
	}
	pod := newPod(&record{Started: &machine, Run: "run", SeedSum: "sum"}, images{launcher: "launcher:v1", guest: "guest:v1"}, emulated, false)
	if pod.Labels["app"] != "shop" || pod.Labels[v1alpha1.LabelSet] != "web" || pod.Labels[labelUID] != string(machine.UID) || pod.Annotations["team"] != "a" || pod.Annotations[annotationRun] != "run" {
		t.Errorf("labels %v, annotations %v", pod.Labels, pod.Annotations)
	}
	if pod.Spec.NodeSelector["disk"] != "ssd" || pod.Spec.PriorityClassName != "high" || len(pod.Spec.Tolerations) != 1 || !ptr.Deref(pod.Spec.SecurityContext.RunAsNonRoot, false) {
		t.Errorf("%+v", pod.Spec)
	}
	if len(machine.Pod.Template.Metadata.Labels) != 2 {
		t.Errorf("the machine has the labels %v now", machine.Pod.Template.Metadata.Labels)
	}
	if class := newClaim(&machine, disksOf(&machine)[0]).Spec.StorageClassName; ptr.Deref(class, "") != "fast" {
		t.Errorf("the class of the volume is %v", class)
	}
	machine.Pod.StorageClassName = ""
	if class := newClaim(&machine, disksOf(&machine)[0]).Spec.StorageClassName; class != nil {
		t.Errorf("the class of the volume is %q, and not the default", *class)
	}
}

func TestPendingDisks(t *testing.T) {
	running := []launcher.Disk{{Name: "a", Bytes: 1 << 20}, {Name: "b", Bytes: 1 << 20}}
	for name, test := range map[string]struct {
		wanted  []launcher.Disk
		refused string
		want    []backend.PendingDisk
	}{
		"the same":  {wanted: running},
		"one added": {wanted: append(slices.Clone(running), launcher.Disk{Name: "c", Bytes: 1 << 20}), want: []backend.PendingDisk{{Name: "c", Message: "it is added when the machine restarts"}}},
		"one grows": {wanted: []launcher.Disk{{Name: "a", Bytes: 2 << 20}, running[1]}, want: []backend.PendingDisk{{Name: "a", Message: "it grows when the machine restarts"}}},
		"one was not allowed to grow": {
			wanted: []launcher.Disk{{Name: "a", Bytes: 2 << 20}, running[1]}, refused: "no", want: []backend.PendingDisk{{Name: "a", Message: "no"}},
		},
		"one removed": {wanted: running[1:], want: []backend.PendingDisk{{Name: "a", Message: "it is removed when the machine restarts"}}},
	} {
		if diff := cmp.Diff(test.want, pendingDisks(running, test.wanted, test.refused)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestReadyPortIsFree(t *testing.T) {
	machine := newMachine()
	machine.Ports = []v1alpha1.Port{{Port: firstReadyPort, Protocol: v1alpha1.ProtocolTCP}, {Port: firstReadyPort + 1, Protocol: v1alpha1.ProtocolUDP}}
	if got := newDefinition(&machine).ReadyPort; got != firstReadyPort+1 {
		t.Errorf("port %d", got)
	}
}

func TestImageWithItsDisk(t *testing.T) {
	machine := newMachine()
	machine.Image, machine.DiskBytes = &v1alpha1.Image{Container: "disk:v1", Agent: ptr.To(false)}, 1<<30
	pod := newPod(&record{Started: &machine, Run: "run", SeedSum: "sum"}, images{launcher: "launcher:v1", guest: "guest:v1"}, emulated, false)
	var names []string
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		names = append(names, mount.MountPath)
	}
	if want := []string{launcher.RunDir, launcher.SeedDir, launcher.ImageDir, launcher.DiskDir}; !slices.Equal(names, want) {
		t.Errorf("mounts %q, want %q", names, want)
	}
	if d := newDefinition(&machine); !d.NoAgent || !d.Image || d.CodeMiB != imageCode {
		t.Errorf("definition %+v", d)
	}
	if claim := newClaim(&machine, disksOf(&machine)[0]); claim.Spec.Resources.Requests.Storage().Value() != 1633<<20 { // 1 GiB and 512 MiB, 1/16 of both, and 1 MiB
		t.Errorf("claim of %s", claim.Spec.Resources.Requests.Storage())
	}
}

// A claim that does not grow has room for the disk that it was made for.
func TestDiskInClaim(t *testing.T) {
	for _, disk := range []int64{1 << 20, 16 << 20, 17 << 20, 1000 << 20, 1 << 30, 10 << 30, 3<<40 + 7<<20} {
		if got := diskIn(claimSize(disk)); got != disk {
			t.Errorf("the claim of a disk of %d bytes has room for %d", disk, got)
		}
	}
	if got := diskIn(*quantity("1")); got != 1<<20 {
		t.Errorf("a claim of 1 byte has room for %d", got)
	}
}

func TestPullPolicy(t *testing.T) {
	for image, want := range map[string]corev1.PullPolicy{
		node.OwnImages + "launcher:1": corev1.PullNever, "images.example/keelson-launcher:v1": corev1.PullIfNotPresent, "keelson-launcher:v1": corev1.PullIfNotPresent,
	} {
		if got := pullPolicy(image); got != want {
			t.Errorf("%s: %s, want %s", image, got, want)
		}
	}
}
