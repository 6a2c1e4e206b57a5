package virtualmachine

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// eagerPeriod is the longest time between two checks of a guest that is not ready yet.
const eagerPeriod = time.Second

// probeResult is the result of spec.readinessProbe. It is empty if there is no probe, or the machine does not run.
type probeResult string

const (
	// probing: the guest has not answered in this run.
	probing probeResult = "probing"
	// probeSucceeded: the guest has answered, and has not failed too often since.
	probeSucceeded probeResult = "succeeded"
	// probeFailed: the guest has answered before, and has failed too often since.
	probeFailed probeResult = "failed"
)

const notCheckedYet = "it has not been checked yet"

// probeState is the result of a probe, and why the last check failed.
type probeState struct {
	result probeResult
	why    string
}

// dial opens a connection to a port of a guest.
type dial func(ctx context.Context, port uint16) (net.Conn, error)

// probers check guests in the background, one task for each machine with a probe, so that no worker waits for a guest.
type probers struct {
	clock  clock.WithTicker
	notify func(backend.Identity)

	mu  sync.Mutex
	all map[types.UID]*prober
	// tasks are the running checks.
	tasks sync.WaitGroup
}

// prober checks the guest of one machine in one run.
type prober struct {
	run    string
	spec   v1alpha1.Probe
	cancel context.CancelFunc

	mu       sync.Mutex
	state    probeState
	failures int32
}

// Start implements manager.Runnable: it ends all tasks with the manager.
func (p *probers) Start(ctx context.Context) error {
	<-ctx.Done()
	p.mu.Lock()
	for uid := range p.all {
		p.end(uid)
	}
	p.mu.Unlock()
	p.tasks.Wait()
	return nil
}

// follow has the guest of vm checked as long as it runs and has a probe, and returns the present result.
func (p *probers) follow(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation) probeState {
	p.mu.Lock()
	defer p.mu.Unlock()
	server := observed.server
	spec := vm.Spec.ReadinessProbe
	if spec == nil || server == nil || observed.driver == nil || server.State != backend.StateRunning || !vm.DeletionTimestamp.IsZero() {
		p.end(vm.UID)
		return probeState{}
	}
	current := p.all[vm.UID]
	if current == nil || current.run != server.Run || !equality.Semantic.DeepEqual(current.spec, *spec) {
		p.end(vm.UID)
		current = &prober{run: server.Run, spec: *spec, state: probeState{result: probing, why: notCheckedYet}}
		if wasReady(vm, server) {
			// Another manager, or the previous probe, has found it ready: a restart of the manager changes nothing.
			current.state = probeState{result: probeSucceeded}
		}
		p.begin(ctx, vm, observed, current)
	}
	current.mu.Lock()
	defer current.mu.Unlock()
	return current.state
}

// wasReady reports whether the guest was ready in the present run.
func wasReady(vm *v1alpha1.VirtualMachine, server *backend.Server) bool {
	return vm.Status.Server != nil && vm.Status.Server.Run == server.Run &&
		meta.IsStatusConditionTrue(vm.Status.Conditions, v1alpha1.ConditionGuestReady)
}

// begin starts the task of a prober; p.mu is held.
func (p *probers) begin(ctx context.Context, vm *v1alpha1.VirtualMachine, observed observation, current *prober) {
	// The task outlives the reconcile.
	ctx, current.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.all[vm.UID] = current
	id := observed.id
	connect := func(ctx context.Context, port uint16) (net.Conn, error) {
		dialer, ok := observed.driver.(backend.Dialer)
		if !ok {
			return nil, fmt.Errorf("%w: the driver %s cannot connect to machines", backend.ErrInvalid, observed.name)
		}
		return dialer.Dial(ctx, id, port)
	}
	p.tasks.Go(func() { current.repeat(ctx, p.clock, connect, func() { p.notify(id) }) })
}

// end ends the task of a machine, if there is one; p.mu is held.
func (p *probers) end(uid types.UID) {
	if current := p.all[uid]; current != nil {
		current.cancel()
		delete(p.all, uid)
	}
}

// forget ends the task of a deleted machine.
func (p *probers) forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(uid)
}

// repeat checks the guest until the context ends, and calls notify after each change of the result.
func (p *prober) repeat(ctx context.Context, clock clock.WithTicker, connect dial, notify func()) {
	for ctx.Err() == nil {
		err := check(ctx, &p.spec, connect)
		if ctx.Err() != nil {
			return
		}
		period := time.Duration(p.spec.PeriodSeconds) * time.Second
		if p.record(err) {
			notify()
		}
		if p.result() != probeSucceeded {
			period = min(period, eagerPeriod)
		}
		timer := clock.NewTimer(period)
		select {
		case <-ctx.Done():
		case <-timer.C():
		}
		timer.Stop()
	}
}

func (p *prober) result() probeResult {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.result
}

// record counts the result of a check, and reports whether the result of the probe has changed.
func (p *prober) record(err error) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.state
	switch {
	case err == nil:
		p.state, p.failures = probeState{result: probeSucceeded}, 0
	case before.result == probeSucceeded && p.failures+1 < p.spec.FailureThreshold:
		p.failures++
	case before.result == probeSucceeded:
		p.state = probeState{probeFailed, err.Error()}
	default:
		p.state.why = err.Error()
	}
	// Other errors than the first one are not news: each would be written to the API.
	return p.state.result != before.result || before.why == notCheckedYet
}

// check checks a guest once.
func check(ctx context.Context, spec *v1alpha1.Probe, connect dial) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(spec.TimeoutSeconds)*time.Second)
	defer cancel()
	if spec.TCPSocket != nil {
		conn, err := connect(ctx, uint16(spec.TCPSocket.Port)) //nolint:gosec // the API allows ports only
		if err != nil {
			return err
		}
		return conn.Close()
	}
	get := spec.HTTPGet
	target, err := url.ParseRequestURI(get.Path)
	if err != nil {
		return err
	}
	target.Scheme, target.Host = "http", net.JoinHostPort("localhost", strconv.Itoa(int(get.Port)))
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "keelson-probe")
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return connect(ctx, uint16(get.Port)) //nolint:gosec // the API allows ports only
	}}
	response, err := transport.RoundTrip(request) // follows no redirects
	if err != nil {
		return err
	}
	_ = response.Body.Close() // the status says it all
	if response.StatusCode < 200 || response.StatusCode >= 400 {
		return fmt.Errorf("GET %s: %s", get.Path, response.Status)
	}
	return nil
}
