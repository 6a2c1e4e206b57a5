package crds_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/files"
)

// The page of a kind has every condition and reason. The reference page that it links to has every field.
func TestPages(t *testing.T) {
	for _, tt := range []struct {
		page, conditions string
		kinds            []string
		reasons          int // there are so many at least, or they were not found
	}{
		{page: "foo.md", conditions: "../samplecontroller/v1alpha1/conditions.go", kinds: []string{"Foo"}, reasons: 5},
		{page: "sampleresource.md", conditions: "../sample/v1/conditions.go", kinds: []string{"SampleResource"}, reasons: 5},
		{page: "crontab.md", conditions: "../stable/v1/conditions.go", kinds: []string{"CronTab"}, reasons: 10},
		{page: "cluster.md", conditions: "../clusterprovisioner/v1alpha1/conditions.go", kinds: []string{"Cluster", "Kubeconfig"},
			reasons: 30},
		{page: "cluster-snapshots.md", conditions: "../clusterprovisioner/v1alpha1/clustersnapshotconditions.go", kinds: []string{"ClusterSnapshot"}, reasons: 7},
		{page: "images.md", conditions: "../virtualmachine/v1alpha1/imageconditions.go", kinds: []string{"VirtualMachineImage"}, reasons: 6},
		{page: "virtual-disks.md", conditions: "../virtualmachine/v1alpha1/virtualdiskconditions.go", kinds: []string{"VirtualDisk"}, reasons: 6},
		{page: "snapshots.md", conditions: "../virtualmachine/v1alpha1/machinesnapshotconditions.go", kinds: []string{"VirtualMachineSnapshot"}, reasons: 6},
		{page: "virtualmachinesets.md", conditions: "../virtualmachine/v1alpha1/virtualmachinesetconditions.go", kinds: []string{"VirtualMachineSet"}, reasons: 11},
		{page: "virtualmachine-conditions.md", conditions: "../virtualmachine/v1alpha1/conditions.go", kinds: []string{"VirtualMachine"},
			reasons: 30},
	} {
		t.Run(tt.page, func(t *testing.T) {
			page := files.Read(t, "../../docs/"+tt.page)
			for _, crd := range all(t) {
				if !slices.Contains(tt.kinds, crd.Spec.Names.Kind) {
					continue
				}
				reference := "reference/" + strings.ToLower(crd.Spec.Names.Kind) + ".md"
				if !strings.Contains(page, "]("+reference+")") {
					t.Errorf("the page has no link to %s", reference)
				}
				fields := files.Read(t, "../../docs/"+reference)
				schema := crd.Spec.Versions[0].Schema.OpenAPIV3Schema
				for _, part := range []string{"spec", "status"} {
					checkFields(t, fields, part, schema.Properties[part])
				}
			}
			found := regexp.MustCompile(`(?m)^\t(?:Reason|Condition)\w+ = "(\w+)"$`).FindAllStringSubmatch(files.Read(t, tt.conditions), -1)
			if len(found) < tt.reasons {
				t.Fatalf("only %d reasons and conditions were found in the source", len(found))
			}
			for _, match := range found {
				if !regexp.MustCompile(`\b` + match[1] + `\b`).MatchString(page) {
					t.Errorf("the page does not name %s", match[1])
				}
			}
		})
	}
}

// elsewhere has fields whose types are those of Kubernetes, which has their fields in its own reference, or of another kind.
var elsewhere = []string{"spec.jobTemplate", "status.active", "status.conditions", "spec.template.spec", "spec.virtualDiskTemplates.spec"}

// checkFields fails the test for every field of a schema that the page does not name in the section of its object.
func checkFields(t *testing.T, page, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if schema.Items != nil {
		schema = *schema.Items.Schema
	}
	if len(schema.Properties) == 0 || slices.Contains(elsewhere, path) {
		return
	}
	_, section, _ := strings.Cut(page, "\n## "+path+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for field, inner := range schema.Properties {
		if !strings.Contains(section, "\n| `"+field+"` | ") {
			t.Errorf("the page does not name %s.%s", path, field)
		}
		checkFields(t, page, path+"."+field, inner)
	}
}

var isClusterScoped = map[string]bool{"Cluster": true, "ClusterSnapshot": true, "Kubeconfig": true, "VirtualMachineImage": true}

// The API server accepts every manifest of the pages that shows a whole object of Keelson.
func TestManifestsOfThePages(t *testing.T) {
	manifest := regexp.MustCompile("(?s)```yaml\n(apiVersion: .*?)```")
	namespace, found := env.Namespace(t), 0
	for _, path := range userPages(t) {
		for _, block := range manifest.FindAllStringSubmatch(files.Read(t, path), -1) {
			for text := range strings.SplitSeq(block[1], "\n---\n") {
				object := &unstructured.Unstructured{}
				if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
					t.Fatalf("%s: %v in\n%s", path, err, text)
				}
				if _, ours := resources[object.GetKind()]; !ours {
					continue
				}
				found++
				if _, err := create(t, namespace, object); err != nil {
					t.Errorf("%s: example %s was refused: %v", path, object.GetName(), err)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d manifests were found", found)
	}
}

// The documented backup has the objects of every kind, those of future ones, too: TestEveryKindHasTheSameManners checks the category.
func TestTheBackupHasEveryKind(t *testing.T) {
	page, err := os.ReadFile("../../docs/backup.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Objects in a cluster\n")
	command := regexp.MustCompile(`(?m)^kubectl get (\S+) --all-namespaces .*-o yaml`).FindStringSubmatch(section)
	if command == nil {
		t.Fatal("docs/backup.md has no command that backs up the objects")
	}
	saved := strings.Split(command[1], ",")
	for _, crd := range all(t) {
		names := append([]string{crd.Spec.Names.Plural}, slices.Concat(crd.Spec.Names.ShortNames, crd.Spec.Names.Categories)...)
		if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(saved, name) }) {
			t.Errorf("the command does not back up %s", crd.Name)
		}
	}
}
