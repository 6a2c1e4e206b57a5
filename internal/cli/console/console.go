// Package console is the command `keelson console`.
package console

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/version"
)

const long = `Serve the console on loopback until Ctrl-C: a page for a browser that shows all objects of Keelson.

Without --kubeconfig or --context, it shows Keelson on this host. The URL on standard output has a token that opens one
session, within an hour. The page does what you may do: every request goes to the Kubernetes API with the credentials of
the kubeconfig.`

const examples = `  # Keelson on this host
  keelson console

  # Any cluster with the CRDs of Keelson
  keelson console --context production

  # In a Pod, behind an Ingress
  keelson console --bind-address :8090 --public-url https://keelson.example.com`

// options are the flags of the command.
type options struct {
	target.Flags
	port       int
	address    string
	publicURLs []string
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
			if len(o.publicURLs) > 0 {
				return o.serveAll(cmd)
			}
			if o.address != "" {
				return usage.Errorf("--bind-address=%s: needs --public-url", o.address)
			}
			api, err := o.API(cmd.Context())
			if err != nil {
				return err
			}
			return o.serve(cmd, api)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.AddFlags(fs)
	fs.IntVar(&o.port, "port", 0, "port on loopback; 0: any free one")
	fs.StringSliceVar(&o.publicURLs, "public-url", nil, "serve it for many users, who open it at this `URL` and log in with a token each")
	fs.StringVar(&o.address, "bind-address", "", "with --public-url, the `host:port` where it is served, without TLS (default 127.0.0.1:8090)")
	return cmd
}

// serve prints the URL and serves until the context ends.
func (o *options) serve(cmd *cobra.Command, api *target.API) error {
	c, err := console.Listen(cmd.Context(), console.Options{Config: api.Config, Port: o.port, Cluster: api.Name, Version: version.Get().Keelson})
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), c.URL())
	fmt.Fprintf(cmd.ErrOrStderr(), "The console of %s. This URL opens it once, within an hour. Ctrl-C stops it.\n", api.Name)
	return c.Serve(cmd.Context())
}
