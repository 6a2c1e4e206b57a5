package target

import (
	"errors"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Entry returns the entries of a kubeconfig with the address and the credentials of the API. They refer to files where
// those of the API do, because such files are renewed.
func (a *API) Entry() (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	if a.raw != nil {
		return entryOf(a.raw, a.Selected.Context)
	}
	tls := a.Config.TLSClientConfig
	cluster := &clientcmdapi.Cluster{
		Server: a.Config.Host, TLSServerName: tls.ServerName, CertificateAuthority: tls.CAFile, CertificateAuthorityData: tls.CAData,
	}
	user := &clientcmdapi.AuthInfo{
		ClientCertificate: tls.CertFile, ClientCertificateData: tls.CertData, ClientKey: tls.KeyFile, ClientKeyData: tls.KeyData,
		Token: a.Config.BearerToken, TokenFile: a.Config.BearerTokenFile,
	}
	return cluster, user, nil
}

// entryOf returns copies of the entries of a context.
func entryOf(config *clientcmdapi.Config, name string) (*clientcmdapi.Cluster, *clientcmdapi.AuthInfo, error) {
	context := config.Contexts[name]
	if context == nil || config.Clusters[context.Cluster] == nil || config.AuthInfos[context.AuthInfo] == nil {
		return nil, nil, errors.New("the kubeconfig has no current context with a cluster and a user: select one with --context")
	}
	cluster, user := config.Clusters[context.Cluster].DeepCopy(), config.AuthInfos[context.AuthInfo].DeepCopy()
	cluster.LocationOfOrigin, user.LocationOfOrigin = "", "" // they are written to another file
	return cluster, user, nil
}
