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
)

// contextName is the name of the context, cluster and user in the user's own kubeconfig file.
const contextName = "keelson"

// checkMerge checks whether mergeKubeconfig can add its context: the user's kubeconfig file is
// readable, and has no other cluster under that name.
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

// mergeKubeconfig adds the context of the kubeconfig at path to the user's own kubeconfig file, as
// contextName. It sets the current context only if the user has none. The entry refers to the
// credential files: they are renewed there, and a copy would expire.
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
	// Each entry is written to the file it comes from; a new one, without an origin, to the user's
	// first file.
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

// UnmergeKubeconfig removes the context that mergeKubeconfig has added for a data directory from the user's own kubeconfig
// file. It leaves the context of another one alone.
func UnmergeKubeconfig(dir string) error {
	access := clientcmd.NewDefaultPathOptions()
	theirs, err := readTheirs(access)
	if err != nil {
		return err
	}
	cluster := theirs.Clusters[contextName]
	if cluster == nil || !strings.HasPrefix(cluster.CertificateAuthority, dir+string(filepath.Separator)) {
		return nil
	}
	delete(theirs.Clusters, contextName)
	delete(theirs.AuthInfos, contextName)
	delete(theirs.Contexts, contextName)
	if theirs.CurrentContext == contextName {
		theirs.CurrentContext = ""
	}
	if err := clientcmd.ModifyConfig(access, *theirs, false); err != nil {
		return fmt.Errorf("remove the context %s from your kubeconfig: %w", contextName, err)
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
