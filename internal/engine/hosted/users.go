package hosted

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/pki"
)

// tellPods changes an annotation of the Pods of API servers after a change of the CAs of clients. For a changed Pod, a kubelet updates the
// files of a Secret at once; otherwise it takes up to two minutes.
func (e *Engine) tellPods(ctx context.Context, pods []corev1.Pod, clients []byte) error {
	sum := sha256.Sum256(clients)
	hash := hex.EncodeToString(sum[:8])
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotationClients: hash}}})
	if err != nil {
		return err
	}
	for i := range pods {
		pod := &pods[i]
		if pod.Labels[labelComponent] != componentAPI || pod.Annotations[annotationClients] == hash || !pod.DeletionTimestamp.IsZero() {
			continue
		}
		if err := e.client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, patch), fieldOwner); client.IgnoreNotFound(err) != nil {
			return explain(err, "patch", "Pod", pod)
		}
	}
	return nil
}

// observeUsers adds the kubeconfigs of the cluster and of its users to an observation, as soon as the API accepts them.
func (e *Engine) observeUsers(ctx context.Context, here place, secret *corev1.Secret, wanted desire, seen *cluster.Observation) error {
	files := data(secret.Data)
	last, err := files.rotation()
	if err != nil {
		return err
	}
	seen.Rotated = last.Token
	ctx, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	add := func(u pki.User, isTrusted bool) ([]byte, error) {
		key, found := files[u.Certificate()+".key"]
		if !found {
			return nil, nil
		}
		kubeconfig, err := files.kubeconfig(here.cluster, seen.Endpoint, &clientcmdapi.AuthInfo{ClientCertificateData: files[u.Certificate()+".crt"], ClientKeyData: key})
		if err != nil || isTrusted || e.isAccepted(ctx, seen.Running, here.uid, u, kubeconfig) {
			return kubeconfig, err
		}
		seen.Poll = poll
		return nil, nil
	}
	// All Pods have started with the first credentials, and a Pod that starts has the present ones.
	if seen.Kubeconfig, err = add(administrator(last.Token), last.Previous == "" || seen.Stopped); err != nil {
		return err
	}
	for _, u := range wanted.users {
		kubeconfig, err := add(u, seen.Stopped)
		if err != nil {
			return err
		}
		if kubeconfig != nil {
			seen.Users = append(seen.Users, cluster.UserKubeconfig{Name: u.Name, Kubeconfig: kubeconfig})
		}
	}
	return nil
}

// acceptTimeout limits the requests of an observation to the API of a cluster.
const acceptTimeout = 2 * time.Second

// isAccepted reports whether the API has accepted the CA of a user. It asks an API that runs until it has.
func (e *Engine) isAccepted(ctx context.Context, running bool, uid types.UID, u pki.User, kubeconfig []byte) bool {
	key := acceptedKey{uid, u.Authority()}
	e.mu.Lock()
	known := e.accepted[key]
	e.mu.Unlock()
	if known || !running {
		return known
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return false
	}
	api, err := authenticationclient.NewForConfig(config)
	if err != nil {
		return false
	}
	review, err := api.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil || review.Status.UserInfo.Username != u.Name {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.accepted[key] = true
	return true
}

// acceptedKey identifies the CA of a user of a cluster.
type acceptedKey struct {
	uid       types.UID
	authority string
}
