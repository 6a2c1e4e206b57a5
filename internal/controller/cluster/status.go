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
)

// summarize returns the status of a Cluster, given what there was, what was to be done, and how that ended.
func summarize(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) v1alpha1.ClusterStatus {
	status := *cluster.Status.DeepCopy()
	status.ObservedGeneration = cluster.Generation
	status.Engine = seen.engine
	if seen.err == nil && cluster.DeletionTimestamp.IsZero() && seen.outside.Applied {
		status.AppliedConfig, status.AppliedConfigHash = seen.outside.Config, seen.outside.ConfigHash
	}
	status.RotatedCredentials = cmp.Or(seen.outside.Rotated, status.RotatedCredentials)
	status.Endpoint = cmp.Or(seen.outside.Endpoint, status.Endpoint)
	if seen.probe != nil {
		status.Version = cmp.Or(seen.probe.Version, status.Version)
	}
	status.LastOperation = summarizeOperation(cluster, seen, p, actErr)
	if p.kubeconfig == childKeep && seen.kubeconfig != nil && isOurs(seen.kubeconfig, cluster) {
		status.KubeconfigRef = &v1alpha1.KubeconfigReference{Name: cluster.Name, SecretRef: seen.kubeconfig.Spec.SecretRef.DeepCopy()}
	}
	for _, condition := range []metav1.Condition{
		summarizeProvisioned(cluster, seen, p, actErr),
		summarizeReady(cluster, seen, p),
		summarizeControlPlane(cluster, seen),
		summarizeEtcd(cluster, seen),
		summarizeKubeconfig(cluster, seen, p, actErr),
		summarizeDeleting(cluster, seen, p, actErr),
		summarizePaused(cluster),
	} {
		condition.ObservedGeneration = cluster.Generation
		condition.LastTransitionTime = metav1.NewTime(p.at)
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	status.Conditions = dropUnknownTypes(status.Conditions)
	status.Phase = summarizePhase(cluster, status)
	return status
}

// conditionTypes are the conditions of a Cluster. The original controller stored none that are not among them; one that
// somebody else has added is left alone if it is well formed.
func dropUnknownTypes(conditions []metav1.Condition) []metav1.Condition {
	kept := conditions[:0]
	for _, c := range conditions {
		if c.Reason != "" {
			kept = append(kept, c)
		}
	}
	return kept
}

// condition makes one from its parts.
func condition(name string, status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	if len(args) > 0 {
		message = fmt.Sprintf(message, args...)
	}
	return metav1.Condition{Type: name, Status: status, Reason: reason, Message: limit(message)}
}

// limit keeps a message within what the API takes and a person reads.
func limit(message string) string {
	const longest = 4096
	if len(message) > longest {
		message = strings.ToValidUTF8(message[:longest], "") + " ..."
	}
	return message
}

// reasonOf returns the reason for an error of an engine, and whether it is one that a person has to do something about.
func reasonOf(err error) (reason string, person bool) {
	for _, known := range []struct {
		err    error
		reason string
	}{
		{ErrInvalid, v1alpha1.ReasonInvalidSpec},
		{ErrVersion, v1alpha1.ReasonVersionNotAvailable},
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

// wordsOf returns what an engine said, without the class of the error, which the reason tells.
func wordsOf(err error) string {
	text := err.Error()
	for _, class := range []error{ErrInvalid, ErrVersion, ErrConfig, ErrStateMissing, ErrUnavailable, ErrBusy} {
		text = strings.TrimPrefix(text, class.Error()+": ")
	}
	return text
}

// failureOf returns why the present spec is not applied: what the engine said now, or what the last operation ended
// with. It is nil if nothing has failed.
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
		message := "The present spec is applied"
		if asksForRotation(cluster, seen) {
			message += fmt.Sprintf(". The annotation %s has no effect with the engine %s: run `rke cert rotate --rotate-ca`, then `rke up`",
				v1alpha1.AnnotationRotateCredentials, seen.engine)
		}
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonApplied, "%s", message)
	}
	before := meta.FindStatusCondition(cluster.Status.Conditions, name)
	if !cluster.DeletionTimestamp.IsZero() || cluster.Spec.Paused {
		if before != nil && before.Reason != "" {
			return *before // nothing is done about it any more, or for now
		}
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "Nothing was done yet")
	}
	if p.action == wait && seen.outside.Operation == nil && before != nil && before.Reason != "" {
		return *before // nothing was begun since it said why
	}
	if err := failureOf(seen, actErr); err != nil && p.action != watch {
		reason, person := reasonOf(err)
		switch {
		case errors.Is(err, ErrUnavailable) && before != nil && before.Status == metav1.ConditionTrue &&
			before.ObservedGeneration == cluster.Generation:
			return *before // it was applied, and that has not changed
		case reason == v1alpha1.ReasonProvisioningFailed:
			return condition(name, metav1.ConditionFalse, reason, "%s. It is tried again after a pause, or as soon as the spec changes", wordsOf(err))
		case person, reason == v1alpha1.ReasonWaiting:
			return condition(name, metav1.ConditionFalse, reason, "%s", wordsOf(err))
		}
	}
	step := ""
	if o := seen.outside.Operation; o != nil && o.State == v1alpha1.OperationProcessing && o.Description != "" {
		step = ": " + o.Description
	}
	if cluster.Status.AppliedConfigHash == "" {
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProvisioning, "The cluster is being made%s", step)
	}
	return condition(name, metav1.ConditionFalse, v1alpha1.ReasonUpdating, "A change is being applied%s", step)
}

// summarizeReady keeps what was known until there is news: a manager that starts again does not make a cluster less
// ready.
func summarizeReady(cluster *v1alpha1.Cluster, seen observation, p plan) metav1.Condition {
	const name = v1alpha1.ConditionReady
	api := find(seen.outside.Components, ComponentAPIServer)
	switch {
	case p.action == remove || p.action == release || p.action == giveUp || !cluster.DeletionTimestamp.IsZero() && p.action == watch:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonRemoving, "The cluster is being removed")
	case seen.invalid != nil:
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonKubeconfigInvalid, "The API cannot be asked: the kubeconfig cannot be used")
	case api != nil && !api.Up:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "%s does not run and is started again%s", api.Name, detailOf(api.Detail))
	case seen.probe != nil && seen.probe.OK:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The API answers /readyz")
	case seen.probe != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, "The API does not answer well: %s", seen.probe.Failing)
	case seen.err == nil && seen.outside.Applied && !seen.outside.Running && seen.outside.Components != nil:
		names, detail := down(seen.outside.Components)
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "%s does not run%s", names, detailOf(detail))
	}
	return asBefore(cluster, condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotProbed, "The API was not asked yet"))
}

// asBefore returns a condition as it was last known, if it was, and if a cluster was made: that nobody has looked since a
// manager was started is no news. Otherwise it returns unknown.
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

func summarizeControlPlane(cluster *v1alpha1.Cluster, seen observation) metav1.Condition {
	const name = v1alpha1.ConditionControlPlaneAvailable
	names, detail := down(seen.outside.Components)
	switch {
	case len(seen.outside.Components) > 0 && names == "":
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "All components run")
	case names != "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "%s does not run%s", names, detailOf(detail))
	case seen.probe != nil && seen.probe.OK:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The API answers; the engine does not see the components")
	case seen.probe != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, "The API does not answer well: %s", seen.probe.Failing)
	}
	return asBefore(cluster, condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The components were not seen yet"))
}

func summarizeEtcd(cluster *v1alpha1.Cluster, seen observation) metav1.Condition {
	const name = v1alpha1.ConditionEtcdHealthy
	etcd := find(seen.outside.Components, ComponentEtcd)
	switch {
	case etcd != nil && !etcd.Up:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonComponentDown, "etcd does not run and is started again%s", detailOf(etcd.Detail))
	case etcd != nil && etcd.Problem != "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonEtcdAlarm, "%s", etcd.Problem)
	case seen.probe != nil && seen.probe.EtcdFailed:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonProbeFailed, "The API does not reach etcd")
	case seen.probe != nil && seen.probe.OK:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonAvailable, "The API reaches etcd")
	}
	if seen.probe != nil {
		return condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The API does not tell")
	}
	return asBefore(cluster, condition(name, metav1.ConditionUnknown, v1alpha1.ReasonNotObserved, "The API was not asked yet"))
}

func summarizeKubeconfig(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) metav1.Condition {
	const name = v1alpha1.ConditionKubeconfigAvailable
	var failed *childError
	foreign := ""
	switch {
	case p.secret == childBlocked:
		foreign = fmt.Sprintf("Secret %s/%s", seen.namespace, secretName(cluster.Name))
	case p.kubeconfig == childBlocked:
		foreign = fmt.Sprintf("Kubeconfig %s", cluster.Name)
	case errors.As(actErr, &failed) && errors.Is(actErr, kube.ErrNotOwned):
		foreign = failed.name
	}
	before := meta.FindStatusCondition(cluster.Status.Conditions, name)
	switch {
	case seen.invalid != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonKubeconfigInvalid, "The kubeconfig of the engine cannot be used: %s", seen.invalid.Error())
	case foreign != "":
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonErrResourceExists, "%s exists and does not belong to this Cluster. Delete or rename it", foreign)
	case failed != nil:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonWriteFailed, "%s could not be written and is tried again: %s", failed.name, kube.APIWords(failed.error))
	case p.secret == childWait || p.kubeconfig == childWait:
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonWaiting, "An earlier object of the name is being deleted; a new one follows when it is gone")
	case len(seen.outside.Kubeconfig) > 0:
		return condition(name, metav1.ConditionTrue, v1alpha1.ReasonKubeconfigWritten, "The kubeconfig is in Secret %s/%s", seen.namespace, secretName(cluster.Name))
	case before != nil && before.Status == metav1.ConditionTrue && before.Reason != "" && seen.secret != nil:
		return *before // it was written, and its source is not to be seen just now
	}
	return condition(name, metav1.ConditionFalse, v1alpha1.ReasonNoKubeconfig, "There is no kubeconfig yet")
}

// waitingFor says what a removal waits for.
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
		return condition(name, metav1.ConditionFalse, v1alpha1.ReasonNotDeleting, "The Cluster is to be there")
	}
	since := cluster.DeletionTimestamp.UTC().Format("2006-01-02T15:04:05Z")
	hint := ""
	if _, forced := forceDeleteAt(cluster); !forced {
		hint = fmt.Sprintf(". To let it go all the same, set the annotation %s", v1alpha1.AnnotationForceDelete)
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
		return condition(v1alpha1.ConditionPaused, metav1.ConditionTrue, v1alpha1.ReasonPaused, "spec.paused is true: the cluster is left alone")
	}
	return condition(v1alpha1.ConditionPaused, metav1.ConditionFalse, v1alpha1.ReasonNotPaused, "The cluster is looked after")
}

// summarizeOperation follows the operation that the engine tells of; one that was just begun is noted as such.
func summarizeOperation(cluster *v1alpha1.Cluster, seen observation, p plan, actErr error) *v1alpha1.LastOperation {
	last := cluster.Status.LastOperation.DeepCopy()
	var engine *engineError
	switch {
	case p.operation != "" && errors.As(actErr, &engine):
		last = &v1alpha1.LastOperation{Type: p.operation, State: v1alpha1.OperationFailed, Attempts: p.attempts, Description: wordsOf(engine)}
	case p.operation != "":
		last = &v1alpha1.LastOperation{Type: p.operation, State: v1alpha1.OperationProcessing, Attempts: p.attempts, Description: "Begun"}
	case last != nil && seen.outside.Operation != nil && seen.outside.Operation.Delete == (last.Type == v1alpha1.OperationDelete):
		o := seen.outside.Operation
		if o.State == v1alpha1.OperationSucceeded && last.State == v1alpha1.OperationSucceeded || o.Stale && o.State != v1alpha1.OperationProcessing {
			return last // this was told already, or is history
		}
		last.State, last.Description = o.State, o.Description
	case last != nil && last.State == v1alpha1.OperationProcessing && seen.outside.Applied && seen.err == nil && last.Type != v1alpha1.OperationDelete:
		// It ended while nobody was there to see it.
		last.State, last.Description = v1alpha1.OperationSucceeded, "The present spec is applied"
	}
	if last == nil {
		return nil
	}
	last.Description = limit(last.Description)
	if before := cluster.Status.LastOperation; before == nil || before.State != last.State || before.Description != last.Description ||
		before.Type != last.Type || before.Attempts != last.Attempts {
		last.LastUpdateTime = metav1.NewTime(p.at)
	}
	return last
}

func summarizePhase(cluster *v1alpha1.Cluster, status v1alpha1.ClusterStatus) v1alpha1.ClusterPhase {
	provisioned := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionProvisioned)
	switch {
	case !cluster.DeletionTimestamp.IsZero():
		return v1alpha1.PhaseDeleting
	case provisioned.Status == metav1.ConditionTrue:
		return v1alpha1.PhaseProvisioned
	case provisioned.Reason == v1alpha1.ReasonEngineNotAvailable && status.AppliedConfigHash != "":
		return v1alpha1.PhaseUnknown
	case provisioned.Reason == v1alpha1.ReasonProvisioning, provisioned.Reason == v1alpha1.ReasonWaiting, provisioned.Reason == v1alpha1.ReasonUpdating:
		return v1alpha1.PhaseProvisioning
	case provisioned.Status == metav1.ConditionUnknown:
		return v1alpha1.PhasePending
	}
	return v1alpha1.PhaseFailed
}
