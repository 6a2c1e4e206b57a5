package cluster

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/names"
	"github.com/keelson-dev/keelson/internal/pki"
	"github.com/keelson-dev/keelson/internal/requests"
)

// UsersOf returns users of a spec for the certificates of an engine.
func UsersOf(users []v1alpha1.ClusterUser) []pki.User {
	var all []pki.User
	for _, u := range users {
		all = append(all, pki.User{
			Name: u.Name, Groups: u.Groups, TTL: ptr.Deref(u.TTL, metav1.Duration{}).Duration, Rotation: requests.Token(u.RotateRequestedAt),
		})
	}
	return all
}

// userSecretName returns the name of the Secret with the kubeconfig of a user.
func userSecretName(cluster, user string) string {
	suffix := "-kubeconfig-" + user
	return names.Shorten(cluster, validation.DNS1123SubdomainMaxLength-len(suffix)) + suffix
}

// userPlan is the action on the Secret of a user.
type userPlan struct {
	name   string
	action childAction
}

// observeUsers reads the Secrets of users: those of the spec, and those of removed users. It reads nothing for a Cluster without any.
func (r *Reconciler) observeUsers(ctx context.Context, cluster *v1alpha1.Cluster, seen *observation) error {
	isUnchanged := cluster.DeletionTimestamp.IsZero() && cluster.Status.ObservedGeneration == cluster.Generation
	if isUnchanged && len(cluster.Spec.Users) == 0 && len(cluster.Status.Users) == 0 {
		return nil
	}
	seen.users = map[string]*corev1.Secret{}
	var list corev1.SecretList
	labels := client.MatchingLabels{v1alpha1.LabelClusterName: newLabels(cluster)[v1alpha1.LabelClusterName]}
	if err := r.Live.List(ctx, &list, client.InNamespace(r.SecretNamespace), labels, client.HasLabels{v1alpha1.LabelUser}); err != nil {
		return kube.Named(err, "list", "Secrets", r.SecretNamespace, "")
	}
	for i := range list.Items {
		secret := &list.Items[i]
		user := secret.Labels[v1alpha1.LabelUser]
		if isControlled(secret, cluster) && secret.Name == userSecretName(cluster.Name, user) {
			seen.users[user] = secret
		}
	}
	for _, u := range cluster.Spec.Users { // without the labels, or of another owner
		if seen.users[u.Name] != nil || !cluster.DeletionTimestamp.IsZero() {
			continue
		}
		var secret corev1.Secret
		key := client.ObjectKey{Namespace: r.SecretNamespace, Name: userSecretName(cluster.Name, u.Name)}
		switch err := r.Live.Get(ctx, key, &secret); {
		case err == nil:
			seen.users[u.Name] = &secret
		case client.IgnoreNotFound(err) != nil:
			return kube.Named(err, "get", "Secret", key.Namespace, key.Name)
		}
	}
	return nil
}

// kubeconfigOf returns the kubeconfig of a user, if the engine has issued it.
func (o *Observation) kubeconfigOf(user string) []byte {
	for _, u := range o.Users {
		if u.Name == user {
			return u.Kubeconfig
		}
	}
	return nil
}

// decideUsers decides about the Secrets of users that differ. Those of removed users are deleted whatever the engine reports.
func decideUsers(cluster *v1alpha1.Cluster, seen observation, p *plan) {
	wanted := map[string]bool{}
	for _, u := range cluster.Spec.Users {
		wanted[u.Name] = true
		if action := decideUser(cluster, seen, u.Name); action != childKeep {
			p.users = append(p.users, userPlan{u.Name, action})
			if action == childBlocked || action == childWait {
				p.again = sooner(p.again, recheck) // events of Secrets of others are not watched
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen.users)) {
		if !wanted[name] {
			p.users = append(p.users, userPlan{name, childRemove})
		}
	}
}

func decideUser(cluster *v1alpha1.Cluster, seen observation, name string) childAction {
	secret, data := seen.users[name], seen.outside.kubeconfigOf(name)
	switch {
	case secret != nil && !isControlled(secret, cluster):
		return notOwnedAction(secret, cluster)
	case secret != nil && !secret.DeletionTimestamp.IsZero():
		return childWait
	case seen.err != nil || len(data) == 0:
		return childKeep // it is not known yet
	case secret == nil:
		return childCreate
	case secret.Type != v1alpha1.SecretTypeKubeconfig || secret.Immutable != nil && *secret.Immutable:
		return childReplace
	case bytes.Equal(secret.Data[v1alpha1.SecretKey], data) && hasOurMeta(secret, cluster) && secret.Labels[v1alpha1.LabelUser] == name:
		return childKeep
	default:
		return childRepair
	}
}

// newUserSecret returns the Secret of a user.
func newUserSecret(cluster *v1alpha1.Cluster, seen observation, name string) *corev1.Secret {
	secret := newSecret(cluster, seen)
	secret.Name = userSecretName(cluster.Name, name)
	secret.Labels[v1alpha1.LabelUser] = name
	secret.Data = map[string][]byte{v1alpha1.SecretKey: seen.outside.kubeconfigOf(name)}
	return secret
}

// actOnUsers executes the plan for each user. An error with one does not prevent the others.
func (r *Reconciler) actOnUsers(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, p *plan) error {
	p.usersReached = true
	var errs []error
	for _, u := range p.users {
		err := r.actOnUser(ctx, cluster, seen, u)
		if apierrors.IsAlreadyExists(err) {
			err = kube.ErrStale // the next reconcile sees whose it is
		}
		if err != nil {
			name := userSecretName(cluster.Name, u.name)
			errs = append(errs, &userError{kube.Named(err, "write", "Secret", seen.namespace, name), u.name})
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) actOnUser(ctx context.Context, cluster *v1alpha1.Cluster, seen observation, u userPlan) error {
	secret := seen.users[u.name]
	switch u.action {
	case childCreate:
		return r.Client.Create(ctx, newUserSecret(cluster, seen, u.name), client.FieldOwner(kube.FieldManager))
	case childRepair:
		changed, want := secret.DeepCopy(), newUserSecret(cluster, seen, u.name)
		adopt(changed, cluster)
		changed.Labels[v1alpha1.LabelUser] = u.name
		if changed.Data == nil {
			changed.Data = map[string][]byte{}
		}
		maps.Copy(changed.Data, want.Data)
		return r.Client.Update(ctx, changed, client.FieldOwner(kube.FieldManager))
	case childReplace:
		if err := kube.Delete(ctx, r.Client, secret); err != nil {
			return err
		}
		return r.Client.Create(ctx, newUserSecret(cluster, seen, u.name), client.FieldOwner(kube.FieldManager))
	case childRemove:
		return kube.Delete(ctx, r.Client, secret)
	}
	return nil
}

// userError is an error of a write of the Secret of a user.
type userError struct {
	error
	user string
}

func (e *userError) Unwrap() error { return e.error }

// summarizeUsers sets or removes what the status has about users.
func summarizeUsers(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error, status *v1alpha1.ClusterStatus) {
	const name = v1alpha1.ConditionUsersReady
	if !cluster.DeletionTimestamp.IsZero() || cluster.Spec.Paused {
		return
	}
	todo := map[string]childAction{}
	for _, u := range p.users {
		todo[u.name] = u.action
	}
	status.Users = summarizeUserList(cluster, seen, p, actErr)
	if len(cluster.Spec.Users) == 0 && len(status.Users) == 0 {
		meta.RemoveStatusCondition(&status.Conditions, name)
		return
	}
	var blocked, missing []string
	for _, u := range cluster.Spec.Users {
		switch {
		case todo[u.Name] == childBlocked:
			blocked = append(blocked, userSecretName(cluster.Name, u.Name))
		case todo[u.Name] == childWait, seen.err != nil, len(seen.outside.kubeconfigOf(u.Name)) == 0:
			missing = append(missing, u.Name)
		}
	}
	var failed *userError
	is := condition(name, metav1.ConditionTrue, v1alpha1.ReasonKubeconfigWritten, "The kubeconfigs of all users are in Secrets of the namespace %s", seen.namespace)
	switch {
	case len(blocked) > 0:
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonErrResourceExists,
			"The Secret %s in the namespace %s exists and does not belong to this Cluster. Delete it, or rename the user", strings.Join(blocked, ", "), seen.namespace)
	case errors.As(actErr, &failed):
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed,
			"The Secret of the user %s could not be written or deleted, the attempt is repeated: %s", failed.user, kube.APIWords(failed.error))
	case len(missing) > 0:
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonWaiting, "The cluster issues the credentials of these users when the spec is applied: %s", strings.Join(missing, ", "))
	}
	kube.SetConditions(cluster, &status.Conditions, p.at, is)
}

// keepRotations sets the last request for a rotation of each user without one: who removes the field does not request a rotation.
func keepRotations(users []v1alpha1.ClusterUser, status []v1alpha1.ClusterUserStatus) {
	for i := range users {
		if users[i].RotateRequestedAt != nil {
			continue
		}
		for _, was := range status {
			if was.Name == users[i].Name {
				users[i].RotateRequestedAt = was.LastRotateRequestedAt.DeepCopy()
			}
		}
	}
}

// summarizeUserList returns the users that have a Secret after the plan was executed. A removed user stays until its Secret is deleted.
func summarizeUserList(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) []v1alpha1.ClusterUserStatus {
	has := map[string][]byte{}
	for name, secret := range seen.users {
		if isControlled(secret, cluster) {
			has[name] = secret.Data[v1alpha1.SecretKey]
		}
	}
	for _, u := range p.users {
		switch {
		case !p.usersReached || isFailed(actErr, u.name) || u.action == childWait || u.action == childBlocked:
		case u.action == childRemove:
			delete(has, u.name)
		default:
			has[u.name] = seen.outside.kubeconfigOf(u.name)
		}
	}
	rotations := map[string]*metav1.Time{}
	for _, u := range newRequest(cluster).Spec.Users {
		rotations[u.Name] = u.RotateRequestedAt
	}
	var all []v1alpha1.ClusterUserStatus
	for _, name := range slices.Sorted(maps.Keys(has)) {
		is := v1alpha1.ClusterUserStatus{Name: name, LastRotateRequestedAt: rotations[name], SecretRef: &v1alpha1.SecretReference{
			Namespace: seen.namespace, Name: userSecretName(cluster.Name, name), Key: v1alpha1.SecretKey,
		}}
		if access, err := kubeconfig.Parse(has[name]); err == nil && !access.NotAfter.IsZero() {
			is.NotAfter = &metav1.Time{Time: access.NotAfter}
		}
		all = append(all, is)
	}
	return all
}

// isFailed reports whether the action on a user has failed.
func isFailed(err error, user string) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return isFailed(err, user) })
	}
	var own *userError
	return errors.As(err, &own) && own.user == user
}

// removeUsers deletes the Secrets of all users.
func (r *Reconciler) removeUsers(ctx context.Context, cluster *v1alpha1.Cluster, seen observation) error {
	var errs []error
	for _, secret := range seen.users {
		if isControlled(secret, cluster) {
			errs = append(errs, kube.Named(kube.Delete(ctx, r.Client, secret), "delete", "Secret", secret.Namespace, secret.Name))
		}
	}
	return errors.Join(errs...)
}

// equalUsers reports whether two statuses have the same users.
func equalUsers(a, b []v1alpha1.ClusterUserStatus) bool {
	return slices.EqualFunc(a, b, func(a, b v1alpha1.ClusterUserStatus) bool { return a.Name == b.Name && a.NotAfter.Equal(b.NotAfter) })
}
