package virtualmachine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func usage(cpu, memory float64) func(*backend.Server) {
	return func(s *backend.Server) { s.Usage = &backend.Usage{CPU: cpu, Memory: memory} }
}

func TestPrintableStatus(t *testing.T) {
	for _, test := range []struct {
		phase  v1alpha1.Phase
		reason string
		want   v1alpha1.PrintableStatus
	}{
		{v1alpha1.PhaseCreating, v1alpha1.ReasonCreating, v1alpha1.StatusCreating},
		{v1alpha1.PhaseCreating, v1alpha1.ReasonStarting, v1alpha1.StatusBooting},
		{v1alpha1.PhaseActive, v1alpha1.ReasonStarting, v1alpha1.StatusBooting},
		{v1alpha1.PhaseCreating, v1alpha1.ReasonUnschedulable, v1alpha1.StatusUnschedulable},
		{v1alpha1.PhaseActive, v1alpha1.ReasonUnschedulable, v1alpha1.StatusUnschedulable},
		{v1alpha1.PhaseActive, v1alpha1.ReasonGuestBooting, v1alpha1.StatusBooting},
		{v1alpha1.PhaseActive, v1alpha1.ReasonGuestReady, v1alpha1.StatusRunning},
		{v1alpha1.PhaseActive, v1alpha1.ReasonRunning, v1alpha1.StatusRunning},
		{v1alpha1.PhaseActive, v1alpha1.ReasonGuestSilent, v1alpha1.StatusRunning},
		{v1alpha1.PhaseActive, v1alpha1.ReasonPaused, v1alpha1.StatusPaused},
		{v1alpha1.PhaseActive, v1alpha1.ReasonStopping, v1alpha1.StatusStopping},
		{v1alpha1.PhaseActive, v1alpha1.ReasonStopped, v1alpha1.StatusStopped},
		{v1alpha1.PhaseActive, v1alpha1.ReasonGuestStopped, v1alpha1.StatusStopped},
		{v1alpha1.PhaseFailed, v1alpha1.ReasonBackOff, v1alpha1.StatusFailed},
		{v1alpha1.PhaseTerminating, v1alpha1.ReasonTerminating, v1alpha1.StatusTerminating},
		{v1alpha1.PhaseUnknown, v1alpha1.ReasonBackendUnavailable, v1alpha1.StatusUnknown},
	} {
		if got := printableStatus(test.phase, test.reason); got != test.want {
			t.Errorf("phase %s, reason %s: %s, want %s", test.phase, test.reason, got, test.want)
		}
	}
}

// hadUsage sets a server with its usage in the status.
func hadUsage(vm *v1alpha1.VirtualMachine) {
	hadServer(vm)
	vm.Status.Server.Usage = &v1alpha1.Usage{CPU: 10, Memory: 40}
}

func TestStatusOfServer(t *testing.T) {
	started := ptr.To(metav1.NewTime(noon.Add(-time.Minute)))
	is := func(state v1alpha1.ServerState, startedAt *metav1.Time, usage *v1alpha1.Usage) *v1alpha1.Server {
		return &v1alpha1.Server{ID: "s-1", State: state, Run: "run-1", StartedAt: startedAt, Usage: usage}
	}
	for _, test := range []struct {
		name   string
		vm     *v1alpha1.VirtualMachine
		server *backend.Server
		want   *v1alpha1.Server
	}{
		{"about to be started: not shown as stopped", newVM(), newServer(backend.StateStopped), is(v1alpha1.ServerStarting, nil, nil)},
		{"off", newVM(withAction(v1alpha1.ActionStopped)), newServer(backend.StateStopped), is(v1alpha1.ServerStopped, nil, nil)},
		{"its monitor is about to answer for the first time", newVM(), newServer(backend.StateUnknown, during(backend.TaskStart)),
			is(v1alpha1.ServerStarting, nil, nil)},
		{"its monitor does not answer", newVM(), newServer(backend.StateUnknown), is(v1alpha1.ServerUnknown, nil, nil)},
		{"first figures", newVM(), newServer(backend.StateRunning, usage(20, 30)),
			is(v1alpha1.ServerRunning, started, &v1alpha1.Usage{CPU: 20, Memory: 30})},
		{"figures that have not moved", newVM(hadUsage), newServer(backend.StateRunning, usage(14, 36)),
			is(v1alpha1.ServerRunning, started, &v1alpha1.Usage{CPU: 10, Memory: 40})},
		{"figures that have moved", newVM(hadUsage), newServer(backend.StateRunning, usage(15, 40)),
			is(v1alpha1.ServerRunning, started, &v1alpha1.Usage{CPU: 15, Memory: 40})},
		{"a new manager, which has none yet", newVM(hadUsage), newServer(backend.StateRunning),
			is(v1alpha1.ServerRunning, started, &v1alpha1.Usage{CPU: 10, Memory: 40})},
		{"a new manager, which cannot compare yet", newVM(hadUsage), newServer(backend.StateRunning, usage(-1, 90)),
			is(v1alpha1.ServerRunning, started, &v1alpha1.Usage{CPU: 10, Memory: 40})},
		{"a machine that was started again", newVM(hadUsage), newServer(backend.StateRunning, func(s *backend.Server) { s.Run = "run-2" }),
			&v1alpha1.Server{ID: "s-1", State: v1alpha1.ServerRunning, Run: "run-2", StartedAt: started}},
	} {
		t.Run(test.name, func(t *testing.T) {
			observed := observedServer(test.server)
			got := summarize(test.vm, observed, decide(test.vm, observed, noon), acted{}).Server
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
