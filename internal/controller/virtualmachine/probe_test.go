package virtualmachine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

func newProbe(change func(*v1alpha1.Probe)) *v1alpha1.Probe {
	probe := &v1alpha1.Probe{PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3}
	change(probe)
	return probe
}

func tcp(probe *v1alpha1.Probe) { probe.TCPSocket = &v1alpha1.TCPProbe{Port: 22} }

func httpGet(path string) func(*v1alpha1.Probe) {
	return func(probe *v1alpha1.Probe) { probe.HTTPGet = &v1alpha1.HTTPProbe{Path: path, Port: 80} }
}

func TestCheck(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.String() {
		case "/ready?now=1":
		case "/moved":
			http.Redirect(w, r, "/broken", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		default:
			http.Error(w, "broken", http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	connect := func(ctx context.Context, port uint16) (net.Conn, error) {
		if port == 22 {
			return nil, errors.New("connection refused")
		}
		return new(net.Dialer).DialContext(ctx, "tcp", server.Listener.Addr().String())
	}
	for _, test := range []struct {
		name  string
		probe *v1alpha1.Probe
		want  string // part of the error; empty means success
	}{
		{"a port that accepts", newProbe(func(p *v1alpha1.Probe) { p.TCPSocket = &v1alpha1.TCPProbe{Port: 80} }), ""},
		{"a port that does not", newProbe(tcp), "connection refused"},
		{"a page", newProbe(httpGet("/ready?now=1")), ""},
		{"a redirect, which is not followed", newProbe(httpGet("/moved")), ""},
		{"a page that fails", newProbe(httpGet("/broken")), "500 Internal Server Error"},
		{"a page that takes too long", newProbe(httpGet("/slow")), "context deadline exceeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := check(t.Context(), test.probe, connect)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func TestResultsOfProbes(t *testing.T) {
	no := errors.New("no")
	for _, test := range []struct {
		name   string
		first  probeState
		checks []error
		want   probeState
		// news is the number of changes that the controller hears of.
		news int
	}{
		{"no answer yet", probeState{probing, notCheckedYet}, []error{no, no, no, no}, probeState{probing, "no"}, 1},
		{"the first answer", probeState{probing, notCheckedYet}, []error{no, nil}, probeState{probeSucceeded, ""}, 2},
		{"a few failures", probeState{probeSucceeded, ""}, []error{no, no, nil, no, no}, probeState{probeSucceeded, ""}, 0},
		{"too many failures", probeState{probeSucceeded, ""}, []error{no, no, no, no}, probeState{probeFailed, "no"}, 1},
		{"it answers again", probeState{probeFailed, "no"}, []error{no, nil}, probeState{probeSucceeded, ""}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := &prober{spec: *newProbe(tcp), state: test.first}
			news := 0
			for _, err := range test.checks {
				if p.record(err) {
					news++
				}
			}
			if diff := cmp.Diff(test.want, p.state, cmp.AllowUnexported(probeState{})); diff != "" || news != test.news {
				t.Errorf("%d news, want %d; state (-want +got):\n%s", news, test.news, diff)
			}
		})
	}
}

// probedDriver is a driver whose guests answer when the test says so.
type probedDriver struct {
	*fake.Driver
	dials   atomic.Int32
	answers atomic.Bool
}

func (d *probedDriver) Dial(context.Context, backend.Identity, uint16) (net.Conn, error) {
	d.dials.Add(1)
	if !d.answers.Load() {
		return nil, fmt.Errorf("connection refused")
	}
	conn, other := net.Pipe()
	return conn, other.Close()
}

// A guest is checked while it runs: often until it answers, and then in each period.
func TestProberFollowsAGuest(t *testing.T) {
	clock := clocktesting.NewFakeClock(noon)
	var news atomic.Int32
	p := &probers{clock: clock, notify: func(backend.Identity) { news.Add(1) }, all: map[types.UID]*prober{}}
	driver := &probedDriver{Driver: fake.New(fake.Options{})}
	vm := newVM(func(vm *v1alpha1.VirtualMachine) { vm.Spec.ReadinessProbe = newProbe(tcp) })
	observed := observedServer(newServer(backend.StateRunning))
	observed.driver = driver
	until := func(what string, want probeResult, dials int32) {
		t.Helper()
		harness.Eventually(t, what, func() bool {
			return p.follow(t.Context(), vm, observed).result == want && driver.dials.Load() == dials && clock.HasWaiters()
		})
	}
	until("the first check fails", probing, 1)
	driver.answers.Store(true)
	clock.Step(eagerPeriod)
	until("the second one succeeds", probeSucceeded, 2)
	clock.Step(eagerPeriod)
	until("nothing is checked before the period is over", probeSucceeded, 2)
	driver.answers.Store(false)
	for n := range int32(3) {
		clock.Step(10 * time.Second)
		harness.Eventually(t, "it is checked again", func() bool { return driver.dials.Load() == 3+n && clock.HasWaiters() })
	}
	until("too many checks have failed", probeFailed, 5)
	if news.Load() != 3 {
		t.Errorf("the controller was told %d times", news.Load())
	}

	observed.server = newServer(backend.StatePaused)
	if state := p.follow(t.Context(), vm, observed); state != (probeState{}) || len(p.all) != 0 {
		t.Errorf("a paused machine is checked: %+v", state)
	}
	p.tasks.Wait()
}

// A new manager trusts the status until a check fails too often.
func TestProberOfANewManager(t *testing.T) {
	p := &probers{clock: clocktesting.NewFakeClock(noon), notify: func(backend.Identity) {}, all: map[types.UID]*prober{}}
	vm := newVM(hadServer, func(vm *v1alpha1.VirtualMachine) {
		vm.Spec.ReadinessProbe = newProbe(tcp)
		vm.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionGuestReady, Status: metav1.ConditionTrue}}
	})
	observed := observedServer(newServer(backend.StateRunning))
	observed.driver = &probedDriver{Driver: fake.New(fake.Options{})}
	if state := p.follow(t.Context(), vm, observed); state.result != probeSucceeded {
		t.Errorf("the state is %+v", state)
	}
	p.forget(vm.UID)
	p.tasks.Wait()
}

// Ready waits for the network and the probe.
func TestReadyWithProbe(t *testing.T) {
	for _, test := range []struct {
		name   string
		probe  probeState
		server *backend.Server
		want   string
	}{
		{"no probe", probeState{}, newServer(backend.StateRunning), v1alpha1.ReasonGuestReady},
		{"not yet", probeState{probing, "no"}, newServer(backend.StateRunning), v1alpha1.ReasonProbing},
		{"not any more", probeState{probeFailed, "no"}, newServer(backend.StateRunning), v1alpha1.ReasonProbeFailed},
		{"it answers", probeState{probeSucceeded, ""}, newServer(backend.StateRunning), v1alpha1.ReasonGuestReady},
		{"it answers, and has no agent", probeState{probeSucceeded, ""}, newServer(backend.StateRunning, func(s *backend.Server) { s.Agent = backend.AgentNone }), v1alpha1.ReasonGuestReady},
		{"it answers, but not the agent", probeState{probeSucceeded, ""}, newServer(backend.StateRunning, func(s *backend.Server) { s.Agent = backend.AgentLost }), v1alpha1.ReasonGuestSilent},
		{"no network", probeState{}, newServer(backend.StateRunning, func(s *backend.Server) { s.NetworkError = "no" }), v1alpha1.ReasonNetworkFailed},
	} {
		t.Run(test.name, func(t *testing.T) {
			vm := newVM()
			observed := observedServer(test.server)
			observed.probe = test.probe
			status := summarize(vm, observed, decide(vm, observed, noon), acted{})
			for _, condition := range status.Conditions {
				if condition.Type == v1alpha1.ConditionReady && condition.Reason != test.want {
					t.Errorf("Ready has the reason %s (%s), want %s", condition.Reason, condition.Message, test.want)
				}
			}
		})
	}
}
