package hosted

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/kube"
)

// found are the objects of a cluster; nil if they do not exist, or are being deleted.
type found struct {
	secret     *corev1.Secret
	service    *corev1.Service
	etcd       *appsv1.StatefulSet
	deployment *appsv1.Deployment
	pods       []corev1.Pod
}

// find reads the objects of a cluster.
func (e *Engine) find(ctx context.Context, here place) (found, error) {
	secret, service, etcd, deployment := &corev1.Secret{}, &corev1.Service{}, &appsv1.StatefulSet{}, &appsv1.Deployment{}
	var seen found
	for _, read := range []struct {
		kind, name string
		object     client.Object
		found      func()
	}{
		{"Secret", here.name, secret, func() { seen.secret = secret }},
		{"Service", here.name, service, func() { seen.service = service }},
		{"StatefulSet", here.etcd(), etcd, func() { seen.etcd = etcd }},
		{"Deployment", here.name, deployment, func() { seen.deployment = deployment }},
	} {
		err := e.client.Get(ctx, client.ObjectKey{Namespace: here.namespace, Name: read.name}, read.object)
		switch {
		case client.IgnoreNotFound(err) != nil:
			read.object.SetNamespace(here.namespace)
			return seen, explain(err, "get", read.kind, read.object)
		case err != nil || !read.object.GetDeletionTimestamp().IsZero():
		case read.object.GetLabels()[labelUID] != string(here.uid):
			return seen, fmt.Errorf("%w: the %s %s/%s does not belong to the cluster: delete or rename it", cluster.ErrUnavailable, read.kind, here.namespace, read.name)
		default:
			read.found()
		}
	}
	if seen.etcd == nil && seen.deployment == nil {
		return seen, nil
	}
	pods := &corev1.PodList{}
	if err := e.client.List(ctx, pods, client.InNamespace(here.namespace), here.selected()); err != nil {
		return seen, explain(err, "list", "Pods", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: here.namespace}})
	}
	seen.pods = slices.DeleteFunc(pods.Items, isOver)
	return seen, nil
}

// isOver reports whether a Pod has ended but may stay forever, as one that was evicted. One that is being deleted is over when it is gone: its
// phase does not consider the sidecar, which may still run.
func isOver(pod corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && (pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded)
}

// Observe implements cluster.Engine.
func (e *Engine) Observe(ctx context.Context, r cluster.Request) (cluster.Observation, error) {
	here := placeOf(r)
	if r.Deleting {
		return e.observeRemoval(ctx, here)
	}
	var seen cluster.Observation
	now, err := e.find(ctx, here)
	if err != nil {
		return seen, err
	}
	wanted, err := e.newDesire(r)
	if err != nil && !r.Stop { // a cluster with an invalid spec can be stopped
		return seen, err
	}
	seen.Stopped = now.isStopped()
	if now.secret == nil {
		if r.Applied != "" {
			return seen, here.stateMissing()
		}
		return seen, nil
	}
	last, err := now.restored()
	if err != nil {
		return seen, err
	}
	wanted.services = last.services()
	hash, config, err := wanted.describe(now.secret.Data[hashKey])
	if err != nil {
		return seen, err
	}
	seen.Exists = true
	rollout := now.rollout(hash)
	seen.Applied = rollout.complete
	if seen.Applied {
		seen.Config, seen.ConfigHash = config, hash
	}
	seen.Operation = now.operation(rollout, r.Stop)
	seen.Components = now.components()
	isDown := func(c cluster.Component) bool { return !c.Up }
	seen.Running = len(seen.Components) > 0 && !slices.ContainsFunc(seen.Components, isDown)
	key := hash
	if r.Stop {
		key = stopKey
	}
	seen.Attended = e.isApplied(r.UID, key)
	// Pods that start again after a stop, a restore or a failure are no operation of Kubernetes.
	if o := seen.Operation; o != nil && o.State == v1alpha1.OperationProcessing || r.Stop && !seen.Stopped || !r.Stop && !seen.Running {
		seen.Poll = poll
	}
	e.observeRestore(r, last, &seen)
	if now.service == nil {
		return seen, nil
	}
	seen.Endpoint = "https://" + now.service.Spec.ClusterIP
	if err := e.observeUsers(ctx, here, now.secret, wanted, &seen); err != nil {
		return seen, err
	}
	seen.Applied = seen.Applied && (r.Rotation == "" || r.Rotation == seen.Rotated)
	if !r.Stop {
		seen.Attended = seen.Attended && !here.needsRenewal(now.secret, wanted, now.service.Spec.ClusterIP, e.opts.Clock.Now())
		seen.Poll = cmp.Or(seen.Poll, here.renewalInterval(now.secret, wanted))
	}
	return seen, nil
}

// observeRemoval observes a cluster that is being deleted.
func (e *Engine) observeRemoval(ctx context.Context, here place) (seen cluster.Observation, err error) {
	left, err := e.left(ctx, here)
	if err != nil || len(left) == 0 {
		return seen, err
	}
	var names []string
	for _, object := range left {
		names = append(names, object.Kind+" "+object.Name)
	}
	seen.Exists, seen.Poll = true, poll
	seen.Waiting = fmt.Sprintf("in the namespace %s: %s", here.namespace, strings.Join(names, ", "))
	return seen, nil
}

// rollout is how far a spec has been rolled out.
type rollout struct {
	// wanted is true if the objects have been made from the spec, and complete if all of it has been rolled out since. That stays
	// true when a Pod fails later.
	wanted, complete bool
	// began and ended are the times of the last change; ended is zero while it goes on.
	began, ended time.Time
	// problem is why it does not go on; empty if it only takes its time. failed is true after progressDeadline.
	problem string
	failed  bool
}

// rollout compares the objects with the hash of a spec.
func (f found) rollout(hash string) (is rollout) {
	if f.etcd == nil || f.deployment == nil {
		return is
	}
	etcd, api := f.etcd, f.deployment
	is.wanted = etcd.Annotations[annotationHash] == hash && api.Annotations[annotationHash] == hash
	etcdDone := etcd.Status.ObservedGeneration >= etcd.Generation && etcd.Status.CurrentRevision == etcd.Status.UpdateRevision
	apiDone := false
	for _, c := range api.Status.Conditions {
		if c.Type != appsv1.DeploymentProgressing {
			continue
		}
		is.began = c.LastTransitionTime.Time
		apiDone = c.Reason == "NewReplicaSetAvailable"
		is.failed = c.Status == corev1.ConditionFalse
		is.ended = c.LastUpdateTime.Time
	}
	apiDone = apiDone && api.Status.ObservedGeneration >= api.Generation
	is.complete = is.wanted && etcdDone && apiDone
	if !is.complete && !is.failed {
		is.ended = time.Time{}
	}
	for i := range f.pods {
		if problem := kube.PodProblem(&f.pods[i]); problem != "" {
			is.problem = problem
			break
		}
	}
	return is
}

// operation returns the current or last operation.
func (f found) operation(is rollout, stop bool) *cluster.Operation {
	if f.deployment == nil || is.began.IsZero() {
		return nil
	}
	op := &cluster.Operation{Stale: !is.wanted, Began: is.began, Ended: is.ended, State: v1alpha1.OperationProcessing}
	switch {
	case stop && f.isStopped():
		op.State, op.Description, op.Stale = v1alpha1.OperationSucceeded, "The Pods have ended", false
	case stop:
		op.Description, op.Stale, op.Ended = "Waiting until the Pods have ended", *f.deployment.Spec.Replicas > 0, time.Time{}
	case is.complete:
		op.State, op.Description = v1alpha1.OperationSucceeded, "The control plane is rolled out"
	case is.failed:
		op.State, op.Description = v1alpha1.OperationFailed, "The Pods did not become ready"
		if is.problem != "" {
			op.Description = is.problem
		}
		op.Err = errors.New(op.Description)
	case is.problem != "":
		op.Description = is.problem
	case f.etcd.Status.ReadyReplicas == 0:
		op.Description = "Waiting for etcd"
	default:
		op.Description = "Waiting for kube-apiserver"
	}
	return op
}

// isStopped reports whether no Pod is left of a cluster that is scaled down.
func (f found) isStopped() bool {
	if f.etcd == nil || f.deployment == nil {
		return len(f.pods) == 0
	}
	return *f.deployment.Spec.Replicas == 0 && *f.etcd.Spec.Replicas == 0 && len(f.pods) == 0
}

// components returns etcd and the API as components: up if they serve.
func (f found) components() []cluster.Component {
	if f.etcd == nil || f.deployment == nil || f.isStopped() {
		return nil
	}
	etcd := cluster.Component{Name: cluster.ComponentEtcd, Up: f.etcd.Status.ReadyReplicas > f.wantedMembers()/2}
	api := cluster.Component{Name: cluster.ComponentAPIServer, Up: f.deployment.Status.AvailableReplicas > 0}
	for i := range f.pods {
		pod := &f.pods[i]
		c := &etcd
		if pod.Labels[labelComponent] == componentAPI {
			c = &api
		}
		if started := pod.Status.StartTime; started != nil && (c.Since.IsZero() || started.Before(&metav1.Time{Time: c.Since})) {
			c.Since = started.Time
		}
		if problem := kube.PodProblem(pod); problem != "" && !c.Up {
			c.Detail = problem
		}
	}
	return []cluster.Component{etcd, api}
}

// wantedMembers is the number of members of etcd while the cluster runs.
func (f found) wantedMembers() int32 {
	if f.etcd.Spec.Replicas == nil {
		return 1
	}
	return *f.etcd.Spec.Replicas
}
