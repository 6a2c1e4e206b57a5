package console

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
)

// maxObject is the size of an answer that is read here, in bytes: a list has many objects.
const maxObject = 64 << 20

// kubeconfig serves the kubeconfig of a Cluster, or that of one of its users, for users who may read its Secret. Other
// Secrets do not pass the console: this one has the type, belongs to the Cluster, and is that of the user. Names do not tell: the Secret of
// the Cluster a-kubeconfig is named as that of the user kubeconfig of the Cluster a.
func (c *Console) kubeconfig(w http.ResponseWriter, r *http.Request) {
	name, user := r.PathValue("name"), r.URL.Query().Get("user")
	if !namePath.MatchString(name) {
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "This is not the name of a Cluster.")
		return
	}
	var cluster clusterv1alpha1.Cluster
	if status := c.read(r.Context(), "/apis/"+clusterv1alpha1.SchemeGroupVersion.String()+"/clusters/"+name, &cluster); status != nil {
		answer(w, int(status.Code), status)
		return
	}
	ref := secretOf(&cluster, user)
	if ref == nil || !namePath.MatchString(ref.Namespace) || !namePath.MatchString(ref.Name) {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "Cluster "+name+" has no "+kubeconfigOf(user)+" yet.")
		return
	}
	var secret corev1.Secret
	if status := c.read(r.Context(), "/api/v1/namespaces/"+ref.Namespace+"/secrets/"+ref.Name, &secret); status != nil {
		answer(w, int(status.Code), status)
		return
	}
	content := secret.Data[cmp.Or(ref.Key, clusterv1alpha1.SecretKey)]
	if secret.Type != clusterv1alpha1.SecretTypeKubeconfig || !metav1.IsControlledBy(&secret, &cluster) ||
		secret.Labels[clusterv1alpha1.LabelUser] != user || len(content) == 0 {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, "The Secret "+secret.Name+" has no "+kubeconfigOf(user)+" of Cluster "+name+".")
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write(content) // the browser has gone
}

// secretOf returns the Secret that the status of a Cluster names for a user; "" is the administrator.
func secretOf(cluster *clusterv1alpha1.Cluster, user string) *clusterv1alpha1.SecretReference {
	if user == "" {
		if cluster.Status.KubeconfigRef == nil {
			return nil
		}
		return cluster.Status.KubeconfigRef.SecretRef
	}
	for _, u := range cluster.Status.Users {
		if u.Name == user {
			return u.SecretRef
		}
	}
	return nil
}

func kubeconfigOf(user string) string {
	if user == "" {
		return "kubeconfig"
	}
	return fmt.Sprintf("kubeconfig of the user %q", user)
}

// read reads an object or a list as the user. It returns what went wrong, or nil.
func (c *Console) read(ctx context.Context, path string, object any) *metav1.Status {
	return c.readAs(ctx, path, "application/json", object)
}

// readAs reads an answer in one of the formats that are accepted.
func (c *Console) readAs(ctx context.Context, path, accept string, object any) *metav1.Status {
	target := *c.server
	path, query, _ := strings.Cut(path, "?")
	target.Path, target.RawQuery = c.pathOf(path), query
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return newStatus(http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
	}
	request.Header.Set("Accept", accept)
	c.identify(ctx, request.Header)
	response, err := c.client.Do(request)
	if err != nil {
		return newStatus(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, c.unreachableMessage(err))
	}
	defer func() { _ = response.Body.Close() }() // it was only read
	if response.StatusCode != http.StatusOK {
		return failure(response)
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxObject)).Decode(object); err != nil {
		return newStatus(http.StatusBadGateway, metav1.StatusReasonServiceUnavailable, c.unreachableMessage(err))
	}
	return nil
}
