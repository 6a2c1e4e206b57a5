// Package kubeconfig reads kubeconfigs that others have written, without trusting them: nothing in one makes this
// program run another one or read a file.
package kubeconfig

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Access is what a kubeconfig gives.
type Access struct {
	// Server is the URL of the API.
	Server string
	// NotBefore and NotAfter are when the client certificate becomes valid and when it expires; zero without one.
	NotBefore, NotAfter time.Time
	// Config makes a client of it.
	Config *rest.Config
}

// Parse reads a kubeconfig. The error tells nothing of its credentials.
func Parse(data []byte) (*Access, error) {
	if len(data) == 0 {
		return nil, errors.New("it is empty")
	}
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, errors.New("it is no kubeconfig") // the parser quotes what it does not understand
	}
	context := config.Contexts[config.CurrentContext]
	if context == nil {
		return nil, errors.New("its current-context is missing, or names no context")
	}
	cluster, user := config.Clusters[context.Cluster], config.AuthInfos[context.AuthInfo]
	if cluster == nil {
		return nil, errors.New("the cluster of its current context is missing")
	}
	if user == nil {
		return nil, errors.New("the user of its current context is missing")
	}
	if err := refuseReferences(cluster, user); err != nil {
		return nil, err
	}
	server, err := url.Parse(cluster.Server)
	if err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http" {
		return nil, errors.New("its server is no URL")
	}
	access := &Access{Server: cluster.Server}
	if len(user.ClientCertificateData) > 0 {
		certificate, err := parseCertificate(user.ClientCertificateData)
		if err != nil {
			return nil, fmt.Errorf("its client certificate cannot be read: %w", err)
		}
		access.NotBefore, access.NotAfter = certificate.NotBefore, certificate.NotAfter
	}
	access.Config, err = clientcmd.NewNonInteractiveClientConfig(*config, config.CurrentContext, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, errors.New("no client can be created from it: it is incomplete or contradictory")
	}
	return access, nil
}

// refuseReferences refuses what would make us run programs or read files.
func refuseReferences(cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	switch {
	case user.Exec != nil, user.AuthProvider != nil:
		return errors.New("it names a program or plugin to get its credentials from, which is not run here: put a client certificate or a token into it")
	case cluster.CertificateAuthority != "", user.ClientCertificate != "", user.ClientKey != "", user.TokenFile != "":
		return errors.New("it refers to other files, which are not read here: put their content into it (kubectl config view --raw --flatten)")
	}
	return nil
}

func parseCertificate(data []byte) (*x509.Certificate, error) {
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil, errors.New("it is not in the PEM format")
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errors.New("it is damaged")
	}
	return certificate, nil
}
