// Package usercontext adds contexts to the user's own kubeconfig, and removes them.
package usercontext

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Read returns the kubeconfig of the user, which is empty if there is none.
func Read(access clientcmd.ConfigAccess) (*clientcmdapi.Config, error) {
	theirs, err := access.GetStartingConfig()
	if err != nil {
		return nil, fmt.Errorf("read your kubeconfig: %w", err)
	}
	return theirs, nil
}

// Add adds a context with a cluster and a user, all three called name, to theirs, which Read has returned, and writes it.
// Entries of this name are replaced, but for the namespace of the context. It becomes the current context with current, or if
// there is none. Add returns the file with the context; "" if that is the default one.
func Add(access clientcmd.ConfigAccess, theirs *clientcmdapi.Config, name string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo, current bool) (string, error) {
	context := &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	// Each entry is written to the file that it comes from; a new one, without an origin, to the user's first file.
	cluster.LocationOfOrigin, user.LocationOfOrigin = "", ""
	if old := theirs.Clusters[name]; old != nil {
		cluster.LocationOfOrigin = old.LocationOfOrigin
	}
	if old := theirs.AuthInfos[name]; old != nil {
		user.LocationOfOrigin = old.LocationOfOrigin
	}
	if old := theirs.Contexts[name]; old != nil {
		context.LocationOfOrigin, context.Namespace = old.LocationOfOrigin, old.Namespace
	}
	theirs.Clusters[name], theirs.AuthInfos[name], theirs.Contexts[name] = cluster, user, context
	if current || theirs.CurrentContext == "" {
		theirs.CurrentContext = name
	}
	if err := clientcmd.ModifyConfig(access, *theirs, false); err != nil {
		return "", fmt.Errorf("add the context %s to your kubeconfig: %w", name, err)
	}
	return context.LocationOfOrigin, nil
}

// Remove removes the entries of Add from theirs, which Read has returned, and writes it.
func Remove(access clientcmd.ConfigAccess, theirs *clientcmdapi.Config, name string) error {
	delete(theirs.Clusters, name)
	delete(theirs.AuthInfos, name)
	delete(theirs.Contexts, name)
	if theirs.CurrentContext == name {
		theirs.CurrentContext = ""
	}
	if err := clientcmd.ModifyConfig(access, *theirs, false); err != nil {
		return fmt.Errorf("remove the context %s from your kubeconfig: %w", name, err)
	}
	return nil
}
