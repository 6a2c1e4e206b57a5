package manager

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/keelson-dev/keelson/internal/confine"
)

const header = "apiVersion: config.keelson.dev/v1alpha1\nkind: KeelsonConfiguration\n"

// readConfig returns the options of a manager with a configuration and flags.
func readConfig(t *testing.T, text string, args ...string) (Options, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	fs := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	o.AddFlags(fs)
	if err := fs.Parse(append(args, "--config="+path)); err != nil {
		t.Fatal(err)
	}
	err := o.ReadConfig(fs)
	if err == nil {
		err = o.Validate()
	}
	return o, err
}

func TestReadConfig(t *testing.T) {
	text := header + `
virtualMachines: {egress: none, imageDirs: [/a, /b], imageTimeout: 90m, imageMaxSize: 1Gi, kvmGroup: 7}
clusters: {realNodes: true}
metrics: {secure: false}
logging: {format: json}
`
	got, err := readConfig(t, text)
	if err != nil {
		t.Fatal(err)
	}
	m := got.Machines
	if m.Egress != "none" || !cmp.Equal([]string(m.ImageDirs), []string{"/a", "/b"}) || m.ImageTimeout != 90*time.Minute || m.MaxImageSize.String() != "1Gi" || m.KVMGroup != 7 ||
		!got.ClusterRealNodes || got.Serving.Secure == nil || *got.Serving.Secure || got.Logging.Format != "json" {
		t.Errorf("got %+v", got)
	}
	if defaults := NewOptions(); m.PublishAddress != defaults.Machines.PublishAddress || got.RKETimeout != defaults.RKETimeout {
		t.Error("a field that is not in the file has lost its default")
	}
	got, err = readConfig(t, text, "--vm-image-dirs=/c", "--logging-format=text", "--metrics-secure=true")
	if err != nil || !cmp.Equal([]string(got.Machines.ImageDirs), []string{"/c"}) || got.Logging.Format != "text" || !*got.Serving.Secure {
		t.Errorf("a flag does not come before the file: %v, %+v", err, got)
	}
}

// Defaults that share a list do not change with each other.
func TestConfigChangesOneList(t *testing.T) {
	shared := confine.Dirs{"/shared"}
	o := NewOptions()
	o.RKEConfigDirs, o.Machines.ImageDirs = shared, shared
	if err := o.decode([]byte(header + "clusters: {rkeConfigDirs: [/own]}\n")); err != nil {
		t.Fatal(err)
	}
	if o.RKEConfigDirs.String() != "/own" || o.Machines.ImageDirs.String() != "/shared" || shared.String() != "/shared" {
		t.Errorf("got %s, %s, %s", o.RKEConfigDirs, o.Machines.ImageDirs, shared)
	}
}

func TestInvalidConfig(t *testing.T) {
	for text, want := range map[string]string{
		"":                                                "must begin with apiVersion: config.keelson.dev/v1alpha1 and kind: KeelsonConfiguration",
		"apiVersion: v1\nkind: ConfigMap\n":               `got "v1" and "ConfigMap"`,
		header + "virtualMachine: {}\n":                   `unknown field "virtualMachine"`,
		header + "virtualMachines: {cpu: 1}\n":            `unknown field "virtualMachines.cpu"`,
		header + "tracing: {}\ntracing: {}\n":             "already set in map",
		header + "virtualMachines: {imageTimeout: 5}\n":   "5 is not a duration such as 30m",
		header + "virtualMachines: {imageMaxSize: big}\n": "quantities must match",
		header + "virtualMachines: {egress: some}\n":      "virtualMachines.egress: some: must be public or none",
		header + "clusters: {rkeTimeout: 1s}\n":           "clusters.rkeTimeout: 1s: must be 1m or more",
		header + "virtualMachines: {egress: none, egressNetworks: [\"::/0\"]}\n": "cannot be combined with egress: none",
		header + "snapshotStore: {location: s3://b, credentials: relative}\n":    "snapshotStore.credentials",
	} {
		if _, err := readConfig(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
}

// The default configuration is valid and changes nothing, and the documentation has all of its fields.
func TestDefaultConfiguration(t *testing.T) {
	defaults := NewOptions()
	text, err := defaults.Configuration()
	if err != nil {
		t.Fatal(err)
	}
	got, err := readConfig(t, string(text))
	if err != nil {
		t.Fatal(err)
	}
	again, err := got.Configuration()
	if diff := cmp.Diff(string(text), string(again)); diff != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, diff)
	}
	page, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	groups := reflect.TypeFor[configuration]()
	for i := range groups.NumField() {
		group := groups.Field(i)
		for j := range group.Type.NumField() {
			if name := group.Tag.Get("json") + "." + group.Type.Field(j).Tag.Get("json"); !strings.HasPrefix(name, ",") && !strings.Contains(string(page), "| `"+name+"` |") {
				t.Errorf("docs/configuration.md has no row of %s", name)
			}
		}
	}
}
