// Command cluster measures how long Clusters take from their creation until a watch sees them ready, and from their
// deletion until nothing is left; and how much memory one takes. Two contestants take turns with them in the same
// run: the floor, a shell script that starts the same components with the same flags and with certificates that exist
// before, to /readyz; and kwokctl with its binary runtime on the same components. Clusters of the engine hosted, in Pods of a real node, take
// turns with them, too.
//
//	make bench-cluster
//	make bench-cluster ARGS='--sizes 1 --rounds 9'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// The contestants.
const (
	keelson = "keelson"
	hosted  = "engine hosted"
	script  = "floor: script"
	kwokctl = "kwokctl"
)

// The targets.
const (
	floorLimit  = 1.2 // times the script
	peerLimit   = 1.5 // times faster than kwokctl
	goneLimit   = 1.0 // seconds, one cluster
	memoryLimit = 450 // MB, one cluster
	hostedLimit = 350 // MB, one control plane in Pods
	podsLimit   = 6.0 // seconds, one control plane in Pods
)

// maxClusters keeps a mistyped number from using up the memory of a machine.
const maxClusters = 32

func main() { harness.Main("cluster", measure) }

// contestant are clusters that a program of its own starts.
type contestant interface {
	// start starts s.Size clusters at once and sets the figure "ready".
	start(ctx context.Context, s *harness.Sample) error
	// pids returns all processes, once all components run.
	pids(ctx context.Context) ([]int, error)
	// stop removes all clusters. It may set the figure "gone".
	stop(ctx context.Context, s *harness.Sample) error
}

// objectName is the name of the i-th cluster.
func objectName(i int) string { return fmt.Sprintf("bench-%d", i) }

type bench struct {
	*harness.Run
	base  string // directory of everything that is measured
	sizes *[]int
	idle  time.Duration
	// all are the contestants by name, names those in the order of tables.
	all   map[string]contestant
	names []string
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r, names: []string{keelson, script}, all: map[string]contestant{}}
	dir, hasPeer, hasHosted := "", true, true
	b.sizes = r.Sizes("sizes", "clusters created at once", maxClusters, 1, 3, 8)
	r.Flags.BoolVar(&hasPeer, "peer", true, "also measure kwokctl, which is built from its module")
	r.Flags.BoolVar(&hasHosted, "hosted", true, "also measure the engine hosted, on a real node, which needs root")
	r.Flags.DurationVar(&b.idle, "idle", 30*time.Second, "how long to leave the clusters of the first round alone before their memory is measured")
	r.Flags.StringVar(&dir, "dir", os.TempDir(), "`directory` for the data, on the disk to measure with")
	if err := r.Parse(args, 5, "--sizes=1 --rounds=1 --peer=false --hosted=false --idle=0s"); err != nil {
		return err
	}
	if b.base, err = os.MkdirTemp(dir, "bench-cluster-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.base)) }()
	host, err := r.StartCluster(ctx, 8)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Stop()) }()
	b.Note("data of the clusters in %s, with fsync; %d rounds in turns; /readyz is polled every %s", b.base, b.Rounds, pollInterval)
	if hasPeer {
		if b.all[kwokctl], err = b.newPeer(ctx, host, filepath.Join(b.base, "kwokctl")); err != nil {
			return err
		}
		b.names = append(b.names, kwokctl)
	}
	if hasHosted {
		var pods *hostedClusters
		if pods, err = b.newHosted(ctx, host.Keelson); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, pods.kill()) }()
		b.all[hosted], b.names = pods, append(b.names, hosted)
	}
	ours := &clusters{host: host, stateDir: filepath.Join(b.base, "state")}
	b.all[keelson] = ours
	manager, err := host.StartManager(ctx, "cluster,kubeconfig", "--state-dir="+ours.stateDir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.kill()) }()
	err = manager.Use(ctx, func(ctx context.Context, _ int) error {
		if err := b.burst(ctx, &harness.Sample{Contestant: keelson, Size: 1, Round: -1}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
		for _, n := range *b.sizes {
			if err := b.InTurns(b.Rounds, n, b.names, "ready", func(s *harness.Sample) error { return b.burst(ctx, s) }); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		b.report()
	}
	return err
}

// burst measures clusters from nothing to nothing.
func (b *bench) burst(ctx context.Context, s *harness.Sample) error {
	c := b.all[s.Contestant]
	err := c.start(ctx, s)
	if err == nil && s.Round == 0 {
		err = b.measureMemory(ctx, s, c)
	}
	if ours, isOurs := c.(*clusters); err == nil && isOurs && b.all[script] == nil { // to warm up
		b.all[script], err = newScripts(ctx, ours, filepath.Join(b.base, "floor"))
	}
	return errors.Join(err, c.stop(ctx, s))
}

// measureMemory measures clusters that have been left alone for a while.
func (b *bench) measureMemory(ctx context.Context, s *harness.Sample, c contestant) error {
	if err := harness.Pause(ctx, b.idle); err != nil {
		return err
	}
	pids, err := c.pids(ctx)
	if err != nil {
		return err
	}
	memory, err := harness.MemoryOf(pids...)
	s.Set("memory", memory/float64(s.Size))
	return err
}

func (b *bench) report() {
	for _, n := range *b.sizes {
		b.Judge(
			harness.Target{Name: fmt.Sprintf("%d created to ready, in times of the script", n), Limit: floorLimit, Contestant: keelson, Over: script, Size: n, Figure: "ready", Stat: harness.Last},
			harness.Target{Name: fmt.Sprintf("%d: kwokctl, in times of ours", n), Limit: peerLimit, AtLeast: true, Contestant: kwokctl, Over: keelson, Size: n, Figure: "ready", Stat: harness.Last},
			harness.Target{Name: fmt.Sprintf("%d: memory (PSS) of each", n), Limit: memoryLimit, Contestant: keelson, Size: n, Figure: "memory", Stat: harness.Last, Unit: harness.MB, Note: "components and shims"})
	}
	b.Judge(
		harness.Target{Name: "1 in Pods created to ready", Limit: podsLimit, Contestant: hosted, Size: 1, Figure: "ready", Stat: harness.Last, Unit: harness.S},
		harness.Target{Name: "1 in Pods: memory (PSS)", Limit: hostedLimit, Contestant: hosted, Size: 1, Figure: "memory", Stat: harness.Last, Unit: harness.MB, Note: "containers and shims"})
	b.Judge(harness.Target{Name: "1 deleted until nothing is left", Limit: goneLimit, Contestant: keelson, Size: 1, Figure: "gone", Stat: harness.Last, Unit: harness.S})
	for _, n := range *b.sizes {
		b.Printf("\n## %d created at once\n\nMemory (PSS) is that of each after %s. All share one program file.\n", n, b.idle)
		b.SampleTable(n, b.names,
			harness.Column{Header: "first ready", Figure: "ready", Stat: harness.First, Format: harness.Seconds},
			harness.Column{Header: "all ready", Figure: "ready", Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "× script", Figure: "ready", Stat: harness.Last, Over: script},
			harness.Column{Header: "× keelson", Figure: "ready", Stat: harness.Last, Over: keelson},
			harness.Column{Header: "all deleted", Figure: "gone", Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "memory", Figure: "memory", Stat: harness.Last, Format: harness.Megabytes},
			harness.Column{Header: "× script", Figure: "memory", Stat: harness.Last, Over: script},
			harness.Column{Header: "× keelson", Figure: "memory", Stat: harness.Last, Over: keelson})
	}
}
