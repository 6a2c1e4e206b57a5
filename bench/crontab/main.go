// Command crontab measures how late Jobs are when many schedules are due at the same second, on a control plane of its own:
// Jobs of CronTabs, in turns with Jobs of CronJobs, and with a floor in the same run: a plain client that creates the same
// Jobs. It also measures what idle CronTabs cost. All of it takes about an hour.
//
//	make bench-crontab
//	make bench-crontab ARGS='--sizes 500,2000 --rounds 5 --json results.json'
//	make bench-crontab ARGS='--sizes 2000 --peer-most 0 --before /tmp/keelson-before'
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	// floor: a client that has prepared the Jobs creates them when they are due, over all its connections.
	floor = "floor"
	// keelson: `keelson manager` creates them for CronTabs; before: another build of it.
	keelson = "CronTab"
	before  = "CronTab, before"
	// cronJobShipped: Kubernetes creates them for CronJobs, with default flags.
	cronJobShipped = "CronJob as shipped"
	// cronJob5 and cronJob50: the same without client-side throttling, with 5 workers, the default, and with 50.
	cronJob5  = "CronJob, 5 workers"
	cronJob50 = "CronJob, 50 workers"
	// idleEmpty and idleFull: keelson without CronTabs, and with many that are not due.
	idleEmpty = "without CronTabs"
	idleFull  = "with them"
)

// everybody are the contestants of bursts in the order of tables.
var everybody = []string{floor, keelson, before, cronJob50, cronJob5, cronJobShipped}

// The targets, with the sizes that they are about.
const (
	floorSize    = 2000
	floorLimit   = 1.15 // times the floor, until the last Job
	firstLimit   = 5.0  // milliseconds until the first Job
	peerLimit    = 3.0  // times as fast as CronJob without a throttle, until the last Job
	shippedSize  = 500  // also the largest size for CronJobs as shipped
	shippedLimit = 50.0 // times as fast as CronJob as shipped, half of the Jobs
	writesLimit  = 2.0  // a run
	busyLimit    = 0.1  // percent of a processor while idle
	memoryLimit  = 6.0  // kilobytes a CronTab
)

const (
	connections = 16
	// few is how many objects warm a contestant up.
	few = 16
	// quiet is how long nothing must be written for a contestant to be done.
	quiet = 2 * time.Second
)

// CronJobs are left out: they are due at full minutes only.
const quick = "--sizes=50 --rounds=1 --peer-most=0 --idle-crontabs=100 --idle=1s"

func main() { harness.Main("crontab", measure) }

type bench struct {
	*harness.Run
	*harness.Cluster
	sizes    *[]int
	peerMost int
	idleTabs int
	idle     time.Duration
	before   string       // another keelson
	kube     string       // keelson-kube
	model    *batchv1.Job // what the controller creates
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	b.sizes = r.Sizes("sizes", "schedules due at once", maxObjects, 100, 500, 2000, 10000)
	r.Flags.IntVar(&b.peerMost, "peer-most", 10000, "largest size for CronJobs; 0 leaves them out")
	r.Flags.IntVar(&b.idleTabs, "idle-crontabs", 10000, "CronTabs for requests, processor and memory; 0 leaves these out")
	r.Flags.DurationVar(&b.idle, "idle", 2*time.Minute, "how long to watch idle CronTabs")
	r.Flags.StringVar(&b.before, "before", "", "another keelson `program` to measure in the same run, such as an older one")
	if err := r.Parse(args, 3, quick); err != nil {
		return err
	}
	if b.kube, err = env.Binary("keelson-kube"); err != nil {
		return err
	}
	if b.Cluster, err = r.StartCluster(ctx, harness.APIOnly, connections); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	b.Counted = []string{"crontabs", "cronjobs", "jobs", "pods", "events"}
	if err := r.NoteVersions(ctx, b.Cluster); err != nil {
		return err
	}
	r.Note("lag is from the second at which all are due until an observer has seen the Job; no controller of Jobs runs")
	r.Note("the floor is a client with %d connections; medians of %d rounds in turns", connections, r.Rounds)

	if len(*b.sizes) > 0 {
		// The API server builds some of what it needs for a kind when it first meets an object of it. The Jobs of keelson are the
		// model of those of the floor.
		for _, contestant := range []string{keelson, floor} {
			if err := b.burst(ctx, &harness.Sample{Contestant: contestant, Size: 10 * few}); err != nil {
				return fmt.Errorf("warm up: %w", err)
			}
		}
	}
	for _, n := range *b.sizes {
		if err := r.InTurns(r.Rounds, n, b.contestants(n), "lag", func(s *harness.Sample) error { return b.burst(ctx, s) }); err != nil {
			return err
		}
	}
	if b.idleTabs > 0 {
		if err := b.measureIdle(ctx, idleEmpty, 0); err != nil {
			return err
		}
		if err := b.measureIdle(ctx, idleFull, b.idleTabs); err != nil {
			return err
		}
	}
	b.report()
	return nil
}

// contestants returns those of a size.
func (b *bench) contestants(n int) []string {
	contestants := []string{floor, keelson}
	if b.before != "" {
		contestants = append(contestants, before)
	}
	if n <= b.peerMost {
		contestants = append(contestants, cronJob50, cronJob5)
		if n <= shippedSize {
			contestants = append(contestants, cronJobShipped)
		}
	}
	return contestants
}

// start starts the controller of a contestant.
func (b *bench) start(ctx context.Context, contestant string) (*harness.Program, error) {
	switch contestant {
	case keelson, idleEmpty, idleFull:
		return b.StartManager(ctx, b.Binary, "crontab")
	case before:
		return b.StartManager(ctx, b.before, "crontab")
	}
	args := []string{
		"kube-controller-manager", "--kubeconfig=" + b.Kubeconfig, "--controllers=cronjob-controller",
		"--leader-elect=false", "--secure-port=0", "--profiling=false",
	}
	if contestant != cronJobShipped {
		args = append(args, "--kube-api-qps=100000", "--kube-api-burst=100000")
	}
	if contestant == cronJob50 {
		args = append(args, "--concurrent-cron-job-syncs=50")
	}
	isReady := func(line string) bool { return strings.Contains(line, "Starting cronjob controller") }
	return harness.StartProgram(ctx, contestant, b.kube, args, isReady)
}

// measureIdle looks at a manager with CronTabs that are due once a day.
func (b *bench) measureIdle(ctx context.Context, contestant string, n int) (err error) {
	b.Say("Watching a manager with %d CronTabs for %s", n, b.idle)
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	m, err := b.start(ctx, contestant)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop(), b.empty(context.WithoutCancel(ctx), namespace)) }()
	return m.During(ctx, func(ctx context.Context) error {
		s := b.NewSample(contestant, 0, b.idleTabs)
		began := time.Now()
		err := b.Each(ctx, n, func(ctx context.Context, writer harness.Connection, i int) error {
			return createDaily(ctx, writer, namespace, i, began.Add(12*time.Hour))
		})
		if err != nil {
			return err
		}
		_, last, err := b.AwaitQuiet(ctx, quiet)
		if err != nil {
			return err
		}
		s.SetTimes("steady", last.Sub(began))
		s.Requests, err = b.Idle(ctx, s, m, b.idle)
		return err
	})
}

func (b *bench) report() {
	all := b.Samples
	b.RatioTarget(fmt.Sprintf("%d due: last Job, in times of the floor", floorSize), "≤", floorLimit,
		all.Ratios(keelson, floor, floorSize, "lag", harness.Last))
	for _, n := range *b.sizes {
		b.Target(fmt.Sprintf("%d due: first Job", n), "≤", firstLimit, 1000*all.Of(keelson, n).Median("lag", harness.First), " ms",
			"the floor: "+harness.Milliseconds(all.Of(floor, n).Median("lag", harness.First)))
	}
	for _, peer := range []string{cronJob5, cronJob50} {
		b.RatioTarget(fmt.Sprintf("%d due: last Job, times as fast as %s", floorSize, peer), "≥", peerLimit,
			all.Ratios(peer, keelson, floorSize, "lag", harness.Last))
	}
	b.RatioTarget(fmt.Sprintf("%d due: half of the Jobs, times as fast as %s", shippedSize, cronJobShipped), "≥", shippedLimit,
		all.Ratios(cronJobShipped, keelson, shippedSize, "lag", harness.P50))
	if requests, runs := all.Requests(keelson); runs > 0 {
		b.Target("writes a run, events included", "≤", writesLimit, requests.Writes().Total()/float64(runs), "", requests.Each(runs))
	}
	for _, n := range *b.sizes {
		b.reportSize(n)
	}
	if b.idleTabs > 0 {
		b.reportIdle(all.Of(idleEmpty, b.idleTabs), all.Of(idleFull, b.idleTabs), b.idleTabs)
	}
}

func (b *bench) reportSize(n int) {
	b.Printf("\n## %d due at the same second\n", n)
	b.SampleTable(n, everybody, append(harness.Distribution("lag", harness.Milliseconds),
		harness.Column{Header: "× floor", Figure: "lag", Stat: harness.Last, Over: floor},
		harness.Column{Header: "p50 × CronTab", Figure: "lag", Stat: harness.P50, Over: keelson},
		harness.Column{Header: "last × CronTab", Figure: "lag", Stat: harness.Last, Over: keelson},
		harness.Column{Header: "steady", Figure: "steady", Stat: harness.Last, Format: harness.Seconds})...)
	b.Printf("\nProcessor time of the controller until it was steady, its memory then, and the requests of all rounds for a run:\n")
	b.SampleTable(n, everybody, append([]harness.Column{
		{Header: "processor", Figure: "processor", Stat: harness.Last, Format: harness.Seconds},
	}, harness.MemoryColumns...)...)
	b.Printf("\n")
	for _, contestant := range everybody {
		if requests, runs := b.Samples.Of(contestant, n).Requests(contestant); runs > 0 {
			b.Printf("- %s: %.2f writes: %s\n", contestant, requests.Writes().Total()/float64(runs), requests.Each(runs))
		}
	}
}

func (b *bench) reportIdle(empty, full harness.Samples, n int) {
	more := func(figure string) float64 {
		return (full.Median(figure, harness.Last) - empty.Median(figure, harness.Last)) / 1000 / float64(n)
	}
	requests, _ := full.Requests(idleFull)
	b.Target(fmt.Sprintf("%d idle CronTabs: requests in %s", n, b.idle), "≤", 0, requests.Total(), "", requests.Each(1))
	b.Target(fmt.Sprintf("%d idle CronTabs: share of a processor", n), "<", busyLimit, 100*full.Median("busy", harness.Last), " %", "")
	b.Target("memory (RSS) a CronTab", "<", memoryLimit, more("RSS"), " kB", fmt.Sprintf("live on the heap %.1f kB each", more("live heap")))
	b.Printf("\n## A manager and %d CronTabs that are due once a day\n", n)
	b.SampleTable(n, []string{idleEmpty, idleFull}, append([]harness.Column{
		{Header: "steady", Figure: "steady", Stat: harness.Last, Format: harness.Seconds},
	}, harness.IdleColumns...)...)
}
