package crontab

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/internal/kube"
)

// jobOwner finds Jobs by the UID of the CronTab that controls them.
const jobOwner = "crontab.controller"

// Indexes are the indexes that a Reconciler reads by.
var Indexes = []kube.Index{
	{Object: &batchv1.Job{}, Field: jobOwner, Keys: kube.ByController(kind.GroupKind())},
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// watchCronTabs wakes CronTabs that are new or changed, and forgets those that are gone.
func (r *Reconciler) watchCronTabs() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			kube.Enqueue(q, 0, client.ObjectKeyFromObject(e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			key := client.ObjectKeyFromObject(e.ObjectNew)
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				r.forget(e.ObjectOld)
			}
			priority := 0
			if e.ObjectOld.GetGeneration() == e.ObjectNew.GetGeneration() &&
				e.ObjectOld.GetAnnotations()[stablev1.RunRequestedAtAnnotation] == e.ObjectNew.GetAnnotations()[stablev1.RunRequestedAtAnnotation] {
				// Its status, most likely: what waited for that is housekeeping.
				priority = kube.LowPriority
			}
			kube.Enqueue(q, priority, key)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ queue) { r.forget(e.Object) },
	}
}

// forget drops all that is known of a CronTab that is gone.
func (r *Reconciler) forget(cronTab client.Object) {
	key := client.ObjectKeyFromObject(cronTab)
	if r.known.forget(key, cronTab.GetUID()) {
		r.alarm.set(key, time.Time{})
	}
}

// watchJobs wakes the CronTab that controls a Job, and the one that waits for the name of
// a Job to become free.
func (r *Reconciler) watchJobs() handler.EventHandler {
	wake := kube.WatchChildren(kind.GroupKind(), func(_ context.Context, job client.Object) []client.ObjectKey {
		if kube.IsControlled(job, kind.GroupKind()) {
			return nil
		}
		return wouldBe(job)
	})
	met := func(job client.Object) {
		if ref := metav1.GetControllerOfNoCopy(job); ref != nil {
			if m := r.known.find(client.ObjectKey{Namespace: job.GetNamespace(), Name: ref.Name}, ref.UID); m != nil {
				m.met(job.GetName())
			}
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			met(e.Object)
			wake.Create(ctx, e, q)
		},
		UpdateFunc: wake.Update,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			met(e.Object)
			wake.Delete(ctx, e, q)
		},
	}
}

// wouldBe returns the CronTab whose run a Job would be by its name.
func wouldBe(job client.Object) []client.ObjectKey {
	end := strings.LastIndexByte(job.GetName(), '-')
	if end < 1 {
		return nil
	}
	if _, err := strconv.ParseUint(job.GetName()[end+1:], 10, 63); err != nil {
		return nil
	}
	return []client.ObjectKey{{Namespace: job.GetNamespace(), Name: job.GetName()[:end]}}
}

// compactTemplate is the annotation of a CronTab in the cache that holds its jobTemplate
// as JSON. It never reaches the API: statuses are written without metadata.
const compactTemplate = "crontab.stable.example.com/cached-job-template"

// Cache makes a manager's cache keep of CronTabs and Jobs only what this controller
// reads, in little memory. Other controllers of the manager see Jobs so, too.
func Cache(options *cache.Options) {
	kube.Transform(options, &batchv1.Job{}, slimJob)
	kube.Transform(options, &stablev1.CronTab{}, kube.DropOthersNotes)
	kube.Transform(options, &stablev1.CronTab{}, slimCronTab)
}

// slimCronTab keeps the template as text: decoded it takes many times the memory.
func slimCronTab(object any) (any, error) {
	full, ok := object.(*stablev1.CronTab)
	if !ok {
		return object, nil
	}
	slim := &stablev1.CronTab{
		ObjectMeta: metav1.ObjectMeta{
			Name:              full.Name,
			Namespace:         full.Namespace,
			UID:               full.UID,
			ResourceVersion:   full.ResourceVersion,
			Generation:        full.Generation,
			CreationTimestamp: full.CreationTimestamp,
			DeletionTimestamp: full.DeletionTimestamp,
		},
		Spec:   full.Spec,
		Status: full.Status,
	}
	slim.Spec.JobTemplate = nil
	annotations := map[string]string{}
	if text, found := full.Annotations[stablev1.RunRequestedAtAnnotation]; found {
		annotations[stablev1.RunRequestedAtAnnotation] = text
	}
	if full.Spec.JobTemplate != nil {
		raw, err := json.Marshal(full.Spec.JobTemplate)
		if err != nil {
			return nil, fmt.Errorf("reduce CronTab %s/%s: %w", full.Namespace, full.Name, err)
		}
		annotations[compactTemplate] = string(raw)
	}
	if len(annotations) > 0 {
		slim.Annotations = annotations
	}
	return slim, nil
}

// slimJob returns what this controller reads of a Job. Of one that no CronTab controls
// that is the name, and whose it is.
func slimJob(object any) (any, error) {
	full, ok := object.(*batchv1.Job)
	if !ok {
		return object, nil
	}
	slim := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name:              full.Name,
		Namespace:         full.Namespace,
		UID:               full.UID,
		ResourceVersion:   full.ResourceVersion,
		CreationTimestamp: full.CreationTimestamp,
		DeletionTimestamp: full.DeletionTimestamp,
		OwnerReferences:   full.OwnerReferences,
	}}
	if !kube.IsControlled(full, kind.GroupKind()) {
		return slim, nil
	}
	for _, name := range []string{batchv1.CronJobScheduledTimestampAnnotation, stablev1.RunRequestedAtAnnotation, stablev1.TTLAnnotation} {
		if value, found := full.Annotations[name]; found {
			metav1.SetMetaDataAnnotation(&slim.ObjectMeta, name, value)
		}
	}
	slim.Status.StartTime = full.Status.StartTime
	slim.Status.CompletionTime = full.Status.CompletionTime
	for _, condition := range full.Status.Conditions {
		if condition.Status == corev1.ConditionTrue && (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) {
			slim.Status.Conditions = append(slim.Status.Conditions, batchv1.JobCondition{
				Type: condition.Type, Status: condition.Status, LastTransitionTime: condition.LastTransitionTime,
			})
		}
	}
	return slim, nil
}
