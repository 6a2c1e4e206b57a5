package target

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// extension names the record of SetOrigin in a kubeconfig.
const extension = "keelson"

// origin is the record of SetOrigin.
type origin struct {
	DataDir    string `json:"dataDir,omitempty"`
	Kubeconfig string `json:"kubeconfig,omitempty"`
	Context    string `json:"context,omitempty"`
}

// SetOrigin records in the entry of a Cluster in a kubeconfig which API has the object Cluster. While the context of the entry is
// the current one, API returns that API: kubectl works in the Cluster, and this program on its object.
func SetOrigin(cluster *clientcmdapi.Cluster, api *API) error {
	raw, err := json.Marshal(origin{api.Selected.DataDir, api.Selected.Kubeconfig, api.Selected.Context})
	if err == nil {
		cluster.Extensions = map[string]runtime.Object{extension: &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}}
	}
	return err
}

// originOf returns flags that select the API with the object of the Cluster that the current context is of; nil if it is not of one.
func originOf(config *clientcmdapi.Config) *Flags {
	context := config.Contexts[config.CurrentContext]
	if context == nil || config.Clusters[context.Cluster] == nil {
		return nil
	}
	record, ok := config.Clusters[context.Cluster].Extensions[extension].(*runtime.Unknown)
	var o origin
	if !ok || json.Unmarshal(record.Raw, &o) != nil || o == (origin{}) {
		return nil
	}
	return &Flags{DataDir: o.DataDir, Kubeconfig: o.Kubeconfig, Context: o.Context}
}
