// Package target selects the Kubernetes API that a command works with: that of a kubeconfig, as kubectl does, or that of
// Keelson on this host.
package target

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// Help returns the sentence for the help of commands with Flags.
func Help() string {
	const selects = "The kubeconfig and its current context select the cluster, as for kubectl ($KUBECONFIG, --kubeconfig, --context)"
	if OnHost == nil {
		return selects + "."
	}
	return selects + ";\nwithout a current context, it is Keelson on this host, as with --data-dir."
}

// Host is Keelson on this host.
type Host interface {
	// AddFlags adds the flags that select an instance, and Dir returns its data directory.
	AddFlags(fs *pflag.FlagSet, dataDir *string, ephemeral *bool)
	Dir(dataDir string, ephemeral bool) (string, error)
	// Directories returns the data directories of this user.
	Directories() ([]string, error)
	// Config returns the configuration of the administrator, and IsReady whether the API answers.
	Config(dir string) (*rest.Config, error)
	IsReady(ctx context.Context, dir string) (bool, error)
	// ManagerPID returns the process ID of keelson up; 0 if it does not run.
	ManagerPID(ctx context.Context, dir string) (int, error)
	// Command returns a command for an instance, as a user types it.
	Command(name, dir string) string
	// Name is the name of the host.
	Name() string
}

// OnHost is Keelson on this host; nil in a program that only knows clusters of a kubeconfig. The main package sets it.
var OnHost Host

// Flags select an API.
type Flags struct {
	// DataDir and Ephemeral select an instance on this host.
	DataDir   string
	Ephemeral bool
	// Kubeconfig and Context select a cluster by the rules of kubectl.
	Kubeconfig, Context string
	// Namespace is that of the objects; empty for the one of the context.
	Namespace string
}

// AddFlags adds the flags to fs.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	otherwise := ""
	if OnHost != nil {
		OnHost.AddFlags(fs, &f.DataDir, &f.Ephemeral)
		otherwise = "; without one, Keelson on this host"
	}
	fs.Var(usage.NonEmpty(&f.Kubeconfig), "kubeconfig", "kubeconfig `file` (default: $KUBECONFIG, otherwise ~/.kube/config)")
	fs.Var(usage.NonEmpty(&f.Context), "context", "`context` of the kubeconfig (default: the current one"+otherwise+")")
}

// Dir returns the data directory of the selected instance on this host.
func (f *Flags) Dir() (string, error) { return OnHost.Dir(f.DataDir, f.Ephemeral) }

// AddNamespace adds --namespace to fs, for commands for objects that have namespaces.
func (f *Flags) AddNamespace(fs *pflag.FlagSet) {
	fs.VarP(usage.NonEmpty(&f.Namespace), "namespace", "n", "`namespace` of the objects (default: that of the context, otherwise default)")
}

// Arguments returns arguments that select the same API and namespace.
func (f *Flags) Arguments() []string {
	var words []string
	for _, flag := range []struct{ name, value string }{
		{"data-dir", f.DataDir}, {"kubeconfig", f.Kubeconfig}, {"context", f.Context}, {"namespace", f.Namespace},
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
	words := []string{usage.Quote(name)}
	for _, argument := range f.Arguments() {
		flag, value, found := strings.Cut(argument, "=")
		if found {
			flag += "=" + usage.Quote(value)
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
	// Namespace is the selected one, otherwise that of the context, otherwise "default".
	Namespace string
	// Selected selects the API also after the current context has changed.
	Selected Flags
	// Dir is the data directory of the instance on this host that the API and the credentials are of; "" if there is none.
	Dir string
	// raw is the kubeconfig that selects it; nil for Keelson on this host.
	raw *clientcmdapi.Config
}

// API returns the selected API. The first of these decides: --data-dir or --ephemeral; --kubeconfig and --context; the current
// context of the user; Keelson on this host. The error is a *NotRunningError if it is of an instance on this host that does not run.
func (f *Flags) API(ctx context.Context) (*API, error) {
	api, err := f.api(ctx)
	if err == nil {
		api.Namespace = cmp.Or(f.Namespace, api.Namespace)
	}
	return api, err
}

func (f *Flags) api(ctx context.Context) (*API, error) {
	onHost := f.DataDir != "" || f.Ephemeral
	if onHost && (f.Kubeconfig != "" || f.Context != "") {
		return nil, usage.Errorf("--data-dir and --ephemeral select Keelson on this host and cannot be combined with --kubeconfig or --context")
	}
	if onHost {
		return f.ofInstance(ctx)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath, rules.Warner = f.Kubeconfig, func(error) {}
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.Context})
	raw, err := loaded.RawConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no kubeconfig: %w", err)
	case err != nil:
		return nil, fmt.Errorf("read the kubeconfig: %w", err)
	case f.Kubeconfig != "" || f.Context != "":
		return f.ofKubeconfig(ctx, loaded, &raw)
	case raw.CurrentContext == "":
		return f.ofInstance(ctx)
	}
	if origin := originOf(&raw); origin != nil {
		return origin.api(ctx)
	}
	return f.ofKubeconfig(ctx, loaded, &raw)
}

// NotRunningError means that Keelson does not run on this host.
type NotRunningError struct {
	// Dir is the data directory.
	Dir string
}

// Error implements error.
func (e *NotRunningError) Error() string {
	return fmt.Sprintf("no keelson is running in %s: start it with `%s`, or select another cluster with --kubeconfig or --context",
		e.Dir, OnHost.Command("up", e.Dir))
}

func (f *Flags) ofInstance(ctx context.Context) (*API, error) {
	if OnHost == nil {
		return nil, errors.New("the kubeconfig has no current context: select a cluster with --context, or with `kubectl config use-context`")
	}
	dir, err := f.Dir()
	if err != nil {
		return nil, err
	}
	if err := checkRunning(ctx, dir); err != nil {
		return nil, err
	}
	config, err := OnHost.Config(dir)
	if err != nil {
		return nil, err
	}
	return &API{Config: config, Name: OnHost.Name(), Namespace: "default", Selected: Flags{DataDir: dir}, Dir: dir}, nil
}

// checkRunning returns a *NotRunningError if the API of an instance is not ready.
func checkRunning(ctx context.Context, dir string) error {
	ready, err := OnHost.IsReady(ctx, dir)
	if err == nil && !ready {
		err = &NotRunningError{dir}
	}
	return err
}

func (f *Flags) ofKubeconfig(ctx context.Context, loaded clientcmd.ClientConfig, raw *clientcmdapi.Config) (*API, error) {
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig names no cluster that can be used: %w", err)
	}
	config.QPS = -1 // the API server has priority and fairness
	namespace, _, err := loaded.Namespace()
	if err != nil {
		return nil, err
	}
	api := &API{Config: config, Namespace: namespace, raw: raw, Selected: Flags{Context: cmp.Or(f.Context, raw.CurrentContext)}}
	api.Name = cmp.Or(api.Selected.Context, config.Host)
	if f.Kubeconfig != "" {
		if api.Selected.Kubeconfig, err = filepath.Abs(f.Kubeconfig); err != nil {
			return nil, err
		}
	}
	if api.Dir, err = dirOf(config); err != nil || api.Dir == "" {
		return api, err
	}
	return api, checkRunning(ctx, api.Dir)
}

// dirOf returns the data directory of the instance on this host with the address and the administrator of a configuration; "" if
// there is none.
func dirOf(config *rest.Config) (string, error) {
	if OnHost == nil {
		return "", nil
	}
	own, err := certificatesOf(config)
	if err != nil || len(own.CertData) == 0 {
		return "", nil //nolint:nilerr // a request with it tells what is wrong
	}
	directories, err := OnHost.Directories()
	if err != nil {
		return "", err
	}
	for _, directory := range directories {
		admin, err := OnHost.Config(directory)
		if err != nil || admin.Host != config.Host {
			continue
		}
		theirs, err := certificatesOf(admin)
		if err == nil && bytes.Equal(theirs.CAData, own.CAData) && bytes.Equal(theirs.CertData, own.CertData) {
			return directory, nil
		}
	}
	return "", nil
}

// certificatesOf returns the contents of the certificates of a configuration.
func certificatesOf(config *rest.Config) (rest.TLSClientConfig, error) {
	c := rest.CopyConfig(config)
	err := rest.LoadTLSFiles(c)
	return c.TLSClientConfig, err
}
