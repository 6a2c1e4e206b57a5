// Package object has what the commands for the objects of a kind have in common: manifests, and waiting.
package object

import (
	"io"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// Output is the flags of a command that creates an object: --dry-run and --output.
type Output struct {
	dryRun, format string
}

// AddFlags adds the flags to fs.
func (o *Output) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dryRun, "dry-run", "none", "none, or client: only print the object")
	fs.StringVarP(&o.format, "output", "o", "", "print the object as yaml, json or name")
}

// Validate reports a wrong value of the flags.
func (o *Output) Validate() error {
	switch {
	case o.dryRun != "none" && o.dryRun != "client":
		return usage.Errorf("--dry-run=%s: must be none or client; kubectl apply --dry-run=server asks the API", o.dryRun)
	case o.format != "" && o.format != "yaml" && o.format != "json" && o.format != "name":
		return usage.Errorf("--output=%s: must be yaml, json or name", o.format)
	}
	return nil
}

// DryRun reports whether the object is only printed.
func (o *Output) DryRun() bool { return o.dryRun == "client" }

// Print prints an object whose API version and kind are set. resource is its kind in lower case, such as virtualmachine.
func (o *Output) Print(out io.Writer, object client.Object, resource, group string) error {
	var text []byte
	var err error
	switch o.format {
	case "yaml", "json":
		text, err = Manifest(object, o.format == "json")
	case "name":
		text = []byte(resource + "." + group + "/" + object.GetName() + "\n")
	default:
		text = []byte(resource + "/" + object.GetName() + " created\n")
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// Manifest returns an object as YAML or JSON, without its status and what the API server adds. Its API version and kind
// must be set; a client removes them.
func Manifest(object client.Object, asJSON bool) ([]byte, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	if metadata, ok := content["metadata"].(map[string]any); ok {
		delete(metadata, "managedFields")
		delete(metadata, "creationTimestamp")
	}
	text, err := yaml.Marshal(content)
	if err != nil || !asJSON {
		return text, err
	}
	text, err = yaml.YAMLToJSON(text)
	return append(text, '\n'), err
}
