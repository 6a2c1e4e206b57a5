package access

import (
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/access/client"
)

const groupVersion = client.Group + "/" + client.Version

// group is the API group for clients that discover it.
func group() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: groupVersion, Version: client.Version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroup"}, Name: client.Group,
		Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}

// resources are what the group has: subresources only, so that the name of a VirtualMachine in kubectl is always that of
// the object.
func resources() metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: groupVersion}
	for _, subresource := range []string{client.Console, client.Log, client.PortForward, client.Screen, client.Screenshot, client.Usage} {
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: client.Resource + "/" + subresource, Namespaced: true, Kind: "VirtualMachine", Verbs: metav1.Verbs{"get"},
		})
	}
	list.APIResources = append(list.APIResources, metav1.APIResource{
		Name: client.Clusters + "/" + client.Proxy, Kind: "Cluster", Verbs: metav1.Verbs{"create", "delete", "get", "patch", "update"},
	})
	return list
}

// addDiscovery adds what kube-apiserver and its clients need in order to find the resources.
func addDiscovery(mux *http.ServeMux) {
	serve := func(path string, body any) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") {
				// kube-apiserver then asks for the lists below, and aggregates them itself.
				refuse(http.StatusNotAcceptable, "this server has no aggregated discovery").write(w)
				return
			}
			writeJSON(w, http.StatusOK, body)
		})
	}
	serve("/apis", metav1.APIGroupList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIGroupList"}, Groups: []metav1.APIGroup{group()}})
	serve("/apis/"+client.Group, group())
	serve("/apis/"+groupVersion, resources())
	// There are no objects to describe.
	serve("/openapi/v2", map[string]any{
		"swagger": "2.0", "info": map[string]any{"title": client.Group, "version": client.Version}, "paths": map[string]any{},
	})
	serve("/openapi/v3", map[string]any{"paths": map[string]any{}})
}
