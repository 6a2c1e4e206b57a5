package sampleresource

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// act executes the plan and stops at the first error.
func (r *Reconciler) act(ctx context.Context, sample *samplev1.SampleResource, p plan) error {
	var err error
	switch p.action {
	case create:
		err = r.create(ctx, sample, p.name)
	case changeImage:
		err = r.changeImage(ctx, sample, p.pod)
	case replace:
		if err = r.remove(ctx, p.pod, "it failed"); err == nil {
			r.Events.Normal(sample, samplev1.ReasonPodReplaced, "DeletePod", fmt.Sprintf("Deleted the failed Pod %q; a new one is created", p.pod.Name))
		}
	}
	for _, pod := range p.surplus {
		if err == nil {
			err = r.remove(ctx, pod, "it is surplus, or lacks the container")
		}
	}
	return err
}

func (r *Reconciler) create(ctx context.Context, sample *samplev1.SampleResource, name string) error {
	if err := r.CreateChild(ctx, newPod(sample, name), corev1.SchemeGroupVersion.WithKind("Pod"), sample, kind.GroupKind()); err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("Created Pod", "Pod", name)
	if sample.Status.ObservedGeneration > 0 {
		// Not for the first Pod: every SampleResource has one.
		r.Events.Normal(sample, samplev1.ReasonPodCreated, "CreatePod", fmt.Sprintf("Created Pod %q", name))
	}
	return nil
}

// changeImage changes the image of a Pod in place.
func (r *Reconciler) changeImage(ctx context.Context, sample *samplev1.SampleResource, pod *corev1.Pod) error {
	patch, err := json.Marshal(map[string]any{
		// The UID is a precondition: another Pod with this name is not changed.
		"metadata": map[string]any{"uid": pod.UID},
		"spec": map[string]any{
			"containers": []map[string]any{{"name": containerName, "image": sample.Spec.PodImage}},
		},
	})
	if err == nil {
		target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
		err = r.Client.Patch(ctx, target, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(kube.FieldManager))
	}
	if err != nil {
		return kube.Named(err, "change the image of", "Pod", pod.Namespace, pod.Name)
	}
	log.FromContext(ctx).Info("Changed image", "Pod", pod.Name, "from", podImage(pod), "to", sample.Spec.PodImage)
	r.Events.Normal(sample, samplev1.ReasonImageChanged, "PatchPod",
		fmt.Sprintf("Changed the image of Pod %q from %q to %q", pod.Name, podImage(pod), sample.Spec.PodImage))
	return nil
}

func (r *Reconciler) remove(ctx context.Context, pod *corev1.Pod, why string) error {
	if err := kube.Delete(ctx, r.Client, pod); err != nil {
		return kube.Named(err, "delete", "Pod", pod.Namespace, pod.Name)
	}
	log.FromContext(ctx).Info("Deleted Pod", "Pod", pod.Name, "why", why)
	return nil
}

// isRejected reports whether the API rejected the Pod because of its content.
func isRejected(err error) bool {
	return kube.IsRejected(err) && !isServiceAccountMissing(err)
}

// isServiceAccountMissing reports whether a new namespace has no default ServiceAccount yet.
// The API server returns a Forbidden error, which only the message of the ServiceAccount
// admission plugin distinguishes from others.
func isServiceAccountMissing(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "error looking up service account")
}
