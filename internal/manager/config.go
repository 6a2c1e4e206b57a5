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

// podNamespaceFile is where a pod finds the namespace of its service account.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// RESTConfig returns how to reach the API server that the options name: by
// --kubeconfig, else $KUBECONFIG, else as a pod of the cluster, else
// ~/.kube/config.
func (o *Options) RESTConfig() (*rest.Config, error) {
	files := o.kubeconfigFiles()
	if files == nil {
		cfg, err := rest.InClusterConfig()
		if err == nil {
			return cfg, nil
		}
		if !errors.Is(err, rest.ErrNotInCluster) {
			return nil, fmt.Errorf("reach the API server of the cluster around this process: %w", err)
		}
		files = []string{clientcmd.RecommendedHomeFile}
	}
	rules := &clientcmd.ClientConfigLoadingRules{Precedence: files, WarnIfAllMissing: false}
	if len(files) == 1 {
		// A single file that is not there is an error; of several, as kubectl has it,
		// those that are there count.
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

// kubeconfigFiles returns the files that were named for this process, or nil if none
// was, so that the cluster around it is meant.
func (o *Options) kubeconfigFiles() []string {
	if o.Kubeconfig != "" {
		return []string{o.Kubeconfig}
	}
	if named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); named != "" {
		return filepath.SplitList(named)
	}
	return nil
}

// podNamespace is the namespace of the pod that this process is in; empty if it is
// in none.
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
