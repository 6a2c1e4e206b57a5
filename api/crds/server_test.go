package crds_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// resources says how the API server calls each kind in its paths.
var resources = map[string]schema.GroupVersionResource{
	"Foo":            {Group: "samplecontroller.k8s.io", Version: "v1alpha1", Resource: "foos"},
	"SampleResource": {Group: "example.com", Version: "v1", Resource: "sampleresources"},
	"CronTab":        {Group: "stable.example.com", Version: "v1", Resource: "crontabs"},
	"VirtualMachine": {Group: "cloudnative.tw", Version: "v1alpha1", Resource: "virtualmachines"},

	"VirtualDisk":         {Group: "cloudnative.tw", Version: "v1alpha1", Resource: "virtualdisks"},
	"VirtualMachineImage": {Group: "cloudnative.tw", Version: "v1alpha1", Resource: "virtualmachineimages"},

	"VirtualMachineSet":      {Group: "cloudnative.tw", Version: "v1alpha1", Resource: "virtualmachinesets"},
	"VirtualMachineSnapshot": {Group: "cloudnative.tw", Version: "v1alpha1", Resource: "virtualmachinesnapshots"},

	// Pages have examples of it.
	"HorizontalPodAutoscaler": {Group: "autoscaling", Version: "v2", Resource: "horizontalpodautoscalers"},
}

func TestDefinitionsAreEstablished(t *testing.T) {
	client, err := apiextensions.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, crd := range all(t) {
		seen, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), crd.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[apiextensionsv1.CustomResourceDefinitionConditionType]string{}
		for _, condition := range seen.Status.Conditions {
			got[condition.Type] = string(condition.Status) + " " + condition.Reason
		}
		want := map[apiextensionsv1.CustomResourceDefinitionConditionType]string{
			apiextensionsv1.NamesAccepted: "True NoConflicts",
			apiextensionsv1.Established:   "True InitialNamesAccepted",
		}
		if strings.HasSuffix(crd.Spec.Group, ".k8s.io") {
			want[apiextensionsv1.KubernetesAPIApprovalPolicyConformant] = "False UnapprovedAnnotation"
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("conditions of %s (-want +got):\n%s", crd.Name, diff)
		}
	}
}

// create asks the API server to create object, strictly and without storing it.
func create(t *testing.T, namespace string, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	t.Helper()
	client, err := dynamic.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	resource, ok := resources[object.GetKind()]
	if !ok {
		t.Fatalf("kind %s is not in the list of this test", object.GetKind())
	}
	if isClusterScoped[object.GetKind()] {
		namespace = ""
	}
	return client.Resource(resource).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{
		DryRun: []string{metav1.DryRunAll}, FieldValidation: metav1.FieldValidationStrict,
	})
}

// newObject returns an object of kind with a spec, which is JSON. An empty name is
// "test".
func newObject(t *testing.T, kind, name, spec string) *unstructured.Unstructured {
	t.Helper()
	var content any
	if err := json.Unmarshal([]byte(spec), &content); err != nil {
		t.Fatalf("spec %s: %v", spec, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": content}}
	object.SetGroupVersionKind(resources[kind].GroupVersion().WithKind(kind))
	if name == "" {
		name = "test"
	}
	object.SetName(name)
	return object
}

func TestAccepted(t *testing.T) {
	namespace := env.Namespace(t)
	long := strings.Repeat("a", 253)
	tests := []struct {
		name, kind, object, spec, want string
	}{{
		name: "a Foo gets one replica and the default image", kind: "Foo",
		spec: `{"deploymentName":"a"}`,
		want: `{"deploymentName":"a","image":"nginx:latest","replicas":1}`,
	}, {
		name: "null is as good as nothing", kind: "Foo",
		spec: `{"deploymentName":"a","image":null,"replicas":null}`,
		want: `{"deploymentName":"a","image":"nginx:latest","replicas":1}`,
	}, {
		name: "a Foo of no replicas", kind: "Foo",
		spec: `{"deploymentName":"a","replicas":0,"image":"registry:5000/team/app@sha256:00"}`,
		want: `{"deploymentName":"a","image":"registry:5000/team/app@sha256:00","replicas":0}`,
	}, {
		name: "the longest names that are possible", kind: "Foo", object: long,
		spec: `{"deploymentName":"` + long[:242] + `"}`,
		want: `{"deploymentName":"` + long[:242] + `","image":"nginx:latest","replicas":1}`,
	}, {
		name: "a SampleResource", kind: "SampleResource", object: long,
		spec: `{"podImage":"nginx:latest"}`,
		want: `{"podImage":"nginx:latest"}`,
	}, {
		name: "a VirtualMachine of which nothing is said", kind: "VirtualMachine", object: long,
		spec: `{}`,
		want: `{"action":"active","diskPolicy":"Delete","firmware":"BIOS","resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","terminationGracePeriodSeconds":30}`,
	}, {
		name: "a VirtualMachine with a part of a processor", kind: "VirtualMachine",
		spec: `{"driver":"docker","resource":{"cpu":"500m"},"image":{"container":"debian:12"}}`,
		want: `{"action":"active","diskPolicy":"Delete","driver":"docker","firmware":"BIOS","image":{"agent":true,"container":"debian:12"},"resource":{"cpu":"500m","memory":"512Mi"},"restartPolicy":"Always","terminationGracePeriodSeconds":30}`,
	}, {
		name: "a VirtualMachine with everything", kind: "VirtualMachine",
		spec: `{"action":"paused","resource":{"cpu":"4","memory":34359738368,"rootDisk":"40G"},"restartPolicy":"OnFailure","restartRequestedAt":"2026-01-02T03:04:05Z",
			"image":{"url":"https://a/b.qcow2","sha256":"` + strings.Repeat("0a", 32) + `","format":"qcow2","agent":false},
			"cloudInit":{"userDataFrom":{"name":"a","key":"b"},"networkData":"version: 2"},
			"ports":[{"name":"ssh","port":22},{"name":"dns","port":53,"protocol":"UDP"}],
			"disks":[{"name":"data","size":"10Gi"},{"name":"a-name-with-20-chars","image":{"path":"/a"},"deletePolicy":"Retain"}],
			"cdrom":{"image":{"path":"/b.iso"}},"firmware":"UEFI","cpuModel":"Skylake-Server-v4",
			"driver":"qemu","diskPolicy":"Retain","terminationGracePeriodSeconds":0}`,
		want: `{"action":"paused","resource":{"cpu":"4","memory":34359738368,"rootDisk":"40G"},"restartPolicy":"OnFailure","restartRequestedAt":"2026-01-02T03:04:05Z",
			"image":{"url":"https://a/b.qcow2","sha256":"` + strings.Repeat("0a", 32) + `","format":"qcow2","agent":false},
			"cloudInit":{"userDataFrom":{"name":"a","key":"b"},"networkData":"version: 2"},
			"ports":[{"name":"ssh","port":22,"protocol":"TCP"},{"name":"dns","port":53,"protocol":"UDP"}],
			"disks":[{"name":"data","size":"10Gi","deletePolicy":"Delete"},{"name":"a-name-with-20-chars","image":{"path":"/a"},"deletePolicy":"Retain"}],
			"cdrom":{"image":{"path":"/b.iso"}},"firmware":"UEFI","cpuModel":"Skylake-Server-v4",
			"driver":"qemu","diskPolicy":"Retain","terminationGracePeriodSeconds":0}`,
	}, {
		name: "a VirtualMachine of a named image", kind: "VirtualMachine",
		spec: `{"image":{"name":"debian-13"}}`,
		want: `{"action":"active","diskPolicy":"Delete","firmware":"BIOS","image":{"agent":true,"name":"debian-13"},"resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","terminationGracePeriodSeconds":30}`,
	}, {
		name: "a VirtualMachineImage", kind: "VirtualMachineImage",
		spec: `{"path":"/srv/a.qcow2"}`,
		want: `{"agent":true,"path":"/srv/a.qcow2"}`,
	}, {
		name: "a VirtualMachine with a VirtualDisk", kind: "VirtualMachine",
		spec: `{"disks":[{"name":"data","virtualDisk":"a.b-c"}]}`,
		want: `{"action":"active","diskPolicy":"Delete","disks":[{"deletePolicy":"Delete","name":"data","virtualDisk":"a.b-c"}],"firmware":"BIOS","resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","terminationGracePeriodSeconds":30}`,
	}, {
		name: "a VirtualMachineSnapshot", kind: "VirtualMachineSnapshot",
		spec: `{"virtualMachineName":"web","allowedNamespaces":["team-b"]}`,
		want: `{"allowedNamespaces":["team-b"],"virtualMachineName":"web"}`,
	}, {
		name: "a VirtualMachine of a snapshot", kind: "VirtualMachine",
		spec: `{"image":{"snapshot":"before","snapshotNamespace":"shared"}}`,
		want: `{"action":"active","diskPolicy":"Delete","firmware":"BIOS","image":{"agent":true,"snapshot":"before","snapshotNamespace":"shared"},"resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","terminationGracePeriodSeconds":30}`,
	}, {
		name: "a VirtualMachine with snapshots on a schedule", kind: "VirtualMachine",
		spec: `{"snapshots":{"schedule":"0 3 * * *","timeZone":"Europe/Berlin","keep":14,"memory":true,"allowedNamespaces":["team-b"],"suspend":true}}`,
		want: `{"action":"active","diskPolicy":"Delete","firmware":"BIOS","resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","snapshots":{"allowedNamespaces":["team-b"],"keep":14,"memory":true,"schedule":"0 3 * * *","suspend":true,"timeZone":"Europe/Berlin"},"terminationGracePeriodSeconds":30}`,
	}, {
		name: "a VirtualMachine with a restore", kind: "VirtualMachine",
		spec: `{"restore":{"snapshot":"before","requestedAt":"2026-11-25T18:00:00Z","keepCurrent":false}}`,
		want: `{"action":"active","diskPolicy":"Delete","firmware":"BIOS","resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","restore":{"keepCurrent":false,"requestedAt":"2026-11-25T18:00:00Z","snapshot":"before"},"terminationGracePeriodSeconds":30}`,
	}, {
		name: "a VirtualMachineSet", kind: "VirtualMachineSet",
		spec: `{"template":{"metadata":{"labels":{"app":"web"}}},"virtualDiskTemplates":[{"name":"data","spec":{"size":"1Gi"}}]}`,
		want: `{"replicas":1,"template":{"metadata":{"labels":{"app":"web"}},"spec":{"action":"active","diskPolicy":"Delete","firmware":"BIOS","resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","terminationGracePeriodSeconds":30}},"updateStrategy":{"rollingUpdate":{"maxUnavailable":1}},"virtualDiskTemplates":[{"name":"data","spec":{"deletePolicy":"Delete","size":"1Gi"}}]}`,
	}, {
		name: "a VirtualMachineSet that is changed by percent", kind: "VirtualMachineSet",
		spec: `{"template":{},"updateStrategy":{"rollingUpdate":{"maxUnavailable":"25%"}}}`,
		want: `{"replicas":1,"template":{"spec":{"action":"active","diskPolicy":"Delete","firmware":"BIOS","resource":{"cpu":1,"memory":"512Mi"},"restartPolicy":"Always","terminationGracePeriodSeconds":30}},"updateStrategy":{"rollingUpdate":{"maxUnavailable":"25%"}}}`,
	}, {
		name: "a VirtualDisk", kind: "VirtualDisk",
		spec: `{"size":"1Gi"}`,
		want: `{"deletePolicy":"Delete","size":"1Gi"}`,
	}, {
		name: "a VirtualDisk of an image", kind: "VirtualDisk",
		spec: `{"image":{"name":"debian-13"},"deletePolicy":"Retain"}`,
		want: `{"image":{"name":"debian-13"},"deletePolicy":"Retain"}`,
	}, {
		name: "a clone", kind: "VirtualDisk",
		spec: `{"from":{"virtualDisk":"golden"},"size":"2Gi"}`,
		want: `{"from":{"virtualDisk":"golden"},"size":"2Gi","deletePolicy":"Delete"}`,
	}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := create(t, namespace, newObject(t, tt.kind, tt.object, tt.spec))
			if err != nil {
				t.Fatalf("it was refused: %v", err)
			}
			want := newObject(t, tt.kind, "", tt.want)
			if diff := cmp.Diff(want.Object["spec"], got.Object["spec"]); diff != "" {
				t.Errorf("stored spec (-want +got):\n%s", diff)
			}
		})
	}
}

// numbered returns the items of a list, each with its number.
func numbered(count int, format string) string {
	var items []string
	for i := range count {
		items = append(items, fmt.Sprintf(format, i))
	}
	return strings.Join(items, ",")
}

func TestRefused(t *testing.T) {
	namespace := env.Namespace(t)
	tests := []struct {
		name, kind, spec string
		// field is the path that the error names, says a part of its text.
		field, says string
	}{
		{"a Foo without a Deployment", "Foo", `{}`, "spec.deploymentName", "Required"},
		{"an empty Deployment name", "Foo", `{"deploymentName":""}`, "spec.deploymentName", "at least 1 char"},
		{"a Deployment name in upper case", "Foo", `{"deploymentName":"Web"}`, "spec.deploymentName", "must be a valid Deployment name"},
		{"a Deployment name that ends in a hyphen", "Foo", `{"deploymentName":"web-"}`, "spec.deploymentName", "must be a valid Deployment name"},
		{"a Deployment name that leaves no room for a ReplicaSet's", "Foo", `{"deploymentName":"` + strings.Repeat("a", 243) + `"}`, "spec.deploymentName", "may not be more than 242"},
		{"negative replicas", "Foo", `{"deploymentName":"a","replicas":-1}`, "spec.replicas", "greater than or equal to 0"},
		{"replicas beyond 32 bits", "Foo", `{"deploymentName":"a","replicas":2147483648}`, ".spec.replicas", "less than or equal to 2147483647"},
		{"replicas in words", "Foo", `{"deploymentName":"a","replicas":"three"}`, "spec.replicas", "must be of type integer"},
		{"an empty image", "Foo", `{"deploymentName":"a","image":""}`, "spec.image", "at least 1 char"},
		{"white space around an image", "Foo", `{"deploymentName":"a","image":" nginx"}`, "spec.image", "white space"},
		{"a SampleResource without an image", "SampleResource", `{}`, "spec.podImage", "Required"},
		{"an empty Pod image", "SampleResource", `{"podImage":""}`, "spec.podImage", "at least 1 char"},
		{"white space around a Pod image", "SampleResource", `{"podImage":"nginx\n"}`, "spec.podImage", "white space"},
		{"a Pod image that is too long", "SampleResource", `{"podImage":"` + strings.Repeat("a", 1025) + `"}`, "spec.podImage", "may not be more than 1024"},
		{"another action", "VirtualMachine", `{"action":"reboot"}`, "spec.action", `"active", "stopped", "paused"`},
		{"no processor", "VirtualMachine", `{"resource":{"cpu":0}}`, "spec.resource.cpu", "more than 0"},
		{"a thousandth of memory", "VirtualMachine", `{"resource":{"memory":"1Ki"}}`, "spec.resource.memory", "at least 32Mi"},
		{"processors that are no number", "VirtualMachine", `{"resource":{"cpu":true}}`, "spec.resource.cpu", "must be"},
		{"memory in words", "VirtualMachine", `{"resource":{"memory":"much"}}`, "spec.resource.memory", "should match"},
		{"a disk of nothing", "VirtualMachine", `{"resource":{"rootDisk":0}}`, "spec.resource.rootDisk", "at least 1Mi"},
		{"an image of nothing", "VirtualMachine", `{"image":{}}`, "spec.image", "exactly one of"},
		{"two images", "VirtualMachine", `{"image":{"path":"/a","kernel":"/b"}}`, "spec.image", "exactly one of"},
		{"an image by name and path", "VirtualMachine", `{"image":{"name":"a","path":"/a"}}`, "spec.image", "exactly one of"},
		{"a name that no image can have", "VirtualMachine", `{"image":{"name":"A"}}`, "spec.image.name", "should match"},
		{"the agent of a named image", "VirtualMachine", `{"image":{"name":"a","agent":false}}`, "spec.image.agent", "has its own field agent"},
		{"the format of a named image", "VirtualMachine", `{"image":{"name":"a","format":"raw"}}`, "spec.image.format", "by path or url"},
		{"a snapshot of nothing", "VirtualMachineSnapshot", `{}`, "spec.virtualMachineName", "Required value"},
		{"a snapshot and a path", "VirtualMachine", `{"image":{"snapshot":"a","path":"/a"}}`, "spec.image", "exactly one of"},
		{"a snapshot without an agent", "VirtualMachine", `{"image":{"snapshot":"a","agent":false}}`, "spec.image.agent", "that of its machine"},
		{"snapshots at no time", "VirtualMachine", `{"snapshots":{"keep":3}}`, "spec.snapshots.schedule", "Required value"},
		{"snapshots of the memory of a machine with UEFI firmware", "VirtualMachine", `{"firmware":"UEFI","snapshots":{"schedule":"@daily","memory":true}}`, "spec.snapshots.memory", "UEFI firmware or VirtualDisks"},
		{"snapshots of the memory of a machine with a VirtualDisk", "VirtualMachine", `{"disks":[{"name":"a","virtualDisk":"a"}],"snapshots":{"schedule":"@daily","memory":true}}`, "spec.snapshots.memory", "UEFI firmware or VirtualDisks"},
		{"a namespace without a snapshot", "VirtualMachine", `{"image":{"name":"a","snapshotNamespace":"b"}}`, "spec.image.snapshotNamespace", "goes with snapshot"},
		{"a snapshot of no namespace", "VirtualMachine", `{"image":{"snapshot":"a","snapshotNamespace":"B"}}`, "spec.image.snapshotNamespace", "should match"},
		{"a snapshot for all namespaces", "VirtualMachineSnapshot", `{"virtualMachineName":"a","allowedNamespaces":["*"]}`, "spec.allowedNamespaces[0]", "should match"},
		{"a snapshot for a namespace twice", "VirtualMachineSnapshot", `{"virtualMachineName":"a","allowedNamespaces":["b","b"]}`, "spec.allowedNamespaces[1]", "Duplicate value"},
		{"snapshots for all namespaces", "VirtualMachine", `{"snapshots":{"schedule":"@daily","allowedNamespaces":["*"]}}`, "spec.snapshots.allowedNamespaces[0]", "should match"},
		{"snapshots of which none is kept", "VirtualMachine", `{"snapshots":{"schedule":"@daily","keep":0}}`, "spec.snapshots.keep", "greater than or equal to 1"},
		{"a restore from nothing", "VirtualMachine", `{"restore":{"requestedAt":"2026-11-25T18:00:00Z"}}`, "spec.restore.snapshot", "Required value"},
		{"a restore that was requested at no time", "VirtualMachine", `{"restore":{"snapshot":"a"}}`, "spec.restore.requestedAt", "Required value"},
		{"a set of nothing", "VirtualMachineSet", `{}`, "spec.template", "Required value"},
		{"a set of a wrong machine", "VirtualMachineSet", `{"template":{"spec":{"image":{}}}}`, "spec.template.spec.image", "exactly one of"},
		{"less than no machine", "VirtualMachineSet", `{"replicas":-1,"template":{}}`, "spec.replicas", "greater than or equal to 0"},
		{"two disks of a name", "VirtualMachineSet", `{"template":{"spec":{"disks":[{"name":"a","size":"1Gi"}]}},"virtualDiskTemplates":[{"name":"a","spec":{"size":"1Gi"}}]}`, "spec.template.spec.disks", "has this name"},
		{"a label that is reserved", "VirtualMachineSet", `{"template":{"metadata":{"labels":{"cloudnative.tw/virtualmachineset":"a"}}}}`, "spec.template.metadata.labels", "reserved"},
		{"a roll-out of nothing", "VirtualMachineSet", `{"template":{},"updateStrategy":{"rollingUpdate":{"maxUnavailable":0}}}`, "spec.updateStrategy.rollingUpdate.maxUnavailable", "at least 1"},
		{"a roll-out of no percent", "VirtualMachineSet", `{"template":{},"updateStrategy":{"rollingUpdate":{"maxUnavailable":"0%"}}}`, "spec.updateStrategy.rollingUpdate.maxUnavailable", "from 1% to 100%"},
		{"a roll-out of more than all", "VirtualMachineSet", `{"template":{},"updateStrategy":{"rollingUpdate":{"maxUnavailable":"101%"}}}`, "spec.updateStrategy.rollingUpdate.maxUnavailable", "from 1% to 100%"},
		{"a roll-out of a text", "VirtualMachineSet", `{"template":{},"updateStrategy":{"rollingUpdate":{"maxUnavailable":"2"}}}`, "spec.updateStrategy.rollingUpdate.maxUnavailable", "from 1% to 100%"},
		{"a VirtualDisk of nothing", "VirtualDisk", `{}`, "spec", "must have a size, an image or a disk to clone"},
		{"a VirtualDisk of two things", "VirtualDisk", `{"image":{"path":"/a"},"from":{"virtualDisk":"a"}}`, "spec.from", "not both"},
		{"a VirtualDisk of no image", "VirtualDisk", `{"image":{}}`, "spec.image", "exactly one of"},
		{"a VirtualDisk of two images", "VirtualDisk", `{"image":{"name":"a","path":"/a"}}`, "spec.image", "exactly one of"},
		{"a VirtualDisk of the default guest", "VirtualDisk", `{"image":{"name":"tiny"}}`, "spec.image.name", "no image of a disk"},
		{"a VirtualDisk that is too small", "VirtualDisk", `{"size":1}`, "spec.size", "at least 1Mi"},
		{"a VirtualDisk with a size", "VirtualMachine", `{"disks":[{"name":"a","virtualDisk":"b","size":"1Gi"}]}`, "spec.disks[0].virtualDisk", "has its own size"},
		{"a VirtualDisk with an image", "VirtualMachine", `{"disks":[{"name":"a","virtualDisk":"b","image":{"path":"/a"}}]}`, "spec.disks[0].virtualDisk", "has its own size"},
		{"a VirtualDisk that is retained", "VirtualMachine", `{"disks":[{"name":"a","virtualDisk":"b","deletePolicy":"Retain"}]}`, "spec.disks[0].virtualDisk", "is kept"},
		{"a VirtualDisk twice", "VirtualMachine", `{"disks":[{"name":"a","virtualDisk":"b"},{"name":"c","virtualDisk":"b"}]}`, "spec.disks", "once"},
		{"an image without a source", "VirtualMachineImage", `{}`, "spec", "exactly one of url and path"},
		{"an image with two sources", "VirtualMachineImage", `{"path":"/a","url":"https://a/b","sha256":"` + strings.Repeat("0a", 32) + `"}`, "spec", "exactly one of url and path"},
		{"an unverified image", "VirtualMachineImage", `{"url":"https://a/b"}`, "spec.sha256", "go together"},
		{"a verified file", "VirtualMachineImage", `{"path":"/a","sha256":"` + strings.Repeat("0a", 32) + `"}`, "spec.sha256", "go together"},
		{"an image of another format", "VirtualMachineImage", `{"path":"/a","format":"vmdk"}`, "spec.format", "Unsupported value"},
		{"an image without a digest", "VirtualMachine", `{"image":{"url":"https://a/b"}}`, "spec.image.sha256", "go together"},
		{"a digest of another length", "VirtualMachine", `{"image":{"url":"https://a/b","sha256":"00"}}`, "spec.image.sha256", "should match"},
		{"a relative path", "VirtualMachine", `{"image":{"path":"a"}}`, "spec.image.path", "should match"},
		{"a path with another option in it", "VirtualMachine", `{"image":{"path":"/a,readonly=off"}}`, "spec.image.path", "should match"},
		{"a command line without a kernel", "VirtualMachine", `{"image":{"path":"/a","cmdline":"quiet"}}`, "spec.image.kernel", "go with a kernel"},
		{"user data twice", "VirtualMachine", `{"cloudInit":{"userData":"a","userDataFrom":{"name":"a","key":"b"}}}`, "spec.cloudInit.userData", "not both"},
		{"a port beyond the last", "VirtualMachine", `{"ports":[{"name":"a","port":65536}]}`, "spec.ports[0].port", "less than or equal to 65535"},
		{"a port twice", "VirtualMachine", `{"ports":[{"name":"a","port":1},{"name":"a","port":2}]}`, "spec.ports[1]", "Duplicate"},
		{"more user data than there is room for", "VirtualMachine", `{"cloudInit":{"userData":"` + strings.Repeat("a", 65537) + `"}}`, "spec.cloudInit.userData", "may not be more than 65536"},
		{"more network data than there is room for", "VirtualMachine", `{"cloudInit":{"networkData":"` + strings.Repeat("a", 65537) + `"}}`, "spec.cloudInit.networkData", "may not be more than 65536"},
		{"65 ports", "VirtualMachine", `{"ports":[` + numbered(65, `{"name":"a%d","port":1%[1]d}`) + `]}`, "spec.ports", "at most 64 items"},
		{"a disk without anything", "VirtualMachine", `{"disks":[{"name":"a"}]}`, "spec.disks[0]", "a size, an image, or both"},
		{"a disk without a name", "VirtualMachine", `{"disks":[{"size":"1G"}]}`, "spec.disks[0].name", "Required"},
		{"a disk of nothing", "VirtualMachine", `{"disks":[{"name":"a","size":0}]}`, "spec.disks[0].size", "at least 1Mi"},
		{"a disk of two pebibytes", "VirtualMachine", `{"disks":[{"name":"a","size":"2Pi"}]}`, "spec.disks[0].size", "at most 1Pi"},
		{"a reserved name of a disk", "VirtualMachine", `{"disks":[{"name":"root","size":"1G"}]}`, "spec.disks[0].name", "are reserved"},
		{"a name of a disk that is no serial number", "VirtualMachine", `{"disks":[{"name":"` + strings.Repeat("a", 21) + `","size":"1G"}]}`, "spec.disks[0].name", "may not be more than 20"},
		{"a path as the name of a disk", "VirtualMachine", `{"disks":[{"name":"../a","size":"1G"}]}`, "spec.disks[0].name", "should match"},
		{"a disk twice", "VirtualMachine", `{"disks":[{"name":"a","size":"1G"},{"name":"a","size":"1G"}]}`, "spec.disks[1]", "Duplicate"},
		{"17 disks", "VirtualMachine", `{"disks":[` + numbered(17, `{"name":"a%d","size":"1G"}`) + `]}`, "spec.disks", "at most 16 items"},
		{"a disk of an image without a digest", "VirtualMachine", `{"disks":[{"name":"a","image":{"url":"https://a/b"}}]}`, "spec.disks[0].image.sha256", "go together"},
		{"an empty CD-ROM drive", "VirtualMachine", `{"cdrom":{"image":{}}}`, "spec.cdrom.image", "exactly one of path and url"},
		{"another firmware", "VirtualMachine", `{"firmware":"coreboot"}`, "spec.firmware", `"BIOS", "UEFI"`},
		{"a model of processors with options", "VirtualMachine", `{"cpuModel":"host,+vmx"}`, "spec.cpuModel", "should match"},
		{"a label of the driver pod", "VirtualMachine", `{"pod":{"template":{"metadata":{"labels":{"cloudnative.tw/virtualmachine-uid":"a"}}}}}`, "spec.pod.template.metadata.labels", "reserved"},
		{"an annotation of the driver pod", "VirtualMachine", `{"pod":{"template":{"metadata":{"annotations":{"cloudnative.tw/a":"b"}}}}}`, "spec.pod.template.metadata.annotations", "reserved"},
		{"a wrong field of the scheduling", "VirtualMachine", `{"pod":{"template":{"spec":{"topologySpreadConstraints":[{"maxSkew":1}]}}}}`, "spec.pod.template.spec.topologySpreadConstraints[0].topologyKey", "Required"},
		{"an unknown policy for a shutdown of the host", "VirtualMachine", `{"onHostShutdown":"hibernate"}`, "spec.onHostShutdown", `"Stop", "Sleep"`},
		{"an empty time to wake", "VirtualMachine", `{"powerSchedule":{"wake":"","sleep":"0 19 * * *"}}`, "spec.powerSchedule.wake", "at least 1"},
		{"a power schedule without times", "VirtualMachine", `{"powerSchedule":{"timeZone":"Europe/Berlin"}}`, "spec.powerSchedule", "must have wake, sleep or both"},
		{"asleep after seconds", "VirtualMachine", `{"idle":{"sleepAfter":"59s"}}`, "spec.idle.sleepAfter", "at least 1m"},
		{"idle without a time", "VirtualMachine", `{"idle":{"wakeOnConnection":false}}`, "spec.idle.sleepAfter", "Required"},
		{"an empty root disk without a size", "VirtualMachine", `{"image":{"empty":true}}`, "spec.image.empty", "needs a size"},
		{"no empty root disk", "VirtualMachine", `{"image":{"empty":false},"resource":{"rootDisk":"1G"}}`, "spec.image.empty", "true"},
		{"an isolated machine that others may reach", "VirtualMachine", `{"network":{"mode":"Isolated","allowFrom":[{"namespace":"b"}]}}`, "spec.network.allowFrom", "remove allowFrom or the mode"},
		{"a namespace that is none", "VirtualMachine", `{"network":{"allowFrom":[{"namespace":"B"}]}}`, "spec.network.allowFrom[0].namespace", "should match"},
		{"a namespace twice", "VirtualMachine", `{"network":{"allowFrom":[{"namespace":"b"},{"namespace":"b"}]}}`, "spec.network.allowFrom[1]", "Duplicate"},
		{"65 namespaces", "VirtualMachine", `{"network":{"allowFrom":[` + numbered(65, `{"namespace":"a%d"}`) + `]}}`, "spec.network.allowFrom", "at most 64 items"},
		{"a probe of nothing", "VirtualMachine", `{"readinessProbe":{}}`, "spec.readinessProbe", "exactly one of"},
		{"two probes", "VirtualMachine", `{"readinessProbe":{"tcpSocket":{"port":1},"httpGet":{"port":1}}}`, "spec.readinessProbe", "exactly one of"},
		{"a probe of a path elsewhere", "VirtualMachine", `{"readinessProbe":{"httpGet":{"port":1,"path":"http://a/"}}}`, "spec.readinessProbe.httpGet.path", "should match"},
		{"a probe without a pause", "VirtualMachine", `{"readinessProbe":{"tcpSocket":{"port":1},"periodSeconds":0}}`, "spec.readinessProbe.periodSeconds", "greater than or equal to 1"},
		{"negative waitTimeout", "VirtualMachine", `{"terminationGracePeriodSeconds":-1}`, "spec.terminationGracePeriodSeconds", "greater than or equal to 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := create(t, namespace, newObject(t, tt.kind, "", tt.spec))
			refusal(t, err, tt.field, tt.says)
		})
	}
}

// A misspelt field would otherwise be dropped without a word.
func TestUnknownFieldsAreRefused(t *testing.T) {
	_, err := create(t, env.Namespace(t), newObject(t, "Foo", "", `{"deploymentName":"a","replica":2}`))
	if !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), `unknown field "spec.replica"`) {
		t.Errorf("got %v, want a complaint about spec.replica", err)
	}
}

func TestExampleManifestsAreAccepted(t *testing.T) {
	namespace := env.Namespace(t)
	const directory = "../../examples/manifests/"
	for _, file := range []string{"crontab-backup.yaml", "crontab-minimal.yaml", "foo.yaml", "sampleresource.yaml", "virtualmachine.yaml"} {
		t.Run(file, func(t *testing.T) {
			raw, err := os.ReadFile(directory + file)
			if err != nil {
				t.Fatal(err)
			}
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(raw, &object.Object); err != nil {
				t.Fatal(err)
			}
			if _, err := create(t, namespace, object); err != nil {
				t.Errorf("it was refused: %v", err)
			}
		})
	}
}

// A machine keeps what its disk was made from, and the disk never shrinks.
func TestRefusedChanges(t *testing.T) {
	client, err := dynamic.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	machines := client.Resource(resources["VirtualMachine"]).Namespace(env.Namespace(t))
	object := newObject(t, "VirtualMachine", "", `{"action":"stopped","driver":"none","image":{"path":"/a"},"resource":{"rootDisk":"10G"},
		"restore":{"snapshot":"a","requestedAt":"2026-11-25T18:00:01Z"},"disks":[{"name":"a","size":"10G"},{"name":"b","image":{"path":"/a"}}]}`)
	if _, err := machines.Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, patch, says string }{
		{"a smaller disk", `{"spec":{"resource":{"rootDisk":"9G"}}}`, "can only grow"},
		{"no disk size", `{"spec":{"resource":{"rootDisk":null}}}`, "can only grow"},
		{"another image", `{"spec":{"image":{"path":"/b"}}}`, "spec.image: Invalid value"},
		{"no image", `{"spec":{"image":null}}`, "cannot be set or removed later"},
		{"a smaller further disk", `{"spec":{"disks":[{"name":"b","image":{"path":"/a"}},{"name":"a","size":"9G"}]}}`, "can only grow"},
		{"another image of a disk", `{"spec":{"disks":[{"name":"b","image":{"path":"/b"}}]}}`, "spec.disks[0].image: Invalid value"},
		{"no image of a disk", `{"spec":{"disks":[{"name":"b","size":"1G"}]}}`, "cannot be set or removed later"},
		{"another driver", `{"spec":{"driver":"other"}}`, "the machine stays where it was created"},
		{"another snapshot for a restore", `{"spec":{"restore":{"snapshot":"b"}}}`, "change spec.restore.requestedAt, too"},
		{"a StorageClass", `{"spec":{"pod":{"storageClassName":"fast"}}}`, "the disk stays in its volume"},
		{"no claims", `{"spec":{"pod":{"storage":"Ephemeral"}}}`, "the disks are in other volumes"},
		{"no driver", `{"spec":{"driver":null}}`, "cannot be set or removed later"},
	} {
		_, err := machines.Patch(t.Context(), "test", types.MergePatchType, []byte(tt.patch), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: got %v, want a refusal that says %q", tt.name, err, tt.says)
		}
	}
	_, err = machines.Patch(t.Context(), "test", types.MergePatchType, []byte(`{"spec":{"resource":{"rootDisk":"11G"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Errorf("a larger disk: %v", err)
	}
}

// A driver tells what a guest says. The API bounds it, too.
func TestServersThatTheAPIRefuses(t *testing.T) {
	client, err := dynamic.NewForConfig(env.Config(t))
	if err != nil {
		t.Fatal(err)
	}
	machines := client.Resource(resources["VirtualMachine"]).Namespace(env.Namespace(t))
	if _, err := machines.Create(t.Context(), newObject(t, "VirtualMachine", "", `{}`), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, addresses, says string }{
		{"16 addresses", numbered(16, `"10.0.0.%d"`), ""},
		{"a long one", `"` + strings.Repeat("f", 64) + `"`, ""},
		{"17 addresses", numbered(17, `"10.0.0.%d"`), "must have at most 16 items"},
		{"one that is too long", `"` + strings.Repeat("f", 65) + `"`, "Too long: may not be more than 64 bytes"},
	} {
		patch := `{"status":{"server":{"addresses":[` + tt.addresses + `]}}}`
		_, err := machines.Patch(t.Context(), "test", types.MergePatchType, []byte(patch), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if tt.says == "" && err != nil || tt.says != "" && (!apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tt.says)) {
			t.Errorf("%s: got %v, want a refusal that says %q", tt.name, err, tt.says)
		}
	}
}
