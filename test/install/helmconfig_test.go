package install

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/keelson-dev/keelson/internal/manager"
)

// The manager reads the value config of the chart, and restarts when it changes.
func TestChartHasTheConfiguration(t *testing.T) {
	t.Parallel()
	checksums := map[string]bool{}
	for _, egress := range []string{"none", "public"} {
		_, objects := rendered(t, "keelson", home, "config: {virtualMachines: {egress: "+egress+"}}", withoutDefinitions...)
		options := manager.NewOptions()
		options.Config = filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(options.Config, []byte(configurationIn(t, objects)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := options.ReadConfig(&pflag.FlagSet{}); err != nil || options.Machines.Egress != egress {
			t.Errorf("the manager reads %q, %v; want %s", options.Machines.Egress, err, egress)
		}
		deployment := find(t, objects, "Deployment")
		containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
		args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		mounts, _, _ := unstructured.NestedSlice(containers[0].(map[string]any), "volumeMounts")
		if !slices.Contains(args, "--config=/var/run/keelson/config/config.yaml") || !slices.ContainsFunc(mounts, func(mount any) bool {
			path, _, _ := unstructured.NestedString(mount.(map[string]any), "mountPath")
			return path == "/var/run/keelson/config"
		}) {
			t.Errorf("arguments %q and mounts %v", args, mounts)
		}
		checksum, _, _ := unstructured.NestedString(deployment.Object, "spec", "template", "metadata", "annotations", "keelson.dev/config-checksum")
		checksums[checksum] = true
	}
	if len(checksums) != 2 || checksums[""] {
		t.Errorf("the checksums are %v", checksums)
	}
}

// configurationIn returns the file in the ConfigMap of the configuration.
func configurationIn(t *testing.T, objects []*unstructured.Unstructured) string {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == "ConfigMap" && o.GetName() == "keelson-config" {
			text, _, _ := unstructured.NestedString(o.Object, "data", "config.yaml")
			return text
		}
	}
	t.Fatal("no ConfigMap has the configuration")
	return ""
}
