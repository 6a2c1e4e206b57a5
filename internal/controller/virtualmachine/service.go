package virtualmachine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/kube"
)

const (
	// serviceLabel is on Services and EndpointSlices of machines; its value is the name of the machine. The cache has only
	// objects with it.
	serviceLabel = "cloudnative.tw/virtualmachine"
	// sliceManager is the value of the label endpointslice.kubernetes.io/managed-by.
	sliceManager = "virtualmachine.keelson.dev"
)

// servicePlan is what to do with the Service and the EndpointSlice of a machine.
type servicePlan struct {
	// wanted reports whether the machine has a Service.
	wanted bool
	// write are the objects as they have to be, in this order; those that are so already are left out.
	write []client.Object
	// remove are objects of this machine that it must not have.
	remove []client.Object
}

// decideService returns the plan for the Service of a machine, given the plan for its server.
func decideService(vm *v1alpha1.VirtualMachine, observed observation, p plan) servicePlan {
	seen, plan := observed.service, servicePlan{wanted: vm.Spec.Service != nil && vm.DeletionTimestamp.IsZero()}
	if !plan.wanted {
		plan.remove = seen.ownedBy(vm)
		return plan
	}
	ready := isServed(observed, summarizeGuest(summarizeReady(vm, observed, p, &vm.Status, failureOf(observed, nil), nil)))
	service, slice := newService(vm), newEndpointSlice(vm, reachable(observed), ready)
	if seen.service == nil || !metav1.IsControlledBy(seen.service, vm) || !sameService(seen.service, service) {
		plan.write = append(plan.write, service)
	}
	if seen.slice == nil || !metav1.IsControlledBy(seen.slice, vm) || !sameSlice(seen.slice, slice) {
		plan.write = append(plan.write, slice)
	}
	return plan
}

// wakesOnConnection reports whether the server is asleep until someone connects to it.
func wakesOnConnection(server *backend.Server) bool {
	return server != nil && server.State == backend.StateAsleep && server.Asleep != nil && server.Asleep.WakeOnConnection
}

// isServed reports whether connections to the server are answered: its guest is ready, or they wake it.
func isServed(observed observation, guest metav1.Condition) bool {
	return guest.Status == metav1.ConditionTrue || wakesOnConnection(observed.server)
}

// reachable returns where nodes reach the server; nil if they do not.
func reachable(observed observation) *backend.Service {
	server := observed.server
	if server == nil || server.State != backend.StateRunning && !wakesOnConnection(server) || server.Service == nil || server.Service.Error != "" {
		return nil
	}
	return server.Service
}

// newService returns the Service of a machine. It has no selector.
func newService(vm *v1alpha1.VirtualMachine) *corev1.Service {
	service := &corev1.Service{ObjectMeta: newServiceMeta(vm)}
	for _, port := range sortedPorts(vm) {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: port.Name, Port: port.Port, Protocol: corev1.Protocol(port.Protocol)})
	}
	return service
}

// newEndpointSlice returns the EndpointSlice of a machine. It has no endpoint if at is nil.
func newEndpointSlice(vm *v1alpha1.VirtualMachine, at *backend.Service, ready bool) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{ObjectMeta: newServiceMeta(vm), AddressType: discoveryv1.AddressTypeIPv4}
	slice.Labels[discoveryv1.LabelManagedBy] = sliceManager
	slice.Labels[discoveryv1.LabelServiceName] = vm.Name
	if at == nil {
		return slice
	}
	for _, port := range sortedPorts(vm) {
		number, found := at.Ports[port.Name]
		if !found {
			continue // it is about to be forwarded
		}
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{
			Name: ptr.To(port.Name), Port: ptr.To(number), Protocol: ptr.To(corev1.Protocol(port.Protocol)),
		})
	}
	if len(slice.Ports) > 0 {
		slice.Endpoints = []discoveryv1.Endpoint{{
			Addresses:  []string{at.Address},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &ready, Terminating: ptr.To(false)},
		}}
	}
	return slice
}

func newServiceMeta(vm *v1alpha1.VirtualMachine) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: vm.Namespace, Name: vm.Name, Labels: map[string]string{serviceLabel: vm.Name},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(vm, kind)},
	}
}

func sortedPorts(vm *v1alpha1.VirtualMachine) []v1alpha1.Port {
	return slices.SortedFunc(slices.Values(vm.Spec.Ports), func(a, b v1alpha1.Port) int { return cmp.Compare(a.Name, b.Name) })
}

// sameService reports whether a Service is as it has to be. Fields that others may set, such as the type, do not matter.
func sameService(is, wanted *corev1.Service) bool {
	if is.Labels[serviceLabel] != wanted.Labels[serviceLabel] || len(is.Spec.Selector) > 0 || len(is.Spec.Ports) != len(wanted.Spec.Ports) {
		return false
	}
	for _, port := range wanted.Spec.Ports {
		if !slices.ContainsFunc(is.Spec.Ports, func(other corev1.ServicePort) bool {
			return other.Name == port.Name && other.Port == port.Port && other.Protocol == port.Protocol
		}) {
			return false
		}
	}
	return true
}

func sameSlice(is, wanted *discoveryv1.EndpointSlice) bool {
	for label, value := range wanted.Labels {
		if is.Labels[label] != value {
			return false
		}
	}
	return equality.Semantic.DeepEqual(is.Endpoints, wanted.Endpoints) && equality.Semantic.DeepEqual(is.Ports, wanted.Ports)
}

// summarizeService sets the condition ServiceReady, or removes it if the machine has no Service.
func summarizeService(vm *v1alpha1.VirtualMachine, observed observation, p plan, guest metav1.Condition, err error, status *v1alpha1.VirtualMachineStatus) {
	if !p.service.wanted {
		if err == nil {
			meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionServiceReady)
		}
		return
	}
	condition := serviceCondition(vm, observed, isServed(observed, guest), err)
	kube.SetConditions(vm, &status.Conditions, p.now, condition)
}

func serviceCondition(vm *v1alpha1.VirtualMachine, observed observation, ready bool, err error) metav1.Condition {
	not := func(reason, message string, args ...any) metav1.Condition {
		return newCondition(v1alpha1.ConditionServiceReady, metav1.ConditionFalse, reason, message, args...)
	}
	var taken *takenError
	switch server := observed.server; {
	case errors.As(err, &taken):
		return not(v1alpha1.ReasonErrResourceExists, "The %s %q exists and has another owner. Delete or rename it, or set spec.service to null",
			taken.kind, vm.Name)
	case err != nil:
		return not(v1alpha1.ReasonServiceWriteFailed, "%s. Keelson retries", kube.APIWords(err))
	case observed.driver != nil && !observed.driver.Capabilities().Service:
		return not(v1alpha1.ReasonServiceUnreachable, "Nodes do not reach machines of the driver %s. Use the driver qemu, or set spec.service to null", observed.name)
	case server != nil && server.Service != nil && server.Service.Error != "":
		return not(v1alpha1.ReasonServiceUnreachable, "Nodes do not reach the machine: %s", server.Service.Error)
	case !ready:
		return not(v1alpha1.ReasonMachineNotReady, "The guest is not ready, so the Service does not lead to it")
	case reachable(observed) == nil:
		return not(v1alpha1.ReasonMachineNotReady, "The ports are about to be forwarded")
	}
	return newCondition(v1alpha1.ConditionServiceReady, metav1.ConditionTrue, v1alpha1.ReasonServiceReady,
		"Pods reach the machine at %s.%s.svc, %s", vm.Name, vm.Namespace, describePorts(vm))
}

func describePorts(vm *v1alpha1.VirtualMachine) string {
	var words []string
	for _, port := range vm.Spec.Ports {
		words = append(words, fmt.Sprintf("%d/%s", port.Port, port.Protocol))
	}
	if len(words) == 1 {
		return "port " + words[0]
	}
	return "ports " + strings.Join(words, ", ")
}

// takenError means that an object with the name of the machine has another owner.
type takenError struct{ kind string }

func (e *takenError) Error() string {
	return fmt.Sprintf("%s: %v", e.kind, kube.ErrNotOwned)
}

func (e *takenError) Unwrap() error { return kube.ErrNotOwned }

// recordServiceEvent records that nodes cannot reach a machine, once.
func (r *Reconciler) recordServiceEvent(before, after *v1alpha1.VirtualMachine) {
	was, is := kube.ConditionTransition(before.Status.Conditions, after.Status.Conditions, v1alpha1.ConditionServiceReady)
	switch {
	case was.Reason == is.Reason:
	case is.Reason == v1alpha1.ReasonErrResourceExists, is.Reason == v1alpha1.ReasonServiceUnreachable, is.Reason == v1alpha1.ReasonServiceWriteFailed:
		r.Events.Warning(after, is.Reason, "KeepService", is.Message)
	}
}
