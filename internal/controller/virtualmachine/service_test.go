package virtualmachine

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/statuscheck"
)

// withService has Pods reach two ports of the machine.
func withService(vm *v1alpha1.VirtualMachine) {
	vm.Spec.Service = &v1alpha1.Service{}
	vm.Spec.Ports = []v1alpha1.Port{
		{Name: "http", Port: 80, Protocol: v1alpha1.ProtocolTCP}, {Name: "dns", Port: 53, Protocol: v1alpha1.ProtocolUDP},
	}
}

func reachableAt(address string) *backend.Service {
	return &backend.Service{Address: address, Ports: map[string]int32{"http": 40080, "dns": 40053}}
}

func TestDecideService(t *testing.T) {
	vm := newVM(withService)
	running := func(agent backend.Agent, at *backend.Service) observation {
		return observedServer(newServer(backend.StateRunning, func(s *backend.Server) { s.Agent, s.Service = agent, at }))
	}
	at := reachableAt("10.64.255.1")
	ready := running(backend.AgentConnected, at)
	asWanted := serviceObjects{service: newService(vm), slice: newEndpointSlice(vm, at, true)}
	unready, none := newEndpointSlice(vm, at, false), newEndpointSlice(vm, nil, false)
	selecting := newService(vm)
	selecting.Spec.Selector = map[string]string{"a": "b"}
	for _, test := range []struct {
		name     string
		vm       *v1alpha1.VirtualMachine
		seen     serviceObjects
		observed observation
		want     servicePlan
	}{
		{"there is nothing: both are made", vm, serviceObjects{}, ready, servicePlan{wanted: true, write: []client.Object{asWanted.service, asWanted.slice}}},
		{"both are as they have to be", vm, asWanted, ready, servicePlan{wanted: true}},
		{"the machine is not ready any more: the endpoint says so", vm, asWanted, running(backend.AgentLost, at), servicePlan{
			wanted: true, write: []client.Object{unready},
		}},
		{"the machine is about to be stopped: the endpoint says so before", newVM(withService, withAction("stopped")), asWanted, ready, servicePlan{
			wanted: true, write: []client.Object{unready},
		}},
		{"the machine is off: there is no endpoint", vm, asWanted, observedServer(newServer(backend.StateStopped)), servicePlan{
			wanted: true, write: []client.Object{none},
		}},
		{"nodes do not reach it: there is no endpoint", vm, asWanted, running(backend.AgentConnected, &backend.Service{Error: "no address"}), servicePlan{
			wanted: true, write: []client.Object{none},
		}},
		{"somebody gave the Service a selector", vm, serviceObjects{service: selecting, slice: asWanted.slice}, ready, servicePlan{
			wanted: true, write: []client.Object{asWanted.service},
		}},
		{"it is turned off: both go", newVM(), asWanted, ready, servicePlan{remove: []client.Object{asWanted.service, asWanted.slice}}},
		{"the machine is deleted: both go", newVM(withService, deleted), asWanted, ready, servicePlan{remove: []client.Object{asWanted.service, asWanted.slice}}},
		{"it is turned off, and somebody else has such objects", newVM(), serviceObjects{service: &corev1.Service{}, slice: &discoveryv1.EndpointSlice{}},
			ready, servicePlan{}},
	} {
		test.observed.service = test.seen
		got := decide(test.vm, test.observed, noon).service
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(servicePlan{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// serviceFixture has a machine with a Service on a driver whose servers nodes reach.
func serviceFixture(t *testing.T) *fixture {
	w := newFixture(t)
	w.backend = fake.New(fake.Options{Clock: w.Clock, BootTime: -1, Service: true})
	w.Restart()
	w.create(withService)
	w.reconcileUntilStable()
	return w
}

func (w *fixture) serviceReady() string {
	w.Helper()
	vm := w.Object()
	statuscheck.Verify(w, vm)
	condition := meta.FindStatusCondition(vm.Status.Conditions, v1alpha1.ConditionServiceReady)
	if condition == nil {
		return ""
	}
	return string(condition.Status) + " " + condition.Reason
}

// objects returns the Service and the EndpointSlice; nil for those that do not exist.
func (w *fixture) objects() serviceObjects {
	w.Helper()
	found := serviceObjects{service: &corev1.Service{}, slice: &discoveryv1.EndpointSlice{}}
	key := client.ObjectKey{Namespace: w.Namespace, Name: "vm"}
	if err := w.Client.Get(w.Context(), key, found.service); apierrors.IsNotFound(err) {
		found.service = nil
	} else {
		w.Do(err)
	}
	if err := w.Client.Get(w.Context(), key, found.slice); apierrors.IsNotFound(err) {
		found.slice = nil
	} else {
		w.Do(err)
	}
	return found
}

// endpoints returns the endpoints as address, port of http and ready.
func (w *fixture) endpoints() string {
	w.Helper()
	slice := w.objects().slice
	if slice == nil {
		return "no slice"
	}
	var words []string
	for _, endpoint := range slice.Endpoints {
		ready := "not ready"
		if *endpoint.Conditions.Ready {
			ready = "ready"
		}
		words = append(words, endpoint.Addresses[0], ready)
	}
	for _, port := range slice.Ports {
		words = append(words, *port.Name)
	}
	return strings.Join(words, " ")
}

// The endpoint of a machine follows it: through its start, its readiness, its stop and its deletion.
func TestServiceFollowsTheMachine(t *testing.T) {
	w := serviceFixture(t)
	check := func(when, endpoints, condition string) {
		t.Helper()
		w.reconcileUntilStable()
		if got := w.endpoints(); got != endpoints {
			t.Errorf("%s, the endpoints are %q, want %q", when, got, endpoints)
		}
		if got := w.serviceReady(); got != condition {
			t.Errorf("%s, ServiceReady is %q, want %q", when, got, condition)
		}
	}
	check("before it runs", "", "False MachineNotReady")
	w.backend.Expose(w.uid(), reachableAt("10.64.255.1"))
	check("while it boots", "10.64.255.1 not ready dns http", "False MachineNotReady")
	w.backend.Boot(w.uid())
	check("when it is ready", "10.64.255.1 ready dns http", "True ServiceReady")
	service := w.objects().service
	if service.Spec.ClusterIP == "" || len(service.Spec.Selector) > 0 || len(service.Spec.Ports) != 2 || !metav1.IsControlledBy(service, w.Object()) {
		t.Errorf("the Service: %+v", service)
	}
	w.Wrote()
	w.reconcileUntilStable()
	if writes := w.Wrote(); len(writes) > 0 {
		t.Errorf("writes in a steady state: %v", writes)
	}

	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Ports[0].Port = 8080 })
	w.reconcileUntilStable()
	changed := w.objects().service
	if changed.Spec.ClusterIP != service.Spec.ClusterIP || len(changed.Spec.Ports) != 2 || changed.Spec.Ports[1].Port != 8080 {
		t.Errorf("after a change of a port: %+v, was %+v", changed.Spec, service.Spec)
	}
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Ports = vm.Spec.Ports[:1] })
	check("without the second port", "10.64.255.1 ready http", "True ServiceReady")

	w.events()
	w.backend.Expose(w.uid(), &backend.Service{Error: "the node is not up yet"})
	check("when nodes do not reach it", "", "False ServiceUnreachable")
	if diff := cmp.Diff([]string{"Warning ServiceUnreachable"}, w.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	w.backend.Expose(w.uid(), reachableAt("10.64.255.1"))
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Service = nil })
	check("turned off", "no slice", "")
	if w.objects().service != nil {
		t.Error("the Service of a machine without one is there")
	}
	w.Change(func(vm *v1alpha1.VirtualMachine) { vm.Spec.Service = &v1alpha1.Service{} })
	check("turned on again", "10.64.255.1 ready http", "True ServiceReady")
	w.Delete()
	w.reconcileUntilStable()
	if found := w.objects(); !w.IsGone() || found.service != nil || found.slice != nil {
		t.Errorf("after the deletion: gone %t, %+v", w.IsGone(), found)
	}
}

// A Service or an EndpointSlice of somebody else stays as it is, and the machine gets its own when the name is free.
func TestServiceOfSomebodyElse(t *testing.T) {
	w := newFixture(t)
	w.backend = fake.New(fake.Options{Clock: w.Clock, BootTime: -1, Service: true})
	w.Restart()
	about := metav1.ObjectMeta{Namespace: w.Namespace, Name: "vm"}
	service := &corev1.Service{ObjectMeta: about, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "other", Port: 1}}}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: about, AddressType: discoveryv1.AddressTypeIPv4}
	w.Do(w.Client.Create(w.Context(), service))
	w.Do(w.Client.Create(w.Context(), slice))
	w.create(withService)
	step := func() {
		t.Helper()
		for range 5 {
			w.Pass(writeRetry)
			w.ReconcileOnce()
		}
	}
	step()
	w.backend.Expose(w.uid(), reachableAt("10.64.255.1"))
	w.backend.Boot(w.uid())
	step()
	w.expect(v1alpha1.PhaseActive, isTrue, v1alpha1.ReasonGuestReady)
	message := func() string {
		return meta.FindStatusCondition(w.Object().Status.Conditions, v1alpha1.ConditionServiceReady).Message
	}
	if got := w.serviceReady(); got != "False ErrResourceExists" || !strings.Contains(message(), `The Service "vm" exists and has another owner`) {
		t.Errorf("ServiceReady is %s: %s", got, message())
	}
	if events := w.events(); strings.Count(strings.Join(events, ","), "Warning ErrResourceExists") != 1 {
		t.Errorf("events: %v", events)
	}
	found := w.objects()
	if found.service.ResourceVersion != service.ResourceVersion || found.slice.ResourceVersion != slice.ResourceVersion {
		t.Error("the objects of somebody else were changed")
	}
	w.Do(w.Client.Delete(w.Context(), service))
	step()
	if got := w.serviceReady(); got != "False ErrResourceExists" || !strings.Contains(message(), `The EndpointSlice "vm" exists`) {
		t.Errorf("ServiceReady is %s: %s", got, message())
	}
	w.Do(w.Client.Delete(w.Context(), slice))
	step()
	if got, endpoints := w.serviceReady(), w.endpoints(); got != "True ServiceReady" || endpoints != "10.64.255.1 ready dns http" {
		t.Errorf("ServiceReady is %s, endpoints %s", got, endpoints)
	}
}

// A driver whose servers nodes do not reach says so.
func TestServiceOfAnotherDriver(t *testing.T) {
	w := newFixture(t)
	w.createReady(withService)
	if got := w.serviceReady(); got != "False ServiceUnreachable" || w.endpoints() != "" {
		t.Errorf("ServiceReady is %s, endpoints %q", got, w.endpoints())
	}
}

// The API refuses what could have no Service.
func TestServiceIsValidated(t *testing.T) {
	w := newFixture(t)
	for want, change := range map[string]change{
		"at least one port": func(vm *v1alpha1.VirtualMachine) { vm.Spec.Ports = nil },
		"may be in spec.ports once": func(vm *v1alpha1.VirtualMachine) {
			vm.Spec.Ports = append(vm.Spec.Ports, v1alpha1.Port{Name: "again", Port: 80})
		},
		"begins with a letter": func(vm *v1alpha1.VirtualMachine) { vm.Name = "1.b" },
	} {
		vm := newVM(withService, change)
		vm.ObjectMeta = metav1.ObjectMeta{Namespace: w.Namespace, Name: vm.Name}
		if err := w.Client.Create(w.Context(), vm); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the API says %v, want %q", err, want)
		}
	}
}
