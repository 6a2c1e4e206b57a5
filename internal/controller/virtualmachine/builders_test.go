package virtualmachine

import (
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// fakeFinalizer is the finalizer of the driver fake.
const fakeFinalizer = fake.Name + finalizerSuffix

// thisHost is the host of the driver fake, otherHost another one.
var thisHost, otherHost = fake.New(fake.Options{}).Host(), backend.Host{ID: "there", Name: "node-2"}

type change = func(*v1alpha1.VirtualMachine)

// newVM returns a stored VirtualMachine that is claimed for the driver fake.
func newVM(changes ...change) *v1alpha1.VirtualMachine {
	vm := &v1alpha1.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{Name: "vm", Namespace: "market", UID: "vm-uid", Generation: 2, Finalizers: []string{fakeFinalizer}},
		Spec: v1alpha1.VirtualMachineSpec{
			Action: v1alpha1.ActionActive, RestartPolicy: v1alpha1.RestartAlways, DiskPolicy: v1alpha1.DiskDelete,
			Resource: v1alpha1.Resources{CPU: resource.MustParse("2"), Memory: resource.MustParse("1Gi")},
		},
		Status: v1alpha1.VirtualMachineStatus{ObservedGeneration: 2, Host: &v1alpha1.Host{Driver: fake.Name, ID: thisHost.ID, Name: thisHost.Name}},
	}
	for _, change := range changes {
		change(vm)
	}
	return vm
}

// finalizers replaces the finalizers, as an edit by a user does.
func finalizers(finalizers ...string) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Finalizers = finalizers }
}

// onHost replaces the host recorded in the status; "" records none.
func onHost(id string) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Status.Host = nil
		if id != "" {
			vm.Status.Host = &v1alpha1.Host{Driver: fake.Name, ID: id, Name: "node"}
		}
	}
}

// forgets sets the annotation that forgets a host.
func forgets(id string) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Annotations = map[string]string{v1alpha1.AnnotationForgetHost: id}
	}
}

func withAction(action v1alpha1.Action) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Spec.Action = action }
}

func policy(policy v1alpha1.RestartPolicy) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Spec.RestartPolicy = policy }
}

// hadServer sets a server in the status.
func hadServer(vm *v1alpha1.VirtualMachine) {
	vm.Status.Server = &v1alpha1.Server{ID: "s-1", State: v1alpha1.ServerRunning, Run: "run-1"}
}

func restartRequestedAt(at time.Time) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Spec.RestartRequestedAt = ptr.To(metav1.NewTime(at)) }
}

func lastRestart(at time.Time) change {
	return func(vm *v1alpha1.VirtualMachine) { vm.Status.LastRestartRequestedAt = ptr.To(metav1.NewTime(at)) }
}

func pendingRestart(run string) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Status.PendingRestart = &v1alpha1.PendingRestart{RequestedAt: metav1.NewTime(noon), Run: run}
	}
}

// failed records count consecutive failures, the last one of run. The next attempt is due after
// due.
func failed(count int32, run string, due time.Duration) change {
	return func(vm *v1alpha1.VirtualMachine) {
		vm.Status.StartFailure = &v1alpha1.StartFailure{Count: count, RetryAfter: ptr.To(metav1.NewTime(noon.Add(due)))}
		vm.Status.LastEndedRun = run
	}
}

func deleted(vm *v1alpha1.VirtualMachine) {
	vm.DeletionTimestamp = ptr.To(metav1.NewTime(noon))
}

// observedServer returns an observation of a server that was configured as requested; nil means none.
func observedServer(server *backend.Server) observation {
	return observation{name: fake.Name, driver: fake.New(fake.Options{}), host: thisHost, server: server}
}

// newServer returns a server with a state.
func newServer(state backend.State, changes ...func(*backend.Server)) *backend.Server {
	server := &backend.Server{
		Identity: backend.Identity{UID: "vm-uid", Namespace: "market", Name: "vm"},
		ID:       "s-1", State: state, Run: "run-1", Hash: hash(&newVM().Spec),
	}
	if server.IsOn() {
		server.StartedAt, server.Agent = noon.Add(-time.Minute), backend.AgentConnected
	}
	for _, change := range changes {
		change(server)
	}
	return server
}

func endedBy(cause backend.Cause) func(*backend.Server) {
	return func(s *backend.Server) {
		s.Ended = &backend.Ended{Run: "run-1", Cause: cause, At: noon, StartedAt: noon.Add(-time.Minute)}
	}
}

// attempt records a failure that ended no run.
func attempt(cause backend.Cause) func(*backend.Server) {
	return func(s *backend.Server) { s.Ended = &backend.Ended{Run: "attempt-1", Cause: cause, At: noon} }
}

func sleeping(s *backend.Server) { s.Asleep = &backend.Asleep{Since: noon} }

func during(task backend.Task) func(*backend.Server) {
	return func(s *backend.Server) { s.Task = task }
}

// blocked makes it a server whose start waits for a node.
func blocked(waking bool) func(*backend.Server) {
	return func(s *backend.Server) {
		s.Task, s.Blocked = backend.TaskStart, &backend.Blocked{Unschedulable: true, Message: "0/1 nodes are available: 1 Insufficient cpu.", Waking: waking}
	}
}

// smaller changes the size of the machine.
func smaller(vm *v1alpha1.VirtualMachine) { vm.Spec.Resource.Memory = resource.MustParse("512Mi") }

// unusable returns an observation of a server that cannot be restored from the snapshot in its spec.
func unusable(server *backend.Server) observation {
	observed := observedServer(server)
	observed.restore.unusable = "there is no such snapshot"
	return observed
}

func restoreWaits(s *backend.Server) { s.RestoreWaits = true }
