package pod

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
	"github.com/keelson-dev/keelson/internal/launcher"
)

const (
	// sleepRate is how much memory, in bytes, an evicted machine has a second to save.
	sleepRate = 32 << 20
	// announceTimeout limits the request that precedes a deletion.
	announceTimeout = 5 * time.Second
)

// graceOf returns how long a machine has to end if somebody else deletes its Pod, in seconds.
func graceOf(d *launcher.Definition) int64 {
	if d.SleepWhenEvicted {
		return usualGrace + d.MemoryBytes/sleepRate
	}
	return usualGrace
}

// newBudget returns the PodDisruptionBudget of a machine, which refuses all evictions. It has a minimum because the controller of the Pod,
// the VirtualMachine, has no scale subresource that would say how many there should be.
func newBudget(id backend.Identity) *policyv1.PodDisruptionBudget {
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: newMeta(id), Spec: policyv1.PodDisruptionBudgetSpec{
		MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{labelUID: string(id.UID)}},
	}}
	budget.OwnerReferences = ownedBy(id)
	return budget
}

// keepBudget makes the PodDisruptionBudget of a machine what its spec says. before is the last applied spec; without a hash, it is unknown.
func (d *Driver) keepBudget(ctx context.Context, machine, before *backend.Machine) error {
	if machine.Pod.EvictionPolicy != v1alpha1.EvictionNone {
		if before.Hash != "" && before.Pod.EvictionPolicy != v1alpha1.EvictionNone {
			return nil
		}
		return d.removeBudget(ctx, machine.Identity)
	}
	budget := newBudget(machine.Identity)
	if err := d.client.Create(ctx, budget, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return typed("create the PodDisruptionBudget "+budget.Name, err)
	}
	step("budget created")
	return nil
}

// removeBudget deletes the PodDisruptionBudget of a machine, if there is one.
func (d *Driver) removeBudget(ctx context.Context, id backend.Identity) error {
	budget := newBudget(id)
	err := d.client.Delete(ctx, budget)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return typed("delete the PodDisruptionBudget "+budget.Name, err)
	}
	step("budget deleted")
	return nil
}

// announceStop tells the launcher of a machine that sleeps when it is evicted that its Pod is about to be deleted to power it off. If it
// does not hear that, the machine falls asleep: then it wakes to be powered off.
func (d *Driver) announceStop(ctx context.Context, pod *corev1.Pod) {
	definition, readable := definitionOf(pod)
	if !readable || !definition.SleepWhenEvicted || !isOn(pod) || pod.DeletionTimestamp != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	if conn, err := d.connect(ctx, identityOf(pod), "the launcher", launcher.PowerOffPath); err == nil {
		_ = conn.Close() // there is nothing to read
	}
}
