package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/cache"

	"github.com/keelson-dev/keelson/bench/internal/harness"
	informers "github.com/keelson-dev/keelson/client/informers/externalversions/stable/v1"
)

// The targets of a fleet.
const (
	fleetReady = 60.0   // seconds after a start
	fleetHeap  = 3000.0 // bytes each; 1300 of them are the object and its template
	fleetIdle  = 0.005  // of a processor
)

// measureFleet measures a controller with many schedules of which none is due. It sets the figures "ready", how long after its start the
// controller had looked at all of them; "informed", the floor of that; "idle", the part of a processor that it uses from then on; "requests", how many it makes; and
// "memory" and "heap", what each schedule takes.
func (b *bench) measureFleet(ctx context.Context, s *harness.Sample) error {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	var empty, full usage
	create := func(ctx context.Context, p *harness.Program) (err error) {
		if empty, err = b.idle(ctx, p); err != nil {
			return err
		}
		if err := createSchedule(ctx, b.Writers[0], s.Contestant, namespace, fleetName(0), time.Now().AddDate(0, 6, 0)); err != nil {
			return err
		}
		_, _, err = b.AwaitQuiet(ctx, harness.Quiet)
		return err
	}
	if err := b.with(ctx, s.Contestant, create); err != nil {
		return err
	}
	if err := b.copyFleet(ctx, s, namespace); err != nil {
		return err
	}
	if err := b.inform(ctx, s, namespace); err != nil {
		return err
	}
	began := time.Now() // of a new leader, or of another version: all have a status
	observe := func(ctx context.Context, p *harness.Program) error {
		last, err := p.AwaitIdle(ctx, harness.Quiet)
		if err != nil {
			return err
		}
		s.SetTimes("ready", last.Sub(began))
		full, err = b.idle(ctx, p)
		return err
	}
	if err := b.with(ctx, s.Contestant, observe); err != nil {
		return err
	}
	s.Set("idle", full.processor)
	s.Writes = full.requests
	s.Set("requests", full.requests.Sum())
	s.Set("memory", (full.memory-empty.memory)/float64(s.Size))
	s.Set("heap", (full.heap-empty.heap)/float64(s.Size))
	return nil
}

// inform sets the figure "informed": how long an informer takes until it has all schedules, which is the floor of a start.
func (b *bench) inform(ctx context.Context, s *harness.Sample, namespace string) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	informer := informers.NewCronTabInformer(b.Observer.Keelson, namespace, 0, nil)
	began := time.Now()
	go informer.RunWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return context.Cause(ctx)
	}
	s.SetTimes("informed", time.Since(began))
	return nil
}

// with does work while the controller of a contestant runs.
func (b *bench) with(ctx context.Context, contestant string, work func(context.Context, *harness.Program) error) error {
	controller, err := b.start(ctx, contestant)
	if err != nil {
		return err
	}
	return controller.Use(ctx, func(ctx context.Context, _ int) error { return work(ctx, controller) })
}

// usage is what a controller uses while nothing happens.
type usage struct {
	processor    float64 // of one
	memory, heap float64
	requests     harness.Writes
}

// idle measures a controller while nothing happens.
func (b *bench) idle(ctx context.Context, p *harness.Program) (u usage, err error) {
	before, err := b.Requests(ctx)
	if err != nil {
		return u, err
	}
	used := harness.ProcessorTime(p.PID())
	if err := harness.Pause(ctx, b.idleFor); err != nil {
		return u, err
	}
	u.processor = (harness.ProcessorTime(p.PID()) - used) / b.idleFor.Seconds()
	after, err := b.Requests(ctx)
	if err != nil {
		return u, err
	}
	u.requests = after.Since(before)
	if u.memory, err = harness.MemoryOf(p.PID()); err != nil {
		return u, err
	}
	u.heap, err = p.LiveHeap(ctx)
	return u, err
}

// fleetName is the name of the i-th schedule of a fleet.
func fleetName(i int) string { return fmt.Sprintf("idle-%06d", i) }

// copiesAtOnce is the number of writes in a transaction of etcd, of 128 at most.
const copiesAtOnce = 100

// copyFleet copies the first CronTab, with its status, as often as needed. It writes to etcd: the API server would take half an hour to
// validate 100 000.
func (b *bench) copyFleet(ctx context.Context, s *harness.Sample, namespace string) error {
	first, err := b.Observer.Keelson.StableV1().CronTabs(namespace).Get(ctx, fleetName(0), metav1.GetOptions{})
	if err != nil {
		return err
	}
	prefix := "/registry/stable.example.com/crontabs/" + namespace + "/"
	stored, err := b.etcdctl(ctx, "", "get", "--print-value-only", prefix+fleetName(0))
	if err != nil {
		return err
	}
	group, copying := errgroup.WithContext(ctx)
	group.SetLimit(runtime.NumCPU())
	for from := 1; from < s.Size; from += copiesAtOnce {
		group.Go(func() error {
			transaction := "\n"
			for i := from; i < min(from+copiesAtOnce, s.Size); i++ {
				value := strings.NewReplacer(fleetName(0), fleetName(i), string(first.UID), string(uuid.NewUUID())).Replace(stored)
				transaction += fmt.Sprintf("put %s%s %q\n", prefix, fleetName(i), strings.TrimSpace(value))
			}
			_, err := b.etcdctl(copying, transaction+"\n\n", "txn")
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	last := fleetName(s.Size - 1)
	_, err = b.Observer.Keelson.StableV1().CronTabs(namespace).Get(ctx, last, metav1.GetOptions{})
	return err
}

// etcdctl runs a command for the etcd of the control plane, and returns its output.
func (b *bench) etcdctl(ctx context.Context, input string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, b.kube, append([]string{"etcdctl", "--endpoints=unix://etcd:0"}, args...)...)
	command.Dir, command.Stdin = filepath.Join(b.Dir, "sockets"), strings.NewReader(input)
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("etcdctl %s: %w", args[0], err)
	}
	return string(output), nil
}

// reportFleet adds the targets and the table of fleets.
func (b *bench) reportFleet() {
	if b.fleet == 0 {
		return
	}
	b.Judge(
		harness.Target{Name: fmt.Sprintf("%d: ready after a start", b.fleet), Limit: fleetReady, Contestant: keelson, Size: b.fleet, Figure: "ready", Stat: harness.Last, Unit: harness.S},
		harness.Target{Name: fmt.Sprintf("%d: heap of each, in bytes", b.fleet), Limit: fleetHeap, Contestant: keelson, Size: b.fleet, Figure: "heap", Stat: harness.Last},
		harness.Target{Name: fmt.Sprintf("%d: part of a processor while nothing is due", b.fleet), Limit: fleetIdle, Contestant: keelson, Size: b.fleet, Figure: "idle", Stat: harness.Last})
	b.Printf("\n## %d schedules, none of them due\n\nReady is from the start of a process until it is idle; all schedules have a status then. The floor is an informer that has them all. The rest is for %s after that.\n", b.fleet, b.idleFor)
	bytes := func(n float64) string { return fmt.Sprintf("%.0f B", n) }
	b.SampleTable(b.fleet, []string{keelson},
		harness.Column{Header: "ready", Figure: "ready", Stat: harness.Last, Format: harness.Seconds},
		harness.Column{Header: "floor", Figure: "informed", Stat: harness.Last, Format: harness.Seconds},
		harness.Column{Header: "processor", Figure: "idle", Stat: harness.Last, Format: func(part float64) string { return fmt.Sprintf("%.2f %%", 100*part) }},
		harness.Column{Header: "requests", Figure: "requests", Stat: harness.Last, Format: func(n float64) string { return fmt.Sprintf("%.0f", n) }},
		harness.Column{Header: "memory of each (PSS)", Figure: "memory", Stat: harness.Last, Format: bytes},
		harness.Column{Header: "heap of each", Figure: "heap", Stat: harness.Last, Format: bytes})
}
