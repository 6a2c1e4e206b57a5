package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/requests"
)

// summarize returns the status of a Cluster after the plan was executed with the result actErr. It is a pure function.
func summarize(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) v1alpha1.ClusterStatus {
	status := *cluster.Status.DeepCopy()
	status.ObservedGeneration = cluster.Generation
	status.Engine = seen.engine
	if seen.err == nil && cluster.DeletionTimestamp.IsZero() && seen.outside.Applied {
		status.AppliedConfig, status.AppliedConfigHash = seen.outside.Config, seen.outside.ConfigHash
	}
	if asked := requests.Token(cluster.Spec.RotateRequestedAt); asked != "" && asked == seen.outside.Rotated {
		status.LastRotateRequestedAt = cluster.Spec.RotateRequestedAt
	}
	status.Endpoint = cmp.Or(seen.outside.Endpoint, status.Endpoint)
	if seen.probe != nil {
		status.Version = cmp.Or(seen.probe.Version, status.Version)
	}
	status.LastOperation = summarizeOperation(cluster, seen, p, actErr)
	if p.secret == childBlocked {
		status.KubeconfigRef = nil // the Secret of that name belongs to somebody else
	} else if p.kubeconfig == childKeep && seen.kubeconfig != nil && isControlled(seen.kubeconfig, cluster) {
		status.KubeconfigRef = &v1alpha1.KubeconfigReference{Name: cluster.Name, SecretRef: seen.kubeconfig.Spec.SecretRef.DeepCopy()}
	}
	kube.SetConditions(cluster, &status.Conditions, p.at,
		summarizeProvisioned(cluster, seen, p, actErr),
		summarizeReady(cluster, seen, p),
		summarizeControlPlane(cluster, seen, p),
		summarizeEtcd(cluster, seen, p),
		summarizeKubeconfig(cluster, seen, p, actErr),
		summarizeDeleting(cluster, seen, p, actErr),
		summarizePaused(cluster))
	summarizeNodes(cluster, seen, p, &status)
	summarizeUsers(cluster, seen, p, actErr, &status)
	summarizeRestore(cluster, seen, p, &status)
	summarizeSchedule(cluster, seen, p, actErr, &status)
	summarizeExpiry(cluster, p, &status)
	status.Conditions = dropWithoutReason(status.Conditions)
	var cause metav1.Condition
	status.Phase, cause = summarizePhase(cluster, status.Conditions, status.AppliedConfigHash != "")
	status.Reason, status.Message = cause.Reason, cause.Message
	return status
}

// dropWithoutReason removes conditions without a reason, which the original controller stored and the schema rejects. It keeps
// conditions of other controllers.
func dropWithoutReason(conditions []metav1.Condition) []metav1.Condition {
	kept := conditions[:0]
	for _, c := range conditions {
		if c.Reason != "" {
			kept = append(kept, c)
		}
	}
	return kept
}

// condition returns a condition.
func condition(name string, status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	if len(args) > 0 {
		message = fmt.Sprintf(message, args...)
	}
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: limit(message)}
}

// limit truncates a message to a length that the API accepts and a user can read.
func limit(message string) string {
	const longest = 4096
	if len(message) > longest {
		message = strings.ToValidUTF8(message[:longest], "") + " ..."
	}
	return message
}

// reasonOf returns the reason for an error of an engine, and whether a user has to fix the error.
func reasonOf(err error) (reason string, person bool) {
	for _, known := range []struct {
		err    error
		reason string
	}{
		{ErrInvalid, v1alpha1.ReasonInvalidSpec},
		{ErrVersion, v1alpha1.ReasonVersionNotAvailable},
		{ErrSnapshot, v1alpha1.ReasonSnapshotNotAvailable},
		{ErrConfig, v1alpha1.ReasonConfigNotFound},
		{ErrStateMissing, v1alpha1.ReasonStateFileMissing},
		{ErrUnavailable, v1alpha1.ReasonEngineNotAvailable},
	} {
		if errors.Is(err, known.err) {
			return known.reason, true
		}
	}
	if errors.Is(err, ErrBusy) {
		return v1alpha1.ReasonWaiting, false
	}
	return v1alpha1.ReasonProvisioningFailed, false
}

// wordsOf returns the message of an engine error without its class, which the reason has.
func wordsOf(err error) string {
	text := err.Error()
	for _, class := range []error{ErrInvalid, ErrVersion, ErrSnapshot, ErrConfig, ErrStateMissing, ErrUnavailable, ErrBusy} {
		text = strings.TrimPrefix(text, class.Error()+": ")
	}
	return text
}

// failureOf returns the error that prevents the current spec from being applied: the current error of the engine, or that of the
// last operation. It is nil if nothing has failed.
func failureOf(seen observation, actErr error) error {
	var engine *engineError
	switch {
	case seen.err != nil:
		return seen.err
	case errors.As(actErr, &engine):
		return engine
	}
	if o := seen.outside.Operation; o != nil && o.State == v1alpha1.OperationFailed && !o.Stale {
		return cmp.Or(o.Err, errors.New(o.Description))
	}
	return nil
}

func summarizeProvisioned(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) metav1.Condition {
	const name = v1alpha1.ConditionProvisioned
	if seen.err == nil && seen.outside.Applied {
		message := "The spec is applied"
		if asksForRotation(cluster, seen) {
			message += fmt.Sprintf(". spec.rotateRequestedAt has no effect with the engine %s: run `rke cert rotate --rotate-ca`, then `rke up`", seen.engine)
		}
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonApplied, "%s", message)
	}
	before := meta.FindStatusCondition(cluster.Status.Conditions, name)
	if !cluster.DeletionTimestamp.IsZero() || cluster.Spec.Paused {
		if before != nil && before.Reason != "" {
			return *before // no operation is started
		}
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "No operation was started yet")
	}
	if seen.stop.wanted && seen.err == nil {
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonStopped, "The spec is applied when %s", seen.stop.until)
	}
	if p.action == wait && seen.outside.Operation == nil && before != nil && before.Reason != "" {
		return *before // no operation was started since
	}
	if err := failureOf(seen, actErr); err != nil && p.action != watch {
		reason, person := reasonOf(err)
		switch {
		case errors.Is(err, ErrUnavailable) && before != nil && before.Status == metav1.ConditionTrue &&
			before.ObservedGeneration == cluster.Generation:
			return *before // the engine is unavailable, but the spec is applied
		case reason == v1alpha1.ReasonProvisioningFailed:
			return condition(name, metav1.ConditionFalse, reason, "%s. The operation is retried with backoff, or when the spec changes", wordsOf(err))
		case person, reason == v1alpha1.ReasonWaiting:
			return condition(name, metav1.ConditionFalse, reason, "%s", wordsOf(err))
		}
	}
	step := ""
	if o := seen.outside.Operation; o != nil && o.State == v1alpha1.OperationProcessing && o.Description != "" {
		step = ": " + o.Description
	}
	if cluster.Status.AppliedConfigHash == "" {
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProvisioning, "The cluster is being provisioned%s", step)
	}
	return condition(name, metav1.ConditionFalse, v1alpha1.ReasonUpdating, "A change is being applied%s", step)
}

// interruption returns the condition of a part of a cluster that is down because the cluster is being changed or started; nil if it is
// neither.
func interruption(name string, seen observation, p plan) *metav1.Condition {
	o := seen.outside.Operation
	inProgress := o != nil && !o.Delete && o.State == v1alpha1.OperationProcessing
	var is metav1.Condition
	switch {
	case isRestoring(seen):
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonRestoring, "The cluster is being restored and starts again")
	case inProgress && !seen.outside.Applied:
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonUpdating, "The control plane is restarted to apply a change")
	case inProgress, seen.outside.Stopped && p.action == apply:
		is = condition(name, metav1.ConditionFalse, v1alpha1.ReasonStarting, "The cluster is being started")
	default:
		return nil
	}
	return &is
}

// summarizeReady keeps the last known condition until there is a new observation: a restart of the manager does not affect the
// readiness of a cluster.
func summarizeReady(cluster *v1alpha1.Cluster, seen observation, p plan) metav1.Condition {
	const name = v1alpha1.ConditionReady
	api, interrupted := find(seen.outside.Components, ComponentAPIServer), interruption(name, seen, p)
	switch {
	case p.action == remove || p.action == release || p.action == giveUp || !cluster.DeletionTimestamp.IsZero() && p.action == watch:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonRemoving, "The cluster is being removed")
	case isStopped(cluster, seen):
		return stoppedCondition(name, seen)
	case seen.invalid != nil:
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonKubeconfigInvalid, "The API cannot be probed: the kubeconfig is invalid")
	case interrupted != nil && isAPIDown(seen), isRestoring(seen) && api == nil:
		return *interrupted
	case api != nil && !api.Up:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "%s is not running and is being restarted%s", api.Name, detailOf(api.Detail))
	case seen.probe != nil && seen.probe.OK:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The API reports that it is ready")
	case seen.probe != nil && seen.probe.Restarted && meta.IsStatusConditionFalse(cluster.Status.Conditions, name):
		return *meta.FindStatusCondition(cluster.Status.Conditions, name)
	case seen.probe != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, "The probe of the API failed: %s", seen.probe.Failing)
	case seen.err == nil && seen.outside.Applied && !seen.outside.Running && seen.outside.Components != nil:
		names, detail := down(seen.outside.Components)
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "%s is not running%s", names, detailOf(detail))
	}
	return asBefore(cluster, condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotProbed, "The API was not probed yet"))
}

// isAPIDown reports whether the API does not run, or is known not to respond.
func isAPIDown(seen observation) bool {
	api := find(seen.outside.Components, ComponentAPIServer)
	return api != nil && !api.Up || seen.probe != nil && !seen.probe.OK
}

// asBefore returns the last known condition of a provisioned cluster, if there is one: that the manager has restarted changes
// nothing. Otherwise it returns unknown.
func asBefore(cluster *v1alpha1.Cluster, unknown metav1.Condition) metav1.Condition {
	before := meta.FindStatusCondition(cluster.Status.Conditions, unknown.Type)
	if before == nil || before.Reason == "" || before.Status == metav1.ConditionUnknown || cluster.Status.AppliedConfigHash == "" {
		return unknown
	}
	return *before
}

func detailOf(detail string) string {
	if detail == "" {
		return ""
	}
	return ": " + detail
}

func summarizeControlPlane(cluster *v1alpha1.Cluster, seen observation, p plan) metav1.Condition {
	const name = v1alpha1.ConditionControlPlaneAvailable
	names, detail := down(seen.outside.Components)
	interrupted := interruption(name, seen, p)
	switch {
	case isStopped(cluster, seen):
		return stoppedCondition(name, seen)
	case interrupted != nil && (names != "" || isAPIDown(seen)), isRestoring(seen) && len(seen.outside.Components) == 0:
		return *interrupted
	case len(seen.outside.Components) > 0 && names == "":
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "All components are running")
	case names != "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "%s is not running%s", names, detailOf(detail))
	case seen.probe != nil && seen.probe.OK:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The API is ready; the engine does not report components")
	case seen.probe != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, "The probe of the API failed: %s", seen.probe.Failing)
	}
	return asBefore(cluster, condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The components were not observed yet"))
}

func summarizeEtcd(cluster *v1alpha1.Cluster, seen observation, p plan) metav1.Condition {
	const name = v1alpha1.ConditionEtcdHealthy
	etcd, interrupted := find(seen.outside.Components, ComponentEtcd), interruption(name, seen, p)
	switch {
	case isStopped(cluster, seen):
		return stoppedCondition(name, seen)
	case interrupted != nil && (etcd != nil && !etcd.Up || isAPIDown(seen)), isRestoring(seen) && etcd == nil:
		return *interrupted
	case etcd != nil && !etcd.Up:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "etcd is not running and is being restarted%s", detailOf(etcd.Detail))
	case etcd != nil && etcd.Problem != "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonEtcdAlarm, "%s", etcd.Problem)
	case seen.probe != nil && seen.probe.EtcdFailed:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, "The API cannot reach etcd")
	case seen.probe != nil && seen.probe.OK:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The API reaches etcd")
	}
	if seen.probe != nil && !seen.probe.Restarted {
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The API does not report the state of etcd")
	}
	return asBefore(cluster, condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The API was not probed yet"))
}

func summarizeKubeconfig(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) metav1.Condition {
	const name = v1alpha1.ConditionKubeconfigAvailable
	var failed *childError
	notOwned := ""
	switch {
	case p.secret == childBlocked:
		notOwned = fmt.Sprintf("Secret %s/%s", seen.namespace, secretName(cluster.Name))
	case p.kubeconfig == childBlocked:
		notOwned = fmt.Sprintf("Kubeconfig %s", cluster.Name)
	case errors.As(actErr, &failed) && errors.Is(actErr, kube.ErrNotOwned):
		notOwned = failed.name
	}
	before := meta.FindStatusCondition(cluster.Status.Conditions, name)
	switch {
	case seen.invalid != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonKubeconfigInvalid, "The kubeconfig of the engine is invalid: %s", seen.invalid.Error())
	case notOwned != "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonErrResourceExists, "%s exists and does not belong to this Cluster. Delete or rename it", notOwned)
	case failed != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "%s could not be written, the write is retried: %s", failed.name, kube.APIWords(failed.error))
	case p.secret == childWait || p.kubeconfig == childWait:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonWaiting, "An earlier object with the name is being deleted; a new one is created afterwards")
	case len(seen.outside.Kubeconfig) > 0:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonKubeconfigWritten, "The kubeconfig is in Secret %s/%s", seen.namespace, secretName(cluster.Name))
	case before != nil && before.Status == metav1.ConditionTrue && before.Reason != "" && seen.secret != nil:
		return *before // it was written, and the engine does not report the kubeconfig at the moment
	}
	return condition(name, metav1.ConditionFalse, v1alpha1.ReasonNoKubeconfig, "There is no kubeconfig yet")
}

// waitingFor describes what a removal waits for.
func waitingFor(seen observation) string {
	switch o := seen.outside.Operation; {
	case seen.err != nil:
		return "the engine: " + wordsOf(seen.err)
	case seen.outside.Waiting != "":
		return seen.outside.Waiting
	case o != nil && o.Delete && o.State == v1alpha1.OperationFailed:
		return "another attempt, because the last one failed: " + o.Description
	}
	return fmt.Sprintf("the engine %s", seen.engine)
}

func summarizeDeleting(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) metav1.Condition {
	const name = v1alpha1.ConditionDeleting
	if cluster.DeletionTimestamp.IsZero() {
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonNotDeleting, "The Cluster is not being deleted")
	}
	since := cluster.DeletionTimestamp.UTC().Format("2006-01-02T15:04:05Z")
	hint := ""
	if _, forced := forceDeleteAt(cluster); !forced {
		hint = fmt.Sprintf(". To release it anyway, set the annotation %s", v1alpha1.AnnotationForceDelete)
	}
	var engine *engineError
	switch {
	case p.action == protected:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonDeletionProtected, "Waiting for spec.deletionProtection to be false since %s; nothing is removed until then", since)
	case cluster.Spec.Paused && hasFinalizer(cluster):
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonPaused, "Waiting for spec.paused to be false since %s", since)
	case errors.As(actErr, &engine):
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonDeleteFailed, "Waiting for the engine since %s: %s%s", since, wordsOf(engine), hint)
	case p.action == blocked || p.action == wait:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonDeleteFailed, "Waiting for %s, since %s%s", waitingFor(seen), since, hint)
	}
	return condition(name, metav1.ConditionTrue, v1alpha1.ReasonRemoving, "Waiting for %s since %s", waitingFor(seen), since)
}

func summarizePaused(cluster *v1alpha1.Cluster) metav1.Condition {
	if cluster.Spec.Paused {
		return condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused, "spec.paused is true: the cluster is not reconciled")
	}
	return condition(v1alpha1.ConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonNotPaused, "The cluster is reconciled")
}

// summarizePhase returns the phase and the condition that explains it.
func summarizePhase(cluster *v1alpha1.Cluster, conditions []metav1.Condition, appliedBefore bool) (v1alpha1.ClusterPhase, metav1.Condition) {
	provisioned := *meta.FindStatusCondition(conditions, v1alpha1.ConditionProvisioned)
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		return v1alpha1.PhaseDeleting, *meta.FindStatusCondition(conditions, v1alpha1.ConditionDeleting)
	case meta.FindStatusCondition(conditions, v1alpha1.ConditionReady).Reason == v1alpha1.ReasonStopped:
		return v1alpha1.PhaseStopped, *meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	case provisioned.Status == metav1.ConditionTrue && cluster.Spec.Paused:
		return v1alpha1.PhaseProvisioned, *meta.FindStatusCondition(conditions, v1alpha1.ConditionPaused)
	case provisioned.Status == metav1.ConditionTrue:
		return v1alpha1.PhaseProvisioned, *meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	case provisioned.Reason == v1alpha1.ReasonEngineNotAvailable && appliedBefore:
		return v1alpha1.PhaseUnknown, provisioned
	case provisioned.Reason == v1alpha1.ReasonProvisioning, provisioned.Reason == v1alpha1.ReasonWaiting, provisioned.Reason == v1alpha1.ReasonUpdating:
		return v1alpha1.PhaseProvisioning, provisioned
	case provisioned.Status == metav1.ConditionUnknown && cluster.Spec.Paused:
		return v1alpha1.PhasePending, *meta.FindStatusCondition(conditions, v1alpha1.ConditionPaused)
	case provisioned.Status == metav1.ConditionUnknown:
		return v1alpha1.PhasePending, provisioned
	}
	return v1alpha1.PhaseFailed, provisioned
}
