package console

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/cli/usage"
	"github.com/keelson-dev/keelson/internal/console"
	"github.com/keelson-dev/keelson/internal/version"
)

// authorityFile is that of the API in a Pod. A Pod of the console has no token next to it.
const authorityFile = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"

// serveAll serves the console for many users until the context ends.
func (o *options) serveAll(cmd *cobra.Command) error {
	shared := &console.Shared{Address: cmp.Or(o.address, "127.0.0.1:8090")}
	if _, _, err := net.SplitHostPort(shared.Address); err != nil {
		return usage.Errorf("--bind-address=%s: must be host:port", o.address)
	}
	if o.port != 0 {
		return usage.Errorf("--port=%d: cannot be used with --public-url, use --bind-address", o.port)
	}
	for _, text := range o.publicURLs {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return usage.Errorf("--public-url=%s: must be http:// or https:// and a host, without a path", text)
		}
		shared.URLs = append(shared.URLs, u)
	}
	config, name, err := o.anonymous(cmd)
	if err != nil {
		return err
	}
	c, err := console.Listen(cmd.Context(), console.Options{Config: config, Cluster: name, Version: version.Get().Keelson, Shared: shared})
	if err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "The console of %s, for users with a token, at %s. Ctrl-C stops it.\n", name, c.Address())
	return c.Serve(cmd.Context())
}

// anonymous returns the API of the cluster of this Pod, or the one that the flags select, without credentials.
func (o *options) anonymous(cmd *cobra.Command) (*rest.Config, string, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host != "" && port != "" && o.Kubeconfig == "" && o.Context == "" && o.DataDir == "" {
		config := &rest.Config{Host: "https://" + net.JoinHostPort(host, port), TLSClientConfig: rest.TLSClientConfig{CAFile: authorityFile}}
		return config, "this cluster", nil
	}
	api, err := o.API(cmd.Context())
	if err != nil {
		return nil, "", err
	}
	return rest.AnonymousClientConfig(api.Config), api.Name, nil
}
