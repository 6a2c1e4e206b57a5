package up

import (
	"fmt"
	"net"
	"net/url"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// contextName is how the context in the user's own kubeconfig file is called, and its cluster and user.
const contextName = "keelson"

// checkMerge tells whether mergeKubeconfig may add its context: the user's kubeconfig file can be read, and what is
// called so in it already, if anything, is no cluster elsewhere.
func checkMerge() error {
	theirs, err := readTheirs(clientcmd.NewDefaultPathOptions())
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

// mergeKubeconfig adds the context of the kubeconfig at path to the user's own kubeconfig file, as contextName. Their
// current context stays, unless they have none. Credentials that are in files are referred to: they are renewed there,
// and a copy would expire.
func mergeKubeconfig(path string, files rest.TLSClientConfig) error {
	ours, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	access := clientcmd.NewDefaultPathOptions()
	theirs, err := readTheirs(access)
	if err != nil {
		return err
	}
	// An entry is written to the file that it comes from; a new one, without origin, to the user's first file.
	cluster, user := only(ours.Clusters), only(ours.AuthInfos)
	cluster.LocationOfOrigin, user.LocationOfOrigin = "", ""
	if files.CertFile != "" {
		cluster.CertificateAuthority, cluster.CertificateAuthorityData = files.CAFile, nil
		user.ClientCertificate, user.ClientCertificateData = files.CertFile, nil
		user.ClientKey, user.ClientKeyData = files.KeyFile, nil
	}
	context := &clientcmdapi.Context{Cluster: contextName, AuthInfo: contextName}
	if old := theirs.Clusters[contextName]; old != nil {
		cluster.LocationOfOrigin = old.LocationOfOrigin
	}
	if old := theirs.AuthInfos[contextName]; old != nil {
		user.LocationOfOrigin = old.LocationOfOrigin
	}
	if old := theirs.Contexts[contextName]; old != nil {
		context.LocationOfOrigin = old.LocationOfOrigin
		context.Namespace = old.Namespace
	}
	theirs.Clusters[contextName], theirs.AuthInfos[contextName], theirs.Contexts[contextName] = cluster, user, context
	if theirs.CurrentContext == "" {
		theirs.CurrentContext = contextName
	}
	if err := clientcmd.ModifyConfig(access, *theirs, false); err != nil {
		return fmt.Errorf("add the context %s to your kubeconfig: %w", contextName, err)
	}
	return nil
}

func readTheirs(access clientcmd.ConfigAccess) (*clientcmdapi.Config, error) {
	theirs, err := access.GetStartingConfig()
	if err != nil {
		return nil, fmt.Errorf("read your kubeconfig: %w", err)
	}
	return theirs, nil
}

// isLoopback tells whether a server is on this machine, where only we use that name.
func isLoopback(server string) bool {
	u, err := url.Parse(server)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}

// only returns a copy of the one value of a map.
func only[T any](m map[string]*T) *T {
	for _, v := range m {
		c := *v
		return &c
	}
	return new(T)
}
