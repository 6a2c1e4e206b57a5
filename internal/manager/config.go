package manager

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// podNamespaceFile has the namespace of the Pod's service account.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// RESTConfig returns the client configuration that the options select: --kubeconfig, $KUBECONFIG, in-cluster,
// or ~/.kube/config, in this order.
func (o *Options) RESTConfig() (*rest.Config, error) {
	files := o.kubeconfigFiles()
	if files == nil {
		cfg, err := rest.InClusterConfig()
		if err == nil {
			return cfg, nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("load the in-cluster configuration: %w", err)
		}
		files = []string{clientcmd.RecommendedHomeFile}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files, WarnIfAllMissing: false}
	if len(files) == 1 {
		// As in kubectl, a single missing file is an error; of several files, missing ones are ignored.
		rules = &clientcmd.ClientConfigLoadingRules{ExplicitPath: files[0]}
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %s: %w; name another with --kubeconfig, $KUBECONFIG or a context of it",
			strings.Join(files, string(filepath.ListSeparator)), err)
	}
	return cfg, nil
}

// kubeconfigFiles returns the kubeconfig files that the user set; nil means the in-cluster configuration.
func (o *Options) kubeconfigFiles() []string {
	if o.Kubeconfig != "" {
		return []string{o.Kubeconfig}
	}
	if named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); named != "" {
		return filepath.SplitList(named)
	}
	return nil
}

// podNamespace returns the namespace of this Pod, or "" outside of a Pod.
func podNamespace() string {
	if os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		return ""
	}
	raw, err := os.ReadFile(podNamespaceFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}
