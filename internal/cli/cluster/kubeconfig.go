package cluster

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	accessclient "github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/cli/target"
	"github.com/keelson-dev/keelson/internal/cli/usercontext"
)

func newKubeconfig(flags *target.Flags) *cobra.Command {
	merge, viaProxy := false, false
	cmd := &cobra.Command{
		Use:   "kubeconfig NAME",
		Short: "Print the kubeconfig of a cluster, or merge it into yours",
		Long: `Print the kubeconfig of the administrator of a cluster. It contains a private key: anybody who can read
it has full access. With --merge, the command adds it to your kubeconfig as the context keelson-NAME,
which becomes the current one: kubectl then uses the cluster, and keelson still the management API.

With --via-proxy the kubeconfig points to the API of the cluster through the management API, with your
credentials there. It works from other hosts than the manager's, and needs permission for clusters/proxy in
the group access.cloudnative.tw.`,
		Example: `  keelson cluster kubeconfig demo > demo.kubeconfig

  keelson cluster kubeconfig demo --merge
  kubectl get nodes`,
		Args: oneCluster(),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := open(cmd.Context(), flags)
			if err != nil {
				return err
			}
			cluster, err := c.Find(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			var config *clientcmdapi.Config
			if viaProxy {
				config, err = proxied(c.API, cluster.Name)
			} else {
				var text []byte
				if text, err = OfCluster(cmd.Context(), c, cluster.Name); err == nil {
					config, err = renamed(text, cluster.Name)
				}
			}
			switch {
			case err != nil:
				return err
			case merge:
				return mergeContext(cmd.OutOrStdout(), config, c.API)
			}
			text, err := clientcmd.Write(*config)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	cmd.Flags().BoolVar(&merge, "merge", false, "add it to your kubeconfig, and make it the current context")
	cmd.Flags().BoolVar(&viaProxy, "via-proxy", false, "reach the cluster through the management API, with your credentials there")
	return cmd
}

// contextOf returns the name of the context, cluster and user of a Cluster in a kubeconfig.
func contextOf(name string) string { return "keelson-" + name }

// proxyURL returns the address of the API of a Cluster below the API server that has the object.
func proxyURL(server, name string) string {
	return strings.TrimSuffix(server, "/") + "/apis/" + accessclient.Group + "/" + accessclient.Version + "/clusters/" + name + "/proxy"
}

// newConfig returns a kubeconfig with one context.
func newConfig(name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	config := clientcmdapi.NewConfig()
	context := contextOf(name)
	config.Clusters[context], config.AuthInfos[context] = cluster, user
	config.Contexts[context] = &clientcmdapi.Context{Cluster: context, AuthInfo: context}
	config.CurrentContext = context
	return config
}

// proxied returns a kubeconfig that leads to a Cluster through an API, with the credentials for that API.
func proxied(api *target.API, name string) (*clientcmdapi.Config, error) {
	cluster, user, err := api.Entry()
	if err != nil {
		return nil, err
	}
	cluster.Server = proxyURL(cluster.Server, name)
	return newConfig(name, cluster, user), nil
}

// renamed returns a kubeconfig of a Cluster with the names of contextOf.
func renamed(text []byte, name string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig of Cluster %s is invalid: %w", name, err)
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.Clusters[context.Cluster] == nil || config.AuthInfos[context.AuthInfo] == nil {
		return nil, fmt.Errorf("the kubeconfig of Cluster %s has no current context with a cluster and a user", name)
	}
	return newConfig(name, config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]), nil
}

// mergeContext adds the context of a kubeconfig to that of the user, and makes it the current one. Entries of the same
// names are replaced: they are of an earlier call.
func mergeContext(out io.Writer, ours *clientcmdapi.Config, api *target.API) error {
	access, name := clientcmd.NewDefaultPathOptions(), ours.CurrentContext
	if err := target.SetOrigin(ours.Clusters[name], api); err != nil {
		return err
	}
	file, err := usercontext.Add(access, name, ours.Clusters[name], ours.AuthInfos[name], true)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "The current context is %s, in %s\n", name, cmp.Or(file, access.GetDefaultFilename()))
	return err
}

// unmerge removes the context of a Cluster from the kubeconfig of the user, if it leads to one of the servers.
func unmerge(access clientcmd.ConfigAccess, name string, servers ...string) error {
	context := contextOf(name)
	return usercontext.Remove(access, context, func(theirs *clientcmdapi.Config) bool {
		cluster := theirs.Clusters[context]
		return cluster != nil && slices.Contains(servers, cluster.Server)
	})
}
