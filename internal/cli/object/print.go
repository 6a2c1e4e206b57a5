// Package object has what the commands for the objects of a kind have in common.
package object

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// Output is the flags of a command that writes objects: --dry-run and --output.
type Output struct {
	dryRun, format string
}

// AddFlags adds the flags to fs.
func (o *Output) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.dryRun, "dry-run", "none", "none; client: only print the object; server: send it to the API, which checks it and does not keep it")
	fs.StringVarP(&o.format, "output", "o", "", "print the object as yaml, json or name")
}

// Validate reports a wrong value of the flags.
func (o *Output) Validate() error {
	switch {
	case o.dryRun != "none" && o.dryRun != "client" && o.dryRun != "server":
		return usage.Errorf("--dry-run=%s: must be none, client or server", o.dryRun)
	case o.format != "" && o.format != "yaml" && o.format != "json" && o.format != "name":
		return usage.Errorf("--output=%s: must be yaml, json or name", o.format)
	}
	return nil
}

// DryRun reports whether nothing is sent to the API.
func (o *Output) DryRun() bool { return o.dryRun == "client" }

// Writes reports whether the API keeps what the command writes.
func (o *Output) Writes() bool { return o.dryRun != "client" && o.dryRun != "server" }

// Text reports whether Print prints what was done, and not the object.
func (o *Output) Text() bool { return o.format == "" }

// Waits reports whether a command waits: there is nothing to wait for after a dry run.
func (o *Output) Waits(waits *Waiting) bool { return waits.Wait && o.Writes() }

// client returns the client of the command for writes.
func (o *Output) client(c client.Client) client.Client {
	if o.dryRun == "server" {
		return client.NewDryRunClient(c)
	}
	return c
}

// Print prints an object, or what was done with it, such as "created".
func (k Kind[T]) Print(out io.Writer, object T, past string, output *Output) error {
	object.GetObjectKind().SetGroupVersionKind(k.gvk()) // the client removes it
	var text []byte
	var err error
	switch output.format {
	case "yaml", "json":
		text, err = Manifest(object, output.format == "json")
	case "name":
		text = []byte(qualifiedName(object, k.gvk()) + "\n")
	default:
		suffix := map[string]string{"client": " (dry run)", "server": " (server dry run)"}[output.dryRun]
		text = fmt.Appendf(nil, "%s/%s %s%s\n", strings.ToLower(k.Name), object.GetName(), past, suffix)
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// qualifiedName returns the name of an object in the output of -o name, such as virtualmachine.cloudnative.tw/web.
func qualifiedName(object client.Object, gvk schema.GroupVersionKind) string {
	return strings.ToLower(gvk.Kind) + "." + gvk.Group + "/" + object.GetName()
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
