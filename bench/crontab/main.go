// Command crontab measures how late Jobs are when many schedules are due at the same second, on a control plane of its own:
// Jobs of CronTabs, in turns with Jobs of CronJobs, and with a floor in the same run: a plain client that creates the same
// Jobs. All of it takes about two hours.
//
//	make bench-crontab
//	make bench-crontab ARGS='--sizes 500,2000 --rounds 5'
package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// The contestants.
const (
	// floor: a client that has prepared the Jobs creates them when they are due, over all its connections.
	floor = "floor"
	// keelson: `keelson manager` creates them for CronTabs.
	keelson = "CronTab"
	// cronJobShipped: Kubernetes creates them for CronJobs, with default flags.
	cronJobShipped = "CronJob as shipped"
	// cronJob5 and cronJob50: the same without client-side throttling, with 5 workers, the default, and with 50.
	cronJob5  = "CronJob, 5 workers"
	cronJob50 = "CronJob, 50 workers"
)

// everybody are the contestants of bursts in the order of tables.
var everybody = []string{floor, keelson, cronJob50, cronJob5, cronJobShipped}

// The targets, with the sizes that they are about.
const (
	floorSize    = 2000
	floorLimit   = 1.15 // times the floor, until the last Job of at least floorSize
	firstLimit   = 5.0  // milliseconds until the first Job
	peerLimit    = 3.0  // times as fast as CronJob without a throttle, until the last Job
	shippedSize  = 500  // also the largest size for CronJobs as shipped
	shippedLimit = 50.0 // times as fast as CronJob as shipped, half of the Jobs
	writesLimit  = 2.0  // a run
	writes       = "writes a run, events included"
)

const connections = 16

func main() { harness.Main("crontab", measure) }

type bench struct {
	*harness.Run
	*harness.Cluster
	sizes    *[]int
	peerMost int
	fleet    int           // schedules that are not due
	idleFor  time.Duration // how long a fleet is observed
	kube     string        // keelson-kube
	model    *batchv1.Job  // what the controller creates
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	b.sizes = r.Sizes("sizes", "schedules due at once", maxObjects, 500, 2000, 10000)
	r.Flags.IntVar(&b.peerMost, "peer-most", 10000, "largest size for CronJobs; 0 leaves them out")
	r.Flags.IntVar(&b.fleet, "fleet", 100000, "schedules of which none is due; 0 leaves this part out")
	r.Flags.DurationVar(&b.idleFor, "idle-for", time.Minute, "how long these are observed")
	// CronJobs take too long for a quick run: they are due at full minutes only.
	if err := r.Parse(args, 3, "--sizes=50 --rounds=1 --peer-most=0 --fleet=50 --idle-for=1s"); err != nil {
		return err
	}
	if b.kube, err = env.Binary("keelson-kube"); err != nil {
		return err
	}
	if b.Cluster, err = r.StartCluster(ctx, connections); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	b.Counted = []string{"crontabs", "cronjobs", "jobs", "pods", "events"}
	r.Note("times are from the second at which all are due until an observer has seen the Job; no controller of Jobs runs")
	r.Note("the floor is a client with %d connections; medians of %d rounds in turns", connections, r.Rounds)

	contest := harness.Contest{Start: b.start, Measure: b.measureBurst, Learn: b.learn, Empty: b.empty}
	for _, n := range *b.sizes {
		if err := r.InTurns(r.Rounds, n, b.contestants(n), "seen", func(s *harness.Sample) error { return b.Burst(ctx, s, contest) }); err != nil {
			return err
		}
	}
	if b.fleet > 0 {
		if err := r.InTurns(1, b.fleet, []string{keelson}, "ready", func(s *harness.Sample) error { return b.measureFleet(ctx, s) }); err != nil {
			return err
		}
	}
	b.report()
	return nil
}

// contestants returns those of a size.
func (b *bench) contestants(n int) []string {
	contestants := []string{keelson, floor} // which copies the Jobs of keelson
	if n <= b.peerMost {
		contestants = append(contestants, cronJob50, cronJob5)
	}
	if n <= min(b.peerMost, shippedSize) {
		contestants = append(contestants, cronJobShipped)
	}
	return contestants
}

// start starts the controller of a contestant; the floor has none.
func (b *bench) start(ctx context.Context, contestant string) (*harness.Program, error) {
	switch contestant {
	case floor:
		return nil, nil
	case keelson:
		return b.StartManager(ctx, "crontab")
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
	return b.StartProgram(ctx, contestant, "Starting cronjob controller", b.kube, args...)
}

func (b *bench) report() {
	b.Judge(
		harness.Target{Name: "2000 due: last Job, times as fast as CronJob with 5 workers", Limit: peerLimit, AtLeast: true, Contestant: cronJob5, Over: keelson, Size: floorSize, Figure: "seen", Stat: harness.Last},
		harness.Target{Name: "2000 due: last Job, times as fast as CronJob with 50 workers", Limit: peerLimit, AtLeast: true, Contestant: cronJob50, Over: keelson, Size: floorSize, Figure: "seen", Stat: harness.Last},
		harness.Target{Name: "500 due: half of the Jobs, times as fast as CronJob as shipped", Limit: shippedLimit, AtLeast: true, Contestant: cronJobShipped, Over: keelson, Size: shippedSize, Figure: "seen", Stat: harness.P50})
	for _, n := range *b.sizes {
		if n >= floorSize {
			b.Judge(harness.Target{Name: fmt.Sprintf("%d due: last Job, in times of the floor", n), Limit: floorLimit, Contestant: keelson, Over: floor, Size: n, Figure: "seen", Stat: harness.Last})
		}
		b.Judge(
			harness.Target{Name: fmt.Sprintf("%d due: first Job", n), Limit: firstLimit, Contestant: keelson, Size: n, Figure: "seen", Stat: harness.First, Unit: harness.MS},
			harness.Target{Name: fmt.Sprintf("%d due: %s", n, writes), Limit: writesLimit, Contestant: keelson, Size: n, Figure: "writes", Stat: harness.Last})
	}
	for _, n := range *b.sizes {
		b.Printf("\n## %d due at the same second\n\nProcessor time is that of the controller until it was steady, or of the floor until the last Job.\n", n)
		b.BurstTable(n, everybody, harness.BurstColumns(floor, keelson)...)
	}
	b.reportFleet()
}
