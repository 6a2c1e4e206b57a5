// Package target selects the Kubernetes API that a command works with: that of Keelson on this host, or that of a
// kubeconfig.
package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/controlplane"
)

// Flags select an API.
type Flags struct {
	// Flags select Keelson on this host, the default.
	instance.Flags
	// Kubeconfig and Context select a cluster by the rules of kubectl, if one of them is set.
	Kubeconfig, Context string
}

// AddFlags adds the flags to fs.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	f.Flags.AddFlags(fs)
	fs.Var(usage.NonEmpty(&f.Kubeconfig), "kubeconfig", "use the cluster of this kubeconfig `file`")
	fs.Var(usage.NonEmpty(&f.Context), "context", "use the cluster of this `context` of the kubeconfig")
}

// Arguments returns arguments that select the same API.
func (f *Flags) Arguments() []string {
	var words []string
	for _, flag := range []struct{ name, value string }{
		{"data-dir", f.DataDir}, {"kubeconfig", f.Kubeconfig}, {"context", f.Context},
	} {
		if flag.value != "" {
			words = append(words, "--"+flag.name+"="+flag.value)
		}
	}
	if f.Ephemeral {
		words = append(words, "--ephemeral")
	}
	return words
}

// Words returns arguments that select an object of the same API, quoted for a shell.
func (f *Flags) Words(name string) string {
	words := []string{instance.Quote(name)}
	for _, argument := range f.Arguments() {
		flag, value, found := strings.Cut(argument, "=")
		if found {
			flag += "=" + instance.Quote(value)
		}
		words = append(words, flag)
	}
	return strings.Join(words, " ")
}

// API is a Kubernetes API.
type API struct {
	// Config has its address and credentials.
	Config *rest.Config
	// Name is for display: the context, or the name of this host.
	Name string
	// Namespace is that of the context, otherwise "default".
	Namespace string
	// raw is the kubeconfig that selects it, with the context; nil for Keelson on this host.
	raw     *clientcmdapi.Config
	context string
}

type asKubectl struct{}

// AsKubectl returns a context in which the flags select the current context of the kubeconfig by default, as those of
// kubectl do, and not Keelson on this host.
func AsKubectl(ctx context.Context) context.Context { return context.WithValue(ctx, asKubectl{}, true) }

// API returns the selected API. The error is a *NotRunningError if Keelson on this host is selected
// and does not run.
func (f *Flags) API(ctx context.Context) (*API, error) {
	if f.Kubeconfig == "" && f.Context == "" {
		if ctx.Value(asKubectl{}) == nil || f.DataDir != "" || f.Ephemeral {
			return f.ofInstance(ctx)
		}
		api, err := f.ofKubeconfig()
		if err == nil {
			f.Context = api.raw.CurrentContext // for commands that start others
		}
		return api, err
	}
	if f.DataDir != "" || f.Ephemeral {
		return nil, usage.Errorf("--data-dir and --ephemeral select Keelson on this host and cannot be combined with --kubeconfig or --context")
	}
	return f.ofKubeconfig()
}

// NotRunningError means that Keelson does not run on this host.
type NotRunningError struct {
	// Dir is the data directory.
	Dir string
}

// Error implements error.
func (e *NotRunningError) Error() string {
	return fmt.Sprintf("no keelson is running in %s: start it with `%s`, or select another cluster with --kubeconfig or --context",
		e.Dir, instance.Command("up", e.Dir))
}

func (f *Flags) ofInstance(ctx context.Context) (*API, error) {
	dir, err := f.Dir()
	if err != nil {
		return nil, err
	}
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return nil, err
	}
	if !report.APIReady {
		return nil, &NotRunningError{dir}
	}
	config, err := controlplane.AdminConfig(dir)
	if err != nil {
		return nil, err
	}
	return &API{Config: config, Name: instance.HostName(), Namespace: "default"}, nil
}

func (f *Flags) ofKubeconfig() (*API, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.Kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
	raw, err := loaded.RawConfig()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no kubeconfig: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig names no cluster that can be used: %w", err)
	}
	config.QPS = -1 // the API server has priority and fairness
	namespace, _, err := loaded.Namespace()
	return &API{
		Config: config, Name: cmp.Or(f.Context, raw.CurrentContext, config.Host), Namespace: namespace, raw: &raw, context: f.Context,
	}, err
}
