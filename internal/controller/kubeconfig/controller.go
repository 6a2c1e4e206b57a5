// Package kubeconfig reports the server and the expiry of the kubeconfig that each Kubeconfig refers to.
package kubeconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/setup"
)

// Name is the name of this controller in logs, metrics and flags.
const Name = "kubeconfig"

var kind = v1alpha1.SchemeGroupVersion.WithKind("Kubeconfig")

// recheck is the interval for reading a file, which has no events, and a Secret, which is not watched.
const recheck = time.Minute

// Options configure a Reconciler.
type Options struct {
	// SecretNamespace is the namespace whose Secrets may be read.
	SecretNamespace string
	// ConfigDirs are the directories that may contain the files of spec.configPath. If empty, no files are read.
	ConfigDirs confine.Dirs
}

// Reconciler writes the status of Kubeconfigs.
type Reconciler struct {
	kube.Base
	Options
}

// Add adds the controller to a manager.
func Add(mgr ctrl.Manager, options controller.Options, o Options) error {
	r := &Reconciler{kube.BaseOf(mgr, kind, Name), o}
	watches := ctrl.NewControllerManagedBy(mgr).
		For(&v1alpha1.Kubeconfig{})
	return setup.Controller(mgr, Name, options, watches, r)
}

// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=kubeconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=clusterprovisioner.rke.io,resources=kubeconfigs/status,verbs=update
// +kubebuilder:rbac:namespace=keelson-system,groups="",resources=secrets,verbs=get

// Reconcile reads the kubeconfig that k refers to and updates the status of k.
func (r *Reconciler) Reconcile(ctx context.Context, k *v1alpha1.Kubeconfig) (reconcile.Result, error) {
	if !k.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	if k.Spec.LegacyConfigPath != "" {
		return reconcile.Result{}, r.migrate(ctx, k)
	}
	seen, err := r.observe(ctx, k)
	if err != nil {
		return reconcile.Result{}, err
	}
	kube.LogAction(ctx, "check")
	status, again := summarize(k, seen, r.Clock.Now())
	_, ready := kube.ConditionTransition(nil, status.Conditions, v1alpha1.ConditionReady)
	kube.LogReady(ctx, ready)
	after := k.DeepCopy()
	after.Status = status
	_, result, err := r.Status.Finish(ctx, k, after, kube.Outcome{Urgent: true, Again: again})
	return result, err
}

// migrate moves the path to spec.configPath. The original controller stored it in a field with a wrong name, from a broken JSON tag.
func (r *Reconciler) migrate(ctx context.Context, k *v1alpha1.Kubeconfig) error {
	changed := k.DeepCopy()
	if changed.Spec.ConfigPath == "" {
		changed.Spec.ConfigPath = k.Spec.LegacyConfigPath
	}
	changed.Spec.LegacyConfigPath = ""
	patch := client.MergeFromWithOptions(k, client.MergeFromWithOptimisticLock{})
	err := r.Client.Patch(ctx, changed, patch, client.FieldOwner(kube.FieldManager))
	if kube.IsStale(err) {
		return nil // the event of the other change triggers the next attempt
	}
	return kube.Named(err, "migrate", kind.Kind, "", k.Name)
}

// observation is the observed kubeconfig.
type observation struct {
	// access is the content of the kubeconfig; nil if it is missing or invalid.
	access *kubeconfig.Access
	// missing is set if there is no kubeconfig, and invalid if it cannot be used. Both are messages for the condition.
	missing, invalid string
}

// observe reads the Secret, or the file if there is no Secret.
func (r *Reconciler) observe(ctx context.Context, k *v1alpha1.Kubeconfig) (observation, error) {
	var data []byte
	switch ref := k.Spec.SecretRef; {
	case ref != nil && ref.Namespace != r.SecretNamespace:
		return observation{invalid: fmt.Sprintf("Secret %s/%s is not read: %s", ref.Namespace, ref.Name, onlyIn(r.SecretNamespace))}, nil
	case ref != nil:
		var secret corev1.Secret
		err := r.Live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &secret)
		if client.IgnoreNotFound(err) != nil {
			return observation{}, kube.Named(err, "get", "Secret", ref.Namespace, ref.Name)
		}
		data = secret.Data[keyOf(ref)]
		if len(data) == 0 {
			return observation{missing: fmt.Sprintf("Secret %s/%s with the key %s does not exist", ref.Namespace, ref.Name, keyOf(ref))}, nil
		}
	case k.Spec.ConfigPath != "":
		read, err := r.ConfigDirs.ReadSecret(k.Spec.ConfigPath)
		if errors.Is(err, confine.ErrOutside) || errors.Is(err, confine.ErrForm) {
			return observation{invalid: fmt.Sprintf("spec.configPath %s: %s", k.Spec.ConfigPath, notAllowed(err, r.ConfigDirs))}, nil
		}
		if err != nil {
			return observation{missing: fmt.Sprintf("The file %s cannot be read on the host of the manager: %s", k.Spec.ConfigPath, err)}, nil
		}
		data = read
	default:
		return observation{missing: "Neither spec.secretRef nor spec.configPath is set"}, nil
	}
	access, err := kubeconfig.Parse(data)
	if err != nil {
		return observation{invalid: "The kubeconfig is invalid: " + err.Error()}, nil
	}
	return observation{access: access}, nil
}

func keyOf(ref *v1alpha1.SecretReference) string {
	return cmp.Or(ref.Key, v1alpha1.SecretKey)
}
