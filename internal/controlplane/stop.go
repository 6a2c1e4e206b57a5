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

// How long a component gets to end after SIGTERM, and to be gone after SIGKILL.
const (
	termTimeout = 10 * time.Second
	killTimeout = 5 * time.Second
	// abandonTimeout is termTimeout for a start that failed: a kube-apiserver that still waits for etcd would wait on,
	// and there is nothing yet that a polite end would be good for.
	abandonTimeout = time.Second
)

// patience is how long a component gets to end after SIGTERM.
func patience(name string) time.Duration {
	if name == nameNode {
		return nodeEndTimeout
	}
	return termTimeout
}

// stopOrder is the order in which components are stopped: those in one group at the same time.
var stopOrder = [][]string{
	{nameNode},
	{nameKwok, nameScheduler, nameControllerManager},
	{nameAPIServer},
	{nameEtcd},
}

// Detach stops looking after the control plane and leaves it running, as if this program had died.
func (cp *ControlPlane) Detach() error {
	cp.leave.Lock()
	defer cp.leave.Unlock()
	cp.endSupervision()
	return cp.letGo()
}

// Stop stops all components, the ones that need others first, and returns when all are gone; also those that another
// program started before and this one does not use. When the context ends, or had ended before, what is left is
// killed. Another Stop afterwards does nothing; after a Detach the error is process.ErrClosed.
func (cp *ControlPlane) Stop(ctx context.Context) error {
	cp.leave.Lock()
	defer cp.leave.Unlock()
	if cp.stopped {
		return nil
	}
	cp.endSupervision()
	err := errors.Join(stopComponents(ctx, cp.dir, cp.procs), cp.letGo())
	cp.stopped = err == nil
	return err
}

// abandon gives up a start that failed: what it started is stopped, what it found running is left.
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
	return errors.Join(err, cp.letGo())
}

// endSupervision leaves the components alone and returns when nothing of ours is at work any more.
func (cp *ControlPlane) endSupervision() {
	cp.mu.Lock()
	cp.leaving = true
	cp.mu.Unlock()
	cp.cancel()
	cp.wg.Wait()
}

// stopSurplus stops components that an earlier run left behind and that the options leave out.
func (cp *ControlPlane) stopSurplus(ctx context.Context) error {
	if cp.opts.APIOnly {
		return cp.stopFound(ctx, slices.Concat(stopOrder[0], stopOrder[1]))
	}
	var surplus []string
	if cp.opts.Nodes == 0 {
		surplus = append(surplus, nameKwok)
	}
	if cp.node == nil {
		surplus = append(surplus, nameNode)
	}
	return cp.stopFound(ctx, surplus)
}

// stopFound stops those of the components that run although we do not look after them.
func (cp *ControlPlane) stopFound(ctx context.Context, names []string) error {
	return stopSome(ctx, cp.dir, cp.procs, patience, func(name string) bool {
		cp.mu.Lock()
		defer cp.mu.Unlock()
		return slices.Contains(names, name) && cp.launched[name] == nil
	})
}

// stopComponents stops every component that has a record.
func stopComponents(ctx context.Context, dir layout, procs *process.Dir) error {
	return stopSome(ctx, dir, procs, patience, func(string) bool { return true })
}

// stopSome stops the components that are wanted gone and have a record. A real node that was killed, now or before, leaves
// something on the machine, which goes with it.
func stopSome(ctx context.Context, dir layout, procs *process.Dir, patience func(name string) time.Duration, wanted func(name string) bool) error {
	var errs []error
	for _, group := range stopOrder {
		results := make([]error, len(group))
		var wg sync.WaitGroup
		for i, name := range group {
			if !wanted(name) {
				continue
			}
			p, err := procs.Find(name)
			if err != nil {
				if !errors.Is(err, process.ErrNotFound) {
					results[i] = err
				}
				continue
			}
			wg.Go(func() { results[i] = stopProcess(ctx, p, patience(name)) })
		}
		wg.Wait()
		errs = append(errs, results...)
		if slices.Contains(group, nameNode) && wanted(nameNode) && errors.Join(results...) == nil {
			errs = append(errs, node.Clean(context.WithoutCancel(ctx), dir.node()))
		}
	}
	return errors.Join(errs...)
}

// stopProcess ends a process, politely as long as the context and our patience last.
func stopProcess(ctx context.Context, p *process.Process, patience time.Duration) error {
	err := p.Stop(ctx, process.StopOptions{TermTimeout: patience, KillTimeout: killTimeout})
	if err == nil || ctx.Err() == nil {
		return err
	}
	// kill -9 costs no data: etcd has synced what it acknowledged, the others keep nothing.
	return p.Stop(context.WithoutCancel(ctx), process.StopOptions{
		TermSignal: syscall.SIGKILL, TermTimeout: killTimeout, KillTimeout: killTimeout,
	})
}
