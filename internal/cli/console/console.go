// Package console is the command `keelson console`.
package console

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/keelson-dev/keelson/internal/cli/sshkey"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/version"
)

const about = `Open the console, a page for a browser that shows all objects of Keelson.

"keelson up" serves the console of Keelson on this host: the command prints its URL and exits. For another cluster,
and with --port, it serves the console on loopback until Ctrl-C. The URL has a token that opens one session, within an
hour. The page can do what you can do: every request goes to the Kubernetes API with the credentials of the kubeconfig.

`

const examples = `  # A URL for Keelson on this host
  keelson console

  # Any cluster with the CRDs of Keelson
  keelson console --context production

  # In a Pod, behind an Ingress
  keelson console --bind-address :8090 --public-url https://keelson.example.com`

// options are the flags of the command.
type options struct {
	target.Flags
	port       int
	printURL   bool
	address    string
	publicURLs []string
}

// New returns the command.
func New() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "console",
		Short:   "Show all objects in a browser",
		Long:    about + target.Help(),
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
			return o.open(cmd)
		},
	}
	fs := cmd.Flags()
	fs.SortFlags = false
	o.AddFlags(fs)
	fs.IntVar(&o.port, "port", 0, "serve it at this `port` of loopback; 0: any free one")
	fs.BoolVar(&o.printURL, "print-url", false, "print a URL of the console that keelson up serves; fail if it serves none")
	fs.StringSliceVar(&o.publicURLs, "public-url", nil, "serve it for many users, who open it at this `URL` and log in with a token each")
	fs.StringVar(&o.address, "bind-address", "", "with --public-url, the `host:port` where it is served, without TLS (default 127.0.0.1:8090)")
	return cmd
}

// open prints a URL of the console of Keelson on this host, or serves one.
func (o *options) open(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	if o.printURL && given("port") {
		return usage.Errorf("--print-url is for the console that keelson up serves and cannot be combined with --port")
	}
	api, err := o.API(cmd.Context())
	if err != nil {
		return err
	}
	if api.Dir != "" && !given("port") {
		link, err := served(cmd.Context(), api.Dir)
		if err != nil {
			return err
		}
		if link != nil {
			fmt.Fprintln(cmd.OutOrStdout(), link.URL())
			fmt.Fprintf(cmd.ErrOrStderr(), "The console of %s. This URL opens it once, within an hour.\n", api.Name)
			return nil
		}
	}
	if o.printURL {
		return fmt.Errorf("keelson up serves no console of %s: keelson console without --print-url serves one", api.Name)
	}
	return o.serve(cmd, api)
}

// served returns the link to the console that keelson up serves from a data directory; nil if it serves none.
func served(ctx context.Context, dir string) (*console.Link, error) {
	pid, err := target.OnHost.ManagerPID(ctx, dir)
	if err != nil || pid == 0 {
		return nil, err
	}
	return console.ReadLink(dir, pid)
}

// serve prints the URL and serves until the context ends.
func (o *options) serve(cmd *cobra.Command, api *target.API) error {
	options := console.Options{Config: api.Config, Port: o.port, Cluster: api.Name, Version: version.Get().Keelson, SSHKey: sshkey.Public}
	if api.Dir != "" {
		options.Host = target.OnHost.Name()
	}
	c, err := console.Listen(cmd.Context(), options)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), c.URL())
	fmt.Fprintf(cmd.ErrOrStderr(), "The console of %s. This URL opens it once, within an hour. Ctrl-C stops it.\n", api.Name)
	return c.Serve(cmd.Context())
}
