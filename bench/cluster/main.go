// Command cluster measures how long Clusters take from their creation until a watch sees them ready, and from their
// deletion until nothing is left; how much memory one takes; what a restart of the manager does to them; how long one takes
// to stop, to start again, to fork and to restore; and, with real nodes, until a Pod runs in it. Two contestants take turns with them in the same run: the floor, a shell script that starts the same components with the same
// flags and with certificates that exist before, to /readyz; and kwokctl with its binary runtime on the same components.
//
//	make bench-cluster
//	make bench-cluster ARGS='--sizes 1 --rounds 9 --json results.json'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keelson-dev/keelson/bench/cluster/floor"
	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	keelson = "keelson"
	script  = "floor: script"
	kwokctl = "kwokctl"
	// Idle clusters, and a manager that was started again after the end of another.
	keelsonIdle = "keelson, idle"
	kwokctlIdle = "kwokctl, idle"
	afterTerm   = "after SIGTERM"
	afterKill   = "after SIGKILL"
)

// The targets.
const (
	floorLimit  = 1.2 // times the script
	peerLimit   = 1.5 // times faster than kwokctl
	goneLimit   = 1.0 // seconds, one cluster
	memoryLimit = 450 // MB, one cluster
	againLimit  = 2.5 // seconds
	forkLimit   = 1.3 // times an empty one
	podLimit    = 6.0 // seconds, with real nodes
	realGone    = 3.0 // seconds, with real nodes
	nodeLimit   = 250 // MB, a real node besides its Pods
)

// maxClusters keeps a mistyped number from using up the memory of a machine.
const maxClusters = 32

// componentNames are the components of a cluster, in the order of tables.
var componentNames = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"}

const quick = "--sizes=1 --rounds=1 --peer=false --memory=1 --idle=0s --restart=1 --watched=0s --life=1 --real=1"

func main() { harness.Main("cluster", measure) }

type bench struct {
	*harness.Run
	host          *harness.Cluster // where the Clusters are objects
	base          string           // directory of everything that is measured
	manager       *harness.Program
	model         *floor.Model // of the script
	peer          *peer        // nil without
	sizes, memory *[]int
	restarts      int // how many clusters meet them
	idle, watched time.Duration
	lives, real   int
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	dir, hasPeer := "", true
	b.sizes = r.Sizes("sizes", "clusters created at once", maxClusters, 1, 3, 8)
	b.memory = r.Sizes("memory", "clusters side by side whose memory is measured", maxClusters, 1, 8)
	r.Flags.BoolVar(&hasPeer, "peer", true, "also measure kwokctl, which is built from its module")
	r.Flags.DurationVar(&b.idle, "idle", 30*time.Second, "how long to leave clusters alone before their memory is measured")
	r.Flags.IntVar(&b.restarts, "restart", 8, "clusters during a restart of the manager; 0 leaves it out")
	r.Flags.DurationVar(&b.watched, "watched", 15*time.Second, "how long to watch them after it")
	r.Flags.IntVar(&b.lives, "life", 5, "how often to take one cluster through everything that can be done with it")
	r.Flags.IntVar(&b.real, "real", 2, "real nodes of a cluster, each of those times; 0 leaves them out")
	r.Flags.StringVar(&dir, "dir", os.TempDir(), "`directory` for the data, on the disk to measure with")
	if err := r.Parse(args, 5, quick); err != nil {
		return err
	}
	if b.base, err = os.MkdirTemp(dir, "bench-cluster-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.base)) }()
	if b.host, err = r.StartCluster(ctx, harness.APIOnly, 8); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.host.Stop()) }()
	if err := b.prepare(ctx, hasPeer); err != nil {
		return err
	}
	// Whatever happened: clusters outlive the manager, and this program.
	defer func() { err = errors.Join(err, b.manager.Stop(), b.endAll(context.WithoutCancel(ctx))) }()
	if err := b.startManager(ctx); err != nil {
		return err
	}
	if err := b.makeModel(ctx); err != nil {
		return fmt.Errorf("make the script: %w", err)
	}
	if err := b.measureAll(ctx); err != nil {
		return err
	}
	b.report()
	return nil
}

// measureAll measures what the flags ask for, one thing after the other.
func (b *bench) measureAll(ctx context.Context) error {
	contestants := []string{keelson, script}
	if b.peer != nil {
		contestants = append(contestants, kwokctl)
	}
	run := map[string]func(context.Context, *harness.Sample) error{keelson: b.runKeelson, script: b.runFloor, kwokctl: b.runPeer}
	for _, n := range *b.sizes {
		err := b.InTurns(b.Rounds, n, contestants, "ready", func(s *harness.Sample) error { return run[s.Contestant](ctx, s) })
		if err != nil {
			return err
		}
	}
	for _, n := range *b.memory {
		if err := b.measureMemory(ctx, n); err != nil {
			return fmt.Errorf("memory of %d clusters: %w", n, err)
		}
	}
	if b.peer != nil && slices.Contains(*b.memory, 1) {
		if err := b.measurePeerMemory(ctx); err != nil {
			return fmt.Errorf("memory of kwokctl: %w", err)
		}
	}
	if b.restarts > 0 {
		if err := b.measureRestarts(ctx); err != nil {
			return fmt.Errorf("restart of the manager: %w", err)
		}
	}
	for i := range b.lives {
		if err := b.measureLife(ctx, i); err != nil {
			return fmt.Errorf("the life of a cluster: %w", err)
		}
		if b.real > 0 {
			if err := b.measureRealNodes(ctx, i); err != nil {
				return fmt.Errorf("a cluster with real nodes: %w", err)
			}
		}
	}
	return nil
}

// prepare notes the versions, and builds the peer.
func (b *bench) prepare(ctx context.Context, hasPeer bool) error {
	version, err := b.FindKeelson(ctx)
	if err != nil {
		return err
	}
	kube, err := env.Binary("keelson-kube")
	if err != nil {
		return err
	}
	if kube, err = filepath.Abs(kube); err != nil {
		return err
	}
	components, err := harness.ComponentVersions(ctx, kube)
	if err != nil {
		return err
	}
	b.Note("keelson %s; components: %s; one binary, the same for all", version, components)
	b.Note("data on %s, with fsync; %d rounds in turns; /readyz is polled every %s", harness.FileSystem(ctx, b.base), b.Rounds, floor.PollInterval)
	if b.real > 0 {
		if err := b.prepareRealNodes(ctx, kube); err != nil {
			return err
		}
	}
	if !hasPeer {
		return nil
	}
	b.peer, err = newPeer(ctx, filepath.Join(b.base, "kwokctl"), kube)
	if err == nil {
		b.Note("kwokctl %s", b.peer.version)
	}
	return err
}

// runFloor measures scripts from the start of the first shell to /readyz of each.
func (b *bench) runFloor(ctx context.Context, s *harness.Sample) (err error) {
	dir := filepath.Join(b.base, "floor")
	floors := make([]*floor.Floor, s.Size)
	defer func() {
		for _, f := range floors {
			err = errors.Join(err, f.Stop())
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	for i := range floors {
		if floors[i], err = b.model.Prepare(filepath.Join(dir, fmt.Sprint(i)), true); err != nil {
			return err
		}
	}
	ready := make([]time.Duration, s.Size)
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for i, f := range floors {
		group.Go(func() error {
			if err := f.Start(); err != nil {
				return err
			}
			err := f.AwaitReady(ctx)
			ready[i] = time.Since(began)
			return err
		})
	}
	err = group.Wait()
	s.SetTimes("ready", ready...)
	return err
}

func (b *bench) report() {
	all := b.Samples
	for _, n := range *b.sizes {
		b.RatioTarget(fmt.Sprintf("%d created to ready, in times of the script", n), "≤", floorLimit, all.Ratios(keelson, script, n, "ready", harness.Last))
		b.RatioTarget(fmt.Sprintf("%d: kwokctl, in times of ours", n), "≥", peerLimit, all.Ratios(kwokctl, keelson, n, "ready", harness.Last))
	}
	if one := all.Of(keelson, 1); len(one) > 0 {
		b.Target("1 deleted until nothing is left", "<", goneLimit, one.Median("gone", harness.Last), " s", "")
	}
	for _, n := range *b.memory {
		b.Target(fmt.Sprintf("memory (PSS) a cluster, %d side by side", n), "<", memoryLimit, all.Of(keelsonIdle, n).Median("all", harness.Last)/1e6, " MB", "the largest")
	}
	for _, way := range []string{afterTerm, afterKill} {
		if of := all.Of(way, b.restarts); len(of) > 0 {
			b.Target(fmt.Sprintf("manager restarted %s, %d clusters: seen not ready, or components replaced", way, b.restarts), "≤", 0,
				of.Median("not ready", harness.Last)+of.Median("replaced", harness.Last), "", "")
		}
	}
	b.reportLife()
	for _, n := range *b.sizes {
		b.Printf("\n## %d created at once\n", n)
		b.SampleTable(n, []string{keelson, script, kwokctl},
			harness.Column{Header: "first ready", Figure: "ready", Stat: harness.First, Format: harness.Seconds},
			harness.Column{Header: "all ready", Figure: "ready", Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "× script", Figure: "ready", Stat: harness.Last, Over: script},
			harness.Column{Header: "× keelson", Figure: "ready", Stat: harness.Last, Over: keelson},
			harness.Column{Header: "all deleted", Figure: "gone", Stat: harness.Last, Format: harness.Seconds})
	}
	if len(*b.memory) > 0 {
		b.Printf("\n## Memory (PSS) of a cluster after %s\n\nMedians of all side by side. All processes share one program file, as does the control plane of the Clusters.\n", b.idle)
	}
	var columns []harness.Column
	for _, name := range append(componentNames, "shims", "all") {
		columns = append(columns, harness.Column{Header: name, Figure: name, Stat: harness.P50, Format: harness.Megabytes})
	}
	for _, n := range *b.memory {
		b.Printf("\n%d side by side:\n", n)
		b.SampleTable(n, []string{keelsonIdle, kwokctlIdle}, columns...)
	}
	if b.restarts > 0 {
		b.Printf("\n## A new manager with %d clusters\n\nFrom the start of its process; watched for %s after that.\n", b.restarts, b.watched)
		b.SampleTable(b.restarts, []string{afterTerm, afterKill},
			harness.Column{Header: "all attached", Figure: "attached", Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "all probed", Figure: "probed", Stat: harness.Last, Format: harness.Seconds},
			harness.Column{Header: "seen not ready", Figure: "not ready", Stat: harness.Last, Format: harness.Number},
			harness.Column{Header: "components replaced", Figure: "replaced", Stat: harness.Last, Format: harness.Number})
	}
}
