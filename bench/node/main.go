// Command node measures, on a real node of its own, how long after the due time of a CronTab the program in its container
// runs, in turns with a CronJob on the same node, and with a floor in the same run: containerd's own client, `ctr run`,
// started at that time. It also measures how long one node and three nodes take to start, and the memory of one.
//
// CronJobs are due at full minutes only, so each round takes a minute for each size. It needs root, and `make node`.
//
//	make bench-node
//	make bench-node ARGS='--sizes 1 --rounds 5 --json results.json'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/bench/internal/realnode"
	"github.com/keelson-dev/keelson/internal/controlplane"
	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	// floor: containerd's own client is started at that second.
	floor = "ctr run"
	// keelson: `keelson manager` creates Jobs for CronTabs.
	keelson = "CronTab"
	// cronJob: Kubernetes creates them for CronJobs.
	cronJob = "CronJob"
	// The node when it starts, and when it is idle.
	starting      = "start of the node"
	startingThree = "start of three nodes"
	emptyNode     = "without Pods"
	fullNode      = "with Pods"
)

// The targets.
const (
	jobLimit     = 10.0   // milliseconds until the Job, with one due
	aboveLimit   = 1000.0 // milliseconds above ctr run until the container runs, with one due
	cronJobLimit = 1.0    // times CronJob
	startLimit   = 5.0    // seconds
	threeLimit   = 1.5    // times the start of one node
	memoryLimit  = 200.0  // megabytes of a node without Pods
	podLimit     = 20.0   // megabytes of a Pod besides its containers
)

const (
	writers       = 8
	maxContainers = 100 // a node has 110 Pods
	waitTimeout   = 3 * time.Minute
	// image is what the containers run: the program started.
	image = "docker.io/library/bench-started:v1"
)

// CronJobs are left out: they are due at full minutes only.
const quick = "--sizes=2 --rounds=1 --cronjobs=false --starts=1 --pods=1 --idle=1s --rest=3s"

func main() { harness.Main("node", measure) }

type bench struct {
	*harness.Run
	*harness.Cluster
	sizes      *[]int
	pods       int
	idle, rest time.Duration
	machine    node.Machine
	node       *realNode
	floors     int // containers that the floor has had
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	hasCronJobs, starts := true, 0
	b.sizes = r.Sizes("sizes", "containers due at the same second", maxContainers, 1, 10)
	r.Flags.BoolVar(&hasCronJobs, "cronjobs", true, "also measure CronJob")
	r.Flags.IntVar(&starts, "starts", 5, "how often to start a node, at least once")
	r.Flags.IntVar(&b.pods, "pods", 10, "Pods for the memory of the node")
	r.Flags.DurationVar(&b.idle, "idle", 30*time.Second, "how long to leave the node alone before its memory is measured")
	r.Flags.DurationVar(&b.rest, "rest", 8*time.Second, "how long the node is idle before anything is due, at least")
	if err := r.Parse(args, 15, quick); err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "keelson-bench-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if err := b.prepare(ctx, folder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stopNode()) }()
	for i := range max(1, starts) {
		for _, contestant := range []string{startingThree, starting} { // the rest is measured with one
			if err := b.startNodes(ctx, r.NewSample(contestant, i, 1)); err != nil {
				return err
			}
		}
	}
	if err := b.noteVersions(ctx); err != nil {
		return err
	}
	if err := b.loadImage(ctx, folder); err != nil {
		return err
	}
	if err := b.measureMemory(ctx); err != nil {
		return err
	}
	// CronTab and ctr run need not wait for a full minute, so they have two turns in each round.
	contestants := []string{floor, keelson, floor, keelson}
	if hasCronJobs {
		contestants = append(contestants, cronJob)
	}
	if err := b.measureBursts(ctx, contestants); err != nil {
		return err
	}
	b.report()
	return nil
}

// prepare finds the programs, and builds the one that containers run.
func (b *bench) prepare(ctx context.Context, folder string) error {
	kube, err := env.Binary("keelson-kube")
	if err != nil {
		return err
	}
	b.machine = node.Look(filepath.Join(filepath.Dir(kube), "node"))
	missing := b.machine.Missing()
	for _, name := range []string{"nsenter", filepath.Join(b.machine.Programs, "ctr")} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("this machine cannot run the benchmark; missing: %s", strings.Join(missing, "; "))
	}
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(folder, "started"),
		"github.com/keelson-dev/keelson/bench/node/started")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the program of the containers: %w: %s", err, output)
	}
	return nil
}

// startNodes starts a control plane with nodes in place of the one before, and measures how long each node takes.
func (b *bench) startNodes(ctx context.Context, s *harness.Sample) (err error) {
	if err := b.stopNode(); err != nil {
		return err
	}
	var lock sync.Mutex // nodes start at the same time
	var took []time.Duration
	opts := controlplane.Options{RealNode: &b.machine, RealNodes: 1, Progress: func(step controlplane.Step) {
		lock.Lock()
		defer lock.Unlock()
		if strings.HasPrefix(step.Name, "node") && step.Done {
			took = append(took, step.Took)
			s.SetTimes("ready", took...)
		}
	}}
	if s.Contestant == startingThree {
		opts.RealNodes = 3
	}
	if b.Cluster, err = b.StartCluster(ctx, opts, writers); err != nil {
		return err
	}
	b.node, err = findNode(ctx, b.Dir)
	return err
}

func (b *bench) stopNode() error {
	if b.Cluster == nil {
		return nil
	}
	stop := b.Stop
	b.Cluster = nil
	return stop()
}

func (b *bench) loadImage(ctx context.Context, folder string) error {
	load := exec.CommandContext(ctx, b.Binary, "image", "load", "--data-dir", b.Dir, "--name", image, folder)
	load.Env = append(os.Environ(), "KEELSON_NODE="+b.machine.Programs)
	if output, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("load the image: %w: %s", err, output)
	}
	return nil
}

func (b *bench) noteVersions(ctx context.Context) error {
	if err := b.NoteVersions(ctx, b.Cluster); err != nil {
		return err
	}
	containerd, err := b.inside(ctx, programs+"ctr", "--version").Output()
	if err != nil {
		return fmt.Errorf("find the version of ctr: %w", err)
	}
	runtime, err := harness.FirstLine(ctx, b.machine.Runtime, "--version")
	b.Note("%s, %s", strings.TrimSpace(string(containerd)), runtime)
	b.Note("times are from the second at which all are due until the program in the container runs, by the clock that it sees; " +
		"`ctr run` is started at that second, without kubelet, a sandbox or a network")
	b.Note("%d rounds in turns", b.Rounds)
	return err
}

// measureBursts measures one size after the other.
func (b *bench) measureBursts(ctx context.Context, contestants []string) (err error) {
	if len(*b.sizes) == 0 {
		return nil
	}
	m, err := b.StartManager(ctx, b.Binary, "crontab")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	return m.During(ctx, func(ctx context.Context) error {
		burst := func(s *harness.Sample) error {
			ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
			defer cancel()
			if s.Contestant == floor {
				return b.burstOfFloor(ctx, s)
			}
			return b.burstOfSchedules(ctx, s)
		}
		for _, contestant := range []string{floor, keelson} { // whatever is done the first time
			if err := burst(&harness.Sample{Contestant: contestant, Size: 1}); err != nil {
				return fmt.Errorf("warm up with %s: %w", contestant, err)
			}
		}
		for _, n := range *b.sizes {
			if err := b.InTurns(b.Rounds, n, contestants, "running", burst); err != nil {
				return err
			}
		}
		return nil
	})
}

var errTimeout = fmt.Errorf("the time limit of the benchmark is over, %s", waitTimeout)

func (b *bench) report() {
	all := b.Samples
	running := func(contestant string, n int) []float64 { return all.Of(contestant, n).Pool("running") }
	if ours := all.Of(keelson, 1); len(ours) > 0 {
		b.Target("1 due: Job of a CronTab", "≤", jobLimit, 1000*ours.Median("Job", harness.P50), " ms", "")
		runs, least := harness.P50(running(keelson, 1)), harness.P50(running(floor, 1))
		b.Target("1 due: its container runs, above ctr run", "≤", aboveLimit, 1000*(runs-least), " ms",
			fmt.Sprintf("p50 %s, and ctr run %s", harness.Milliseconds(runs), harness.Milliseconds(least)))
	}
	for _, n := range *b.sizes {
		b.RatioTarget(fmt.Sprintf("%d due: container of a CronTab runs, in times of CronJob", n), "<", cronJobLimit,
			all.Ratios(keelson, cronJob, n, "running", harness.P50))
	}
	start := harness.NewSpread(all.Of(starting, 1).Pool("ready"))
	b.Target("start of the node, until it is ready", "≤", startLimit, start.Median, " s", fmt.Sprintf("from %.2f to %.2f", start.Min, start.Max))
	b.RatioTarget("start of three nodes, until all are ready, in times of one", "≤", threeLimit,
		all.Ratios(startingThree, starting, 1, "ready", harness.Last))
	pss := func(contestant string, parts ...string) (sum float64) {
		for _, part := range parts {
			sum += all.Of(contestant, b.pods).Median(part, harness.Last)
		}
		return sum
	}
	b.Target("memory of the node without Pods", "<", memoryLimit, pss(emptyNode, realnode.Always...)/1e6, " MB", "PSS")
	b.Target("memory of a Pod besides its containers", "<", podLimit, pss(fullNode, realnode.PerPod...)/1e6/float64(b.pods), " MB", "PSS")

	for _, n := range *b.sizes {
		b.Printf("\n## %d due at the same second\n\nThe container runs after, over all rounds (ratios are medians of the rounds):\n", n)
		var rows [][]string
		for _, contestant := range []string{floor, keelson, cronJob} {
			lags := running(contestant, n)
			row := []string{contestant, fmt.Sprint(len(lags))}
			for _, stat := range []harness.Stat{harness.First, harness.P50, harness.P99, harness.Last} {
				row = append(row, harness.Milliseconds(stat(lags)))
			}
			for _, other := range []string{floor, cronJob} {
				row = append(row, harness.Ratio(all.Ratios(contestant, other, n, "running", harness.P50).Median))
			}
			if len(lags) > 0 {
				rows = append(rows, row)
			}
		}
		b.Table([]string{"", "containers", "first", "p50", "p99", "last", "× ctr run", "× CronJob"}, rows)
		b.Printf("\nHalf of them after:\n")
		var stages []harness.Column
		for _, stage := range []string{job, pod, bound, "running"} {
			stages = append(stages, harness.Column{Header: stage, Figure: stage, Stat: harness.P50, Format: harness.Milliseconds})
		}
		b.SampleTable(n, []string{keelson, cronJob}, stages...)
	}
	b.Printf("\n## The node\n\nMemory (PSS) when idle for %s, with %d Pods or without:\n", b.idle, b.pods)
	var rows [][]string
	for _, part := range append(slices.Concat(realnode.Always, realnode.PerPod), "all") {
		of := []string{part}
		if part == "all" {
			of = slices.Concat(realnode.Always, realnode.PerPod)
		}
		empty, full := pss(emptyNode, of...), pss(fullNode, of...)
		rows = append(rows, []string{part, harness.Megabytes(empty), harness.Megabytes(full), harness.Megabytes((full - empty) / float64(b.pods))})
	}
	b.Table([]string{"", emptyNode, fullNode, "a Pod"}, rows)
}
