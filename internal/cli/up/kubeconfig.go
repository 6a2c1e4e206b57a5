package up

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/keelson-dev/keelson/internal/cli/usercontext"
)

// contextName is the name of the context, cluster and user in the user's own kubeconfig file.
const contextName = "keelson"

// checkMerge checks whether mergeKubeconfig can add its context: the user's kubeconfig file is
// readable, and has no other cluster under that name.
func checkMerge() error {
	theirs, err := usercontext.Read(clientcmd.NewDefaultPathOptions())
	if err != nil {
		return err
	}
	cluster := theirs.Clusters[contextName]
	if context := theirs.Contexts[contextName]; context != nil && context.Cluster != contextName {
		cluster = theirs.Clusters[context.Cluster]
	}
	if cluster == nil || isLoopback(cluster.Server) {
		return nil
	}
	return fmt.Errorf("your kubeconfig already has a context %s, for %s: rename that context, or omit --merge-kubeconfig", contextName, cluster.Server)
}

// mergeKubeconfig adds the context of the kubeconfig at path to the user's own kubeconfig file, as
// contextName. It sets the current context only if the user has none. The entry refers to the
// credential files: they are renewed there, and a copy would expire.
func mergeKubeconfig(path string, files rest.TLSClientConfig) error {
	ours, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	cluster, user := only(ours.Clusters), only(ours.AuthInfos)
	if files.CertFile != "" {
		cluster.CertificateAuthority, cluster.CertificateAuthorityData = files.CAFile, nil
		user.ClientCertificate, user.ClientCertificateData = files.CertFile, nil
		user.ClientKey, user.ClientKeyData = files.KeyFile, nil
	}
	_, err = usercontext.Add(clientcmd.NewDefaultPathOptions(), contextName, cluster, user, false)
	return err
}

// UnmergeKubeconfig removes the context that mergeKubeconfig has added for a data directory from the user's own kubeconfig
// file. It leaves the context of another one alone.
func UnmergeKubeconfig(dir string) error {
	return usercontext.Remove(clientcmd.NewDefaultPathOptions(), contextName, func(theirs *clientcmdapi.Config) bool {
		cluster := theirs.Clusters[contextName]
		return cluster != nil && strings.HasPrefix(cluster.CertificateAuthority, dir+string(filepath.Separator))
	})
}

// isLoopback reports whether a server is on this machine, where Keelson alone uses contextName.
func isLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}

// only returns a copy of the only value of a map.
func only[T any](m map[string]*T) *T {
	for _, v := range m {
		c := *v
		return &c
	}
	return new(T)
}
