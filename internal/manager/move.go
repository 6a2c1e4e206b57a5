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

// former has the namespaces in which earlier versions kept what this manager keeps in keelson-system. An empty one means
// that the namespace is the same, or was chosen by the user, so that there is nothing to move.
type former struct{ lease, secrets, webhook string }

const (
	labelName      = "app.kubernetes.io/name"
	labelManagedBy = "app.kubernetes.io/managed-by"
	// moveTimeout is how long the controllers wait for the first attempt to move the Secrets.
	moveTimeout = 30 * time.Second
	// movePause is the time between two attempts.
	movePause = time.Minute
)

// mover moves the Secrets that earlier versions kept in another namespace. It runs on the leader.
type mover struct {
	client client.Client
	live   client.Reader // without a cache
	// from and to are the namespaces of the kubeconfigs, authority is the one of the webhook's former authority. Empty:
	// there is nothing to move, or to remove.
	from, to, authority string
	log                 logr.Logger
	// tried is closed after the first attempt. Controllers start then: they would find no Secret where it is not yet.
	tried chan struct{}
}

// Start implements manager.Runnable.
func (m *mover) Start(ctx context.Context) error {
	first, cancel := context.WithTimeout(ctx, moveTimeout)
	err := m.move(first)
	cancel()
	close(m.tried)
	for err != nil && ctx.Err() == nil {
		m.log.Error(err, "Some Secrets are still where earlier versions kept them, trying again", "pause", movePause)
		select {
		case <-ctx.Done():
		case <-time.After(movePause):
			err = m.move(ctx)
		}
	}
	return nil
}

// addMover adds to m what moves the Secrets. It returns a channel that is closed when the controllers may start.
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

// move does what is left to do. It can end at any write, and be called again.
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
		m.log.Info("Not allowed to list Secrets where earlier versions kept the kubeconfigs of Clusters. If one ran here, delete them there",
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

// moveKubeconfig copies a Secret, lets the Kubeconfig and the status of its Cluster refer to the copy, and deletes it.
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

// isFormer reports whether a reference is to the Secret of that name at its former place.
func (m *mover) isFormer(ref *v1alpha1.SecretReference, name string) bool {
	return ref != nil && ref.Namespace == m.from && ref.Name == name
}

// copySecret makes the copy of a Secret. If one exists, refers says which is newer: the one that the Kubeconfig refers to.
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
		return fmt.Errorf("the Secret %s, to which the kubeconfig of Cluster %s is to be moved, belongs to another owner: delete or rename it", key, owner.Name)
	}
	if !refers || equality.Semantic.DeepEqual(found.Data, secret.Data) {
		return nil
	}
	found.Data = secret.Data
	return kube.Named(m.client.Update(ctx, &found, client.FieldOwner(kube.FieldManager)), "update", "Secret", key.Namespace, key.Name)
}

// removeAuthority deletes the webhook's former authority, which is not moved: the webhook creates a new one, with a key that has
// never been in another namespace.
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
		m.log.Info("Not allowed to delete the Secret with the former authority of the webhook. Nothing uses it any more: delete it",
			"namespace", m.authority, "Secret", secret.Name)
		return nil
	}
	return kube.Named(err, "delete", "Secret", m.authority, admission.SecretName)
}
