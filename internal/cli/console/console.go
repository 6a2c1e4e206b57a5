// Package console is the command `keelson console`.
package console

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/cli/instance"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/version"
)

const long = `Serve the console on loopback until Ctrl-C: a page for a browser that shows all objects of Keelson.

Without --kubeconfig or --context, it shows Keelson on this host. The URL on standard output has a token that opens one
session, within an hour. The page does what you may do: every request goes to the Kubernetes API with the credentials of
the kubeconfig.`

const examples = `  # Keelson on this host
  keelson console

  # Any cluster with the CRDs of Keelson
  keelson console --context production`

// options are the flags of the command.
type options struct {
	instance   instance.Flags
	kubeconfig string
	context    string
	port       int
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "console",
		Short:   "Serve a page for the browser with all objects",
		Long:    long,
		Example: examples,
		Args:    usage.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.port < 0 || o.port > 65535 {
				return usage.Errorf("--port=%d: must be from 0 to 65535", o.port)
			}
			ofCluster := o.kubeconfig != "" || o.context != ""
			if ofCluster && (o.instance.DataDir != "" || o.instance.Ephemeral) {
				return usage.Errorf("--data-dir and --ephemeral select Keelson on this host and cannot be combined with --kubeconfig or --context")
			}
			find := o.ofInstance
			if ofCluster {
				find = o.ofKubeconfig
			}
			config, name, err := find(cmd.Context())
			if err != nil {
				return err
			}
			return o.serve(cmd, config, name)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.instance.AddFlags(fs)
	fs.Var(usage.NonEmpty(&o.kubeconfig), "kubeconfig", "show the cluster of this kubeconfig `file`")
	fs.Var(usage.NonEmpty(&o.context), "context", "show the cluster of this `context` of the kubeconfig")
	fs.IntVar(&o.port, "port", 0, "port on loopback; 0: any free one")
	return cmd
}

// serve prints the URL and serves until the context ends.
func (o *options) serve(cmd *cobra.Command, config *rest.Config, name string) error {
	c, err := console.Listen(cmd.Context(), console.Options{Config: config, Port: o.port, Cluster: name, Version: version.Get().Keelson})
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), c.URL())
	fmt.Fprintf(cmd.ErrOrStderr(), "The console of %s. This URL opens it once, within an hour. Ctrl-C stops it.\n", name)
	return c.Serve(cmd.Context())
}

// ofInstance returns the API of Keelson on this host.
func (o *options) ofInstance(ctx context.Context) (*rest.Config, string, error) {
	dir, err := o.instance.Dir()
	if err != nil {
		return nil, "", err
	}
	report, err := controlplane.Inspect(ctx, dir)
	if err != nil {
		return nil, "", err
	}
	if !report.APIReady {
		return nil, "", fmt.Errorf("no keelson is running in %s: start it with `%s`, or show another cluster with --kubeconfig or --context",
			dir, instance.Command("up", dir))
	}
	config, err := controlplane.AdminConfig(dir)
	if err != nil {
		return nil, "", err
	}
	host, err := os.Hostname()
	return config, cmp.Or(host, "this host"), err
}

// ofKubeconfig returns the API of a kubeconfig, by the rules of kubectl.
func (o *options) ofKubeconfig(context.Context) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	raw, err := loaded.RawConfig()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("there is no kubeconfig: %w", err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the kubeconfig: %w", err)
	}
	config, err := loaded.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("the kubeconfig names no cluster that can be used: %w", err)
	}
	config.QPS = -1 // the API server has priority and fairness
	return config, cmp.Or(o.context, raw.CurrentContext, config.Host), nil
}
