package controlplane

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/process"
)

// The timeouts of a component after SIGTERM and after SIGKILL.
const (
	termTimeout = 10 * time.Second
	killTimeout = 5 * time.Second
	// abandonTimeout replaces termTimeout after a failed start: a kube-apiserver that waits for etcd would continue
	// to wait, and a graceful stop has no benefit yet.
	abandonTimeout = time.Second
)

// waitTimeout is the timeout of a component after SIGTERM.
func waitTimeout(name string) time.Duration {
	if isNode(name) {
		return nodeEndTimeout
	}
	return termTimeout
}

// stopOrder is the order in which components are stopped: those in one group at the same time.
var stopOrder = [][]string{
	nodeNames,
	{nameKwok, nameScheduler, nameControllerManager},
	{nameAPIServer},
	{nameEtcd},
}

// Detach ends the supervision and leaves the control plane running, as if this program had died.
func (cp *ControlPlane) Detach() error {
	cp.leave.Lock()
	defer cp.leave.Unlock()
	cp.endSupervision()
	return cp.release()
}

// Stop stops all components, dependents first, and returns when all are gone. This includes components of an earlier
// program that this one does not use. When the context ends, it kills the rest. A second Stop does nothing; after
// Detach the error is process.ErrClosed.
func (cp *ControlPlane) Stop(ctx context.Context) error {
	cp.leave.Lock()
	defer cp.leave.Unlock()
	if cp.stopped {
		return nil
	}
	cp.endSupervision()
	err := errors.Join(stopComponents(ctx, cp.dir, cp.procs), cp.release())
	cp.stopped = err == nil
	return err
}

// abandon cleans up after a failed start: it stops the components that the start launched, and leaves those
// that it adopted.
func (cp *ControlPlane) abandon(ctx context.Context) error {
	cp.leave.Lock()
	defer cp.leave.Unlock()
	cp.endSupervision()
	err := stopSome(ctx, cp.dir, cp.procs, func(string) time.Duration { return abandonTimeout }, func(name string) bool {
		cp.mu.Lock()
		defer cp.mu.Unlock()
		c := cp.launched[name]
		return c != nil && c.started
	})
	return errors.Join(err, cp.release())
}

// endSupervision ends the supervision and returns when all its goroutines have ended.
func (cp *ControlPlane) endSupervision() {
	cp.mu.Lock()
	cp.leaving = true
	cp.mu.Unlock()
	cp.cancel()
	cp.wg.Wait()
}

// stopSurplus stops components of an earlier run that the options exclude.
func (cp *ControlPlane) stopSurplus(ctx context.Context) error {
	if cp.opts.APIOnly {
		return cp.stopFound(ctx, slices.Concat(stopOrder[0], stopOrder[1]))
	}
	var surplus []string
	if cp.opts.Nodes == 0 {
		surplus = append(surplus, nameKwok)
	}
	for index, name := range nodeNames {
		if !cp.hasNode(index) {
			surplus = append(surplus, name)
		}
	}
	return cp.stopFound(ctx, surplus)
}

// stopOutdated stops all components but nodes, dependents first, if both etcd and kube-apiserver run and must be replaced, as for another
// version: etcd is not replaced under an API that ends.
func (cp *ControlPlane) stopOutdated(ctx context.Context, etcd, apiserver *component) error {
	if _, why, err := cp.running(etcd); err != nil || why == "" {
		return err
	}
	if err := cp.prepareCredentials(); err != nil {
		return err
	}
	if _, why, err := cp.running(apiserver); err != nil || why == "" {
		return err
	}
	cp.opts.Replacing()
	return cp.stopFound(ctx, slices.Concat(stopOrder[1:]...))
}

// stopFound stops those of the components that run without supervision.
func (cp *ControlPlane) stopFound(ctx context.Context, names []string) error {
	return stopSome(ctx, cp.dir, cp.procs, waitTimeout, func(name string) bool {
		cp.mu.Lock()
		defer cp.mu.Unlock()
		return slices.Contains(names, name) && cp.launched[name] == nil
	})
}

// stopComponents stops every component that has a record.
func stopComponents(ctx context.Context, dir layout, procs *process.Dir) error {
	return stopSome(ctx, dir, procs, waitTimeout, func(string) bool { return true })
}

// stopSome stops the selected components that have a record. It also cleans up what killed real nodes left on the host.
func stopSome(ctx context.Context, dir layout, procs *process.Dir, waitTimeout func(name string) time.Duration, wanted func(name string) bool) error {
	var errs []error
	for _, group := range stopOrder {
		results := make([]error, len(group))
		var wg sync.WaitGroup
		for i, name := range group {
			if !wanted(name) {
				continue
			}
			wg.Go(func() {
				results[i] = stopRecorded(ctx, procs, name, waitTimeout(name))
				if isNode(name) && results[i] == nil {
					results[i] = node.Clean(context.WithoutCancel(ctx), node.Dir(string(dir), i))
				}
			})
		}
		wg.Wait()
		errs = append(errs, results...)
	}
	return errors.Join(errs...)
}

// stopRecorded stops the process of a component, if it has a record.
func stopRecorded(ctx context.Context, procs *process.Dir, name string, waitTimeout time.Duration) error {
	p, err := procs.Find(name)
	if errors.Is(err, process.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return stopProcess(ctx, p, waitTimeout)
}

// stopProcess stops a process gracefully, and kills it when the context ends or the timeout has passed.
func stopProcess(ctx context.Context, p *process.Process, waitTimeout time.Duration) error {
	err := p.Stop(ctx, process.StopOptions{TermTimeout: waitTimeout, KillTimeout: killTimeout})
	if err == nil || ctx.Err() == nil {
		return err
	}
	// A kill loses no data: etcd has synced all acknowledged writes, and the others have no data.
	return p.Stop(context.WithoutCancel(ctx), process.StopOptions{
		TermSignal: syscall.SIGKILL, TermTimeout: killTimeout, KillTimeout: killTimeout,
	})
}
