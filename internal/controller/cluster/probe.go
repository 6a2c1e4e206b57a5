package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/keelson-dev/keelson/internal/kubeconfig"
)

const (
	// probeInterval is the time between two probes of a healthy cluster.
	probeInterval = 10 * time.Second
	// probeTimeout limits one probe.
	probeTimeout = 5 * time.Second
	// probeFailures is the number of consecutive failures after which a healthy cluster counts as not ready.
	probeFailures = 5
	// shortestProbeInterval is the first interval between probes of an unhealthy cluster. The interval grows up to
	// probeInterval, so that a starting cluster is detected quickly.
	shortestProbeInterval = 50 * time.Millisecond
)

// Prober probes the health of clusters periodically in the background.
type Prober interface {
	// Notify sets the function that is called with the name of a Cluster after a change of its Probe. It is called once, before
	// all other methods.
	Notify(changed func(cluster string))
	// Probe starts to probe a cluster, if it does not yet, and returns the last result; nil if there is none yet. It returns an
	// error if the kubeconfig is invalid.
	Probe(target Target) (*Probe, error)
	// Targets returns the names of the probed Clusters by UID.
	Targets() map[types.UID]string
	// Forget stops probing a cluster.
	Forget(uid types.UID)
	// Close stops probing all clusters.
	Close()
}

// Target is a cluster to probe.
type Target struct {
	// Cluster and UID are the name and the UID of the Cluster.
	Cluster string
	UID     types.UID
	// Kubeconfig is the kubeconfig of the cluster.
	Kubeconfig []byte
	// Since is the start time of its API server, if known. Probes of an earlier process are discarded.
	Since time.Time
}

// Probe is the result of the last probes of a cluster.
type Probe struct {
	// OK is true if the API was healthy and has not failed probeFailures consecutive probes since.
	OK bool
	// Restarted is true until the first probe of a restarted API server has ended.
	Restarted bool
	// Failing is the error of the last probe; empty if it succeeded.
	Failing string
	// EtcdFailed is true if the API reported that it cannot reach etcd.
	EtcdFailed bool
	// Version is the last version that the API reported.
	Version string
}

// prober is the Prober of the manager.
type prober struct {
	clock   clock.WithTicker
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	changed func(string)

	mu      sync.Mutex
	targets map[types.UID]*probed
}

// probed is a cluster that is probed.
type probed struct {
	name   string
	cancel context.CancelFunc
	kick   chan struct{} // triggers a probe

	mu         sync.Mutex
	kubeconfig []byte
	config     *rest.Config
	since      time.Time
	last       *Probe
	failures   int
}

// NewProber returns a Prober.
func NewProber(c clock.WithTicker) Prober {
	p := &prober{clock: c, targets: map[types.UID]*probed{}, changed: func(string) {}}
	//nolint:forbidigo // the prober lives until Close, longer than any reconcile
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

func (p *prober) Notify(changed func(string)) { p.changed = changed }

func (p *prober) Probe(t Target) (*Probe, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	target := p.targets[t.UID]
	if target == nil {
		access, err := kubeconfig.Parse(t.Kubeconfig)
		if err != nil {
			return nil, err
		}
		if p.ctx.Err() != nil {
			return nil, nil
		}
		target = &probed{name: t.Cluster, kick: make(chan struct{}, 1), kubeconfig: t.Kubeconfig, config: access.Config, since: t.Since}
		ctx, cancel := context.WithCancel(p.ctx)
		target.cancel = cancel
		p.targets[t.UID] = target
		p.wg.Go(func() { p.watch(ctx, target) })
		return nil, nil
	}
	return target.refresh(t)
}

// refresh updates a target and returns the last result.
func (t *probed) refresh(target Target) (*Probe, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !bytes.Equal(t.kubeconfig, target.Kubeconfig) {
		access, err := kubeconfig.Parse(target.Kubeconfig)
		if err != nil {
			return nil, err
		}
		t.kubeconfig, t.config = target.Kubeconfig, access.Config
	}
	if target.Since.After(t.since) {
		t.since, t.failures = target.Since, 0
		version := ""
		if t.last != nil {
			version = t.last.Version
		}
		t.last = &Probe{Restarted: true, Failing: "it was restarted and has not responded yet", Version: version}
		select {
		case t.kick <- struct{}{}:
		default: // a probe is triggered already
		}
	}
	if t.last == nil {
		return nil, nil
	}
	answer := *t.last
	return &answer, nil
}

func (p *prober) Targets() map[types.UID]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	names := make(map[types.UID]string, len(p.targets))
	for uid, target := range p.targets {
		names[uid] = target.name
	}
	return names
}

func (p *prober) Forget(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if target := p.targets[uid]; target != nil {
		target.cancel()
		delete(p.targets, uid)
	}
}

func (p *prober) Close() {
	p.mu.Lock()
	p.cancel() // no watch starts after this, so the wait includes all of them
	p.mu.Unlock()
	p.wg.Wait()
}

// watch probes a cluster until the context ends.
func (p *prober) watch(ctx context.Context, t *probed) {
	unwell := p.clock.Now()
	for {
		if p.ask(ctx, t) && ctx.Err() == nil {
			p.changed(t.name)
		}
		t.mu.Lock()
		well := t.last != nil && t.last.OK
		t.mu.Unlock()
		pause := probeInterval
		if well {
			unwell = p.clock.Now()
		} else {
			pause = min(max(shortestProbeInterval, p.clock.Since(unwell)/5), probeInterval)
		}
		timer := p.clock.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-t.kick:
			timer.Stop()
			unwell = p.clock.Now()
		case <-timer.C():
		}
	}
}

// ask probes once and reports whether the result has changed.
func (p *prober) ask(ctx context.Context, t *probed) bool {
	t.mu.Lock()
	config, since := t.config, t.since
	t.mu.Unlock()
	began := p.clock.Now()
	answer := probe(ctx, config)
	if ctx.Err() != nil {
		return false
	}
	measured.probed(t.name, p.clock.Since(began), answer.OK)
	t.mu.Lock()
	defer t.mu.Unlock()
	if since != t.since {
		return false // the probe reached an earlier process of the API server
	}
	was := t.last
	if answer.Version == "" && was != nil {
		answer.Version = was.Version // an error keeps the known version
	}
	if answer.OK {
		t.failures = 0
	} else if t.failures++; was != nil && was.OK && t.failures < probeFailures {
		answer.OK = true
		answer.EtcdFailed = was.EtcdFailed
	}
	t.last = &answer
	return was == nil || was.OK != answer.OK || was.Version != answer.Version || was.EtcdFailed != answer.EtcdFailed
}

// probe requests /readyz from the API of a cluster and, if it is ready, its version.
func probe(ctx context.Context, config *rest.Config) Probe {
	config = rest.CopyConfig(config)
	config.Timeout = probeTimeout
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return Probe{Failing: "the kubeconfig cannot be used for a client"}
	}
	base := strings.TrimSuffix(config.Host, "/")
	status, body, err := get(ctx, httpClient, base+"/readyz?verbose")
	switch {
	case err != nil:
		return Probe{Failing: describe(err)}
	case status != http.StatusOK:
		failed := failedChecks(body)
		return Probe{
			Failing:    fmt.Sprintf("/readyz returned %s%s", http.StatusText(status), failed),
			EtcdFailed: strings.Contains(failed, "etcd"),
		}
	}
	answer := Probe{OK: true}
	var info version.Info
	status, body, err = get(ctx, httpClient, base+"/version")
	if err == nil && status == http.StatusOK && json.Unmarshal(body, &info) == nil {
		answer.Version = info.GitVersion
	}
	return answer
}

func get(ctx context.Context, c *http.Client, address string) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := c.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }() // it was read
	body, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response.StatusCode, body, err
}

// failedChecks lists the checks that /readyz?verbose calls failed, which it marks with [-]. While an API starts, many
// fail, which it summarizes.
func failedChecks(body []byte) string {
	var failed []string
	starting := false
	for line := range strings.Lines(string(body)) {
		name, ok := strings.CutPrefix(line, "[-]")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		switch name = strings.TrimSpace(name); {
		case strings.HasPrefix(name, "poststarthook/"), name == "informer-sync", name == "autoregister-completion":
			starting = true
		default:
			failed = append(failed, name)
		}
	}
	if starting {
		return "; it is starting"
	}
	if len(failed) == 0 {
		return ""
	}
	return "; failed: " + strings.Join(failed, ", ")
}

// describe returns the cause of a failed request without details that change with each attempt, such as local ports, so that the
// condition stays the same.
func describe(err error) string {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	var system *os.SyscallError
	switch {
	case os.IsTimeout(err), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("no response within %s", probeTimeout)
	case errors.As(err, &system):
		return system.Err.Error()
	default:
		return err.Error()
	}
}
