package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/admission"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/kube"
)

// former has the namespaces that earlier versions used in place of keelson-system. An empty one means that there is
// nothing to move: the namespace is the same, or the user has set it.
type former struct{ lease, secrets, webhook string }

const (
	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"
	// moveTimeout limits the wait of the controllers for the first attempt to move the Secrets.
	moveTimeout = 30 * time.Second
	// movePause is the time between attempts.
	movePause = time.Minute
)

// mover moves the Secrets that earlier versions kept in another namespace. It runs on the leader.
type mover struct {
	client client.Client
	live   client.Reader // without a cache
	// from and to are the old and new namespaces of the kubeconfigs, authority the namespace of the webhook's former
	// CA. Empty: nothing to move or delete.
	from, to, authority string
	log                 logr.Logger
	// tried is closed after the first attempt. Controllers start then, because earlier they would miss Secrets.
	tried chan struct{}
}

// Start implements manager.Runnable.
func (m *mover) Start(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, moveTimeout)
	err := m.move(first)
	cancel()
	close(m.tried)
	for err != nil && ctx.Err() == nil {
		m.log.Error(err, "Failed to move some Secrets to their new namespace, will retry", "pause", movePause)
		select {
		case <-ctx.Done():
		case <-time.After(movePause):
			err = m.move(ctx)
		}
	}
	return nil
}

// addMover adds the mover to m. It returns a channel that is closed when the controllers may start.
func addMover(m ctrl.Manager, o *Options, selected []Controller) (<-chan struct{}, error) {
	v := &mover{client: m.GetClient(), live: m.GetAPIReader(), to: o.SecretNamespace, log: o.Logger, tried: make(chan struct{})}
	if slices.ContainsFunc(selected, func(c Controller) bool { return c.Name == cluster.Name }) {
		v.from = o.former.secrets
	}
	if o.Webhook.keepsSecret() {
		v.authority = o.former.webhook
	}
	if v.from == "" && v.authority == "" {
		close(v.tried)
		return v.tried, nil
	}
	return v.tried, m.Add(v)
}

// move can be interrupted at any write and called again.
func (m *mover) move(ctx context.Context) error {
	var errs []error
	if m.from != "" {
		errs = append(errs, m.moveKubeconfigs(ctx))
	}
	if m.authority != "" {
		errs = append(errs, m.removeAuthority(ctx))
	}
	return errors.Join(errs...)
}

// moveKubeconfigs moves the Secrets with the kubeconfigs of Clusters.
func (m *mover) moveKubeconfigs(ctx context.Context) error {
	var secrets corev1.SecretList
	err := m.live.List(ctx, &secrets, client.InNamespace(m.from), client.HasLabels{v1alpha1.LabelClusterName},
		client.MatchingLabels{labelManagedBy: kube.FieldManager})
	if apierrors.IsForbidden(err) {
		m.log.Info("No permission to list Secrets in the namespace where earlier versions kept the kubeconfigs of Clusters. If one ran here, delete them there",
			"namespace", m.from, "selector", labelManagedBy+"="+kube.FieldManager+","+v1alpha1.LabelClusterName)
		return nil
	}
	if err != nil {
		return fmt.Errorf("list Secrets in namespace %s: %w", m.from, err)
	}
	var errs []error
	for i := range secrets.Items {
		if s := &secrets.Items[i]; s.Type == v1alpha1.SecretTypeKubeconfig && s.DeletionTimestamp.IsZero() {
			errs = append(errs, m.moveKubeconfig(ctx, s))
		}
	}
	return errors.Join(errs...)
}

// moveKubeconfig copies a Secret, updates the references in the Kubeconfig and the status of its Cluster, and deletes
// the original.
func (m *mover) moveKubeconfig(ctx context.Context, secret *corev1.Secret) error {
	owner := metav1.GetControllerOf(secret)
	if owner == nil || owner.Kind != "Cluster" {
		return nil
	}
	var of v1alpha1.Cluster
	err := m.live.Get(ctx, client.ObjectKey{Name: owner.Name}, &of)
	if apierrors.IsNotFound(err) || err == nil && of.UID != owner.UID {
		return nil // the garbage collector deletes the Secret
	}
	if err != nil {
		return kube.Named(err, "get", "Cluster", "", owner.Name)
	}
	var kubeconfig v1alpha1.Kubeconfig
	if err := m.live.Get(ctx, client.ObjectKey{Name: owner.Name}, &kubeconfig); client.IgnoreNotFound(err) != nil {
		return kube.Named(err, "get", "Kubeconfig", "", owner.Name)
	}
	refers := m.isFormer(kubeconfig.Spec.SecretRef, secret.Name)
	if err := m.copySecret(ctx, secret, refers); err != nil {
		return err
	}
	if refers {
		kubeconfig.Spec.SecretRef.Namespace = m.to
		if err := m.client.Update(ctx, &kubeconfig, client.FieldOwner(kube.FieldManager)); err != nil {
			return kube.Named(err, "update", "Kubeconfig", "", kubeconfig.Name)
		}
	}
	if ref := of.Status.KubeconfigRef; ref != nil && m.isFormer(ref.SecretRef, secret.Name) {
		ref.SecretRef.Namespace = m.to
		if err := m.client.Status().Update(ctx, &of, client.FieldOwner(kube.FieldManager)); err != nil {
			return kube.Named(err, "update the status of", "Cluster", "", of.Name)
		}
	}
	if err := kube.Delete(ctx, m.client, secret); err != nil {
		return kube.Named(err, "delete", "Secret", secret.Namespace, secret.Name)
	}
	m.log.Info("Moved the kubeconfig of a Cluster", "Cluster", of.Name, "Secret", secret.Name, "from", m.from, "to", m.to)
	return nil
}

// isFormer reports whether a reference is to the Secret of that name in the former namespace.
func (m *mover) isFormer(ref *v1alpha1.SecretReference, name string) bool {
	return ref != nil && ref.Namespace == m.from && ref.Name == name
}

// copySecret copies a Secret. If a copy exists, refers tells which is newer: the one that the Kubeconfig refers to.
func (m *mover) copySecret(ctx context.Context, secret *corev1.Secret, refers bool) error {
	key := client.ObjectKey{Namespace: m.to, Name: secret.Name}
	err := m.client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: key.Namespace, Name: key.Name,
			Labels: secret.Labels, Annotations: secret.Annotations, OwnerReferences: secret.OwnerReferences,
		},
		Type: secret.Type, Data: secret.Data,
	}, client.FieldOwner(kube.FieldManager))
	if !apierrors.IsAlreadyExists(err) {
		return kube.Named(err, "create", "Secret", key.Namespace, key.Name)
	}
	var found corev1.Secret
	if err := m.live.Get(ctx, key, &found); err != nil {
		return kube.Named(err, "get", "Secret", key.Namespace, key.Name)
	}
	if owner := metav1.GetControllerOf(secret); !metav1.IsControlledBy(&found, &metav1.ObjectMeta{UID: owner.UID}) {
		return fmt.Errorf("cannot move the kubeconfig of Cluster %s to Secret %s, which belongs to another owner: delete or rename that Secret", owner.Name, key)
	}
	if !refers || equality.Semantic.DeepEqual(found.Data, secret.Data) {
		return nil
	}
	found.Data = secret.Data
	return kube.Named(m.client.Update(ctx, &found, client.FieldOwner(kube.FieldManager)), "update", "Secret", key.Namespace, key.Name)
}

// removeAuthority deletes the webhook's former CA. It is not moved: the webhook creates a new one, with a key that was never in
// another namespace.
func (m *mover) removeAuthority(ctx context.Context) error {
	var secret corev1.Secret
	err := m.live.Get(ctx, client.ObjectKey{Namespace: m.authority, Name: admission.SecretName}, &secret)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || err == nil && secret.Labels[labelName] != "keelson" {
		return nil
	}
	if err == nil {
		err = kube.Delete(ctx, m.client, &secret)
	}
	if apierrors.IsForbidden(err) {
		m.log.Info("No permission to delete the Secret with the former CA of the webhook. It is unused: delete it",
			"namespace", m.authority, "Secret", secret.Name)
		return nil
	}
	return kube.Named(err, "delete", "Secret", m.authority, admission.SecretName)
}
