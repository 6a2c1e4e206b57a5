package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/bench/internal/measure"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/process"
)

// restart is what a manager that is started again does with clusters that run.
type restart struct {
	// Way is how the manager before it ended.
	Way      string `json:"way"`
	Clusters int    `json:"clusters"`
	// Attached is when it looked after all of them, and Probed when it had asked all of them how they are, after the
	// start of its process.
	Attached time.Duration `json:"attachedNanoseconds"`
	Probed   time.Duration `json:"probedNanoseconds"`
	// NotReady is what a watch has seen of Clusters that were not ready any more, from before the end of the one manager
	// until some time after the start of the other. Replaced is how many components have another process.
	NotReady []string `json:"notReady"`
	Replaced int      `json:"replaced"`
}

// probeMetric has the probes of each cluster, in the metrics of the manager.
const probeMetric = "keelson_cluster_probe_seconds"

// measureRestarts has clusters meet a manager that is started again.
func (b *bench) measureRestarts(ctx context.Context) error {
	n := b.options.Restart
	if n == 0 {
		return nil
	}
	b.Say("Two restarts of the manager with %d clusters, watched for %s each", n, b.options.Watched)
	o, err := b.observe(ctx)
	if err != nil {
		return err
	}
	defer o.cancel()
	names, uids, _, err := b.create(ctx, o, n)
	if err != nil {
		return err
	}
	if err := b.awaitComponents(ctx, uids); err != nil {
		return err
	}
	for _, way := range []string{"SIGTERM", "SIGKILL"} {
		if err := b.restart(ctx, o, uids, way); err != nil {
			return fmt.Errorf("restart of the manager: %w", err)
		}
	}
	_, err = b.remove(ctx, o, names, uids)
	return err
}

func (b *bench) restart(ctx context.Context, o *observer, uids []types.UID, way string) error {
	r := &restart{Way: way, Clusters: len(uids)}
	before, err := b.processes(uids)
	if err != nil {
		return err
	}
	o.mu.Lock()
	o.notReady = nil
	o.mu.Unlock()
	end := b.manager.Stop
	if way == "SIGKILL" {
		end = b.manager.Kill
	}
	if err := end(); err != nil {
		return err
	}
	began := time.Now()
	if err := b.startManager(ctx); err != nil {
		return err
	}
	during, cancel := b.manager.During(ctx)
	defer cancel()
	err = until(during, func() error {
		for _, uid := range uids {
			holder, err := process.Holder(controlplane.Processes(b.dir(uid)))
			if err != nil || holder != b.manager.PID() {
				return fmt.Errorf("%s is held by %d: %w", b.dir(uid), holder, err)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.Attached = time.Since(began)
	if err := until(during, func() error { return b.checkProbed(during, len(uids)) }); err != nil {
		return err
	}
	r.Probed = time.Since(began)
	if err := measure.Pause(during, b.options.Watched); err != nil {
		return err
	}
	o.mu.Lock()
	r.NotReady = o.notReady
	o.mu.Unlock()
	after, err := b.processes(uids)
	if err != nil {
		return err
	}
	maps.DeleteFunc(after, func(component string, pid int) bool { return before[component] == pid })
	r.Replaced = len(after)
	b.results.Restarts = append(b.results.Restarts, r)
	b.Say("After %s: attached after %s, probed after %s", way, measure.Seconds(r.Attached), measure.Seconds(r.Probed))
	return nil
}

// checkProbed returns an error unless the manager has asked so many clusters how they are.
func (b *bench) checkProbed(ctx context.Context, n int) error {
	metrics, err := b.manager.Scrape(ctx)
	if err != nil {
		return err
	}
	if probed := len(metrics.By(probeMetric, "cluster")); probed < n {
		return fmt.Errorf("%d of %d clusters were probed", probed, n)
	}
	return nil
}

// processes returns the pids of all components of clusters.
func (b *bench) processes(uids []types.UID) (map[string]int, error) {
	all := map[string]int{}
	for _, uid := range uids {
		pids, err := components(b.dir(uid))
		if err != nil {
			return nil, err
		}
		for name, pid := range pids {
			all[string(uid)+"/"+name] = pid
		}
	}
	return all, nil
}
