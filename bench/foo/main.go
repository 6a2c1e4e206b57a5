// Command foo measures the Foo controller on a control plane of its own: how fast the Deployments of many new Foos exist,
// how fast a deleted Deployment is back, how many requests a Foo costs, and how much memory the manager needs. The floor,
// measured in the same run, is a plain client that makes the same writes. Upstream's sample-controller is the peer.
//
//	make bench-foo
//	make bench-foo ARGS='--foos 500 --rounds 3 --json results.json'
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// The contestants.
const (
	// floor: a client creates the Foos and their Deployments; no controller runs.
	floor = "floor"
	// keelson: a client creates the Foos, `keelson manager` the Deployments.
	keelson = "keelson"
	// peer: a client creates the Foos, sample-controller the Deployments.
	peer = "sample-controller"
	// idle: keelson with many Foos that do not change.
	idle = "keelson, idle"
)

// The targets.
const (
	burstLimit  = 1.5   // times the floor
	repairLimit = 30.0  // milliseconds, the 99th percentile
	writesLimit = 2.0   // a Foo
	memoryLimit = 100.0 // megabytes
)

// connections is the number of connections of the client that creates objects.
const connections = 16

// quiet is how long nothing must be written for Foos to be steady: a change of status waits for a second.
const quiet = 2 * time.Second

const quick = "--foos=50 --rounds=1 --peer-foos=0 --idle-foos=100 --idle=1s --repairs=10"

func main() { harness.Main("foo", measure) }

type bench struct {
	*harness.Run
	*harness.Cluster
	foos, peerFoos, idleFoos, repairs int
	idle                              time.Duration
	peer                              string             // the binary
	model                             *appsv1.Deployment // what the controller creates
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	r.Flags.IntVar(&b.foos, "foos", 1000, "Foos in a burst")
	r.Flags.IntVar(&b.peerFoos, "peer-foos", 100, "Foos for sample-controller; 0 leaves it out")
	r.Flags.IntVar(&b.idleFoos, "idle-foos", 5000, "Foos for requests, memory and repairs; 0 leaves these out")
	r.Flags.DurationVar(&b.idle, "idle", time.Minute, "how long to watch idle Foos")
	r.Flags.IntVar(&b.repairs, "repairs", 200, "Deployments to delete")
	if err := r.Parse(args, 5, quick); err != nil {
		return err
	}
	if b.Cluster, err = r.StartCluster(ctx, harness.APIOnly, connections); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	b.Counted, b.Uncounted = []string{"foos", "deployments", "events"}, []string{"POST foos", "DELETE foos"}
	if err := r.NoteVersions(ctx, b.Cluster); err != nil {
		return err
	}
	r.Note("clients with %d connections; medians of %d rounds in turns", connections, r.Rounds)

	// The API server builds some of what it needs for a kind when it first meets an object of it. The Deployments of keelson
	// are the model of those of the floor.
	for _, contestant := range []string{keelson, floor} {
		if err := b.burst(ctx, &harness.Sample{Contestant: contestant, Size: 200}); err != nil {
			return fmt.Errorf("warm up: %w", err)
		}
	}
	contestants := []string{floor, keelson}
	run := func(s *harness.Sample) error { return b.burst(ctx, s) }
	if err := r.InTurns(r.Rounds, b.foos, contestants, "seen", run); err != nil {
		return err
	}
	if b.peerFoos > 0 {
		b.peer = filepath.Join(b.Dir, "sample-controller")
		version, err := harness.BuildPeer(ctx, b.peer, "k8s.io/sample-controller", "k8s.io/sample-controller")
		if err != nil {
			return fmt.Errorf("%w (--peer-foos=0 leaves it out)", err)
		}
		r.Note("sample-controller %s as shipped: its client is throttled to 5 requests a second after the first 10, so it gets fewer Foos, once", version)
		if err := r.InTurns(1, b.peerFoos, []string{floor, keelson, peer}, "seen", run); err != nil {
			return err
		}
	}
	if b.idleFoos > 0 {
		if err := b.measureIdle(ctx); err != nil {
			return err
		}
	}
	b.report()
	return nil
}

// burst measures one contestant in a namespace of its own and removes everything after it.
func (b *bench) burst(ctx context.Context, s *harness.Sample) error {
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	warmed, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	var controller *harness.Program
	switch s.Contestant {
	case keelson:
		controller, err = b.StartManager(ctx, b.Binary, "foo")
	case peer:
		controller, err = harness.StartProgram(ctx, peer, b.peer,
			[]string{"-kubeconfig=" + b.Kubeconfig}, func(line string) bool { return strings.Contains(line, "Started workers") })
	default:
		err = b.create(ctx, s, namespace, os.Getpid())
	}
	if err != nil {
		return err
	}
	if controller != nil {
		err = controller.During(ctx, func(ctx context.Context) error {
			if s.Contestant == keelson {
				if err := b.warm(ctx, warmed, controller.PID); err != nil {
					return fmt.Errorf("warm up: %w", err)
				}
			}
			return b.create(ctx, s, namespace, controller.PID)
		})
		// It must not run while its Foos are deleted: it could see the end of a Deployment before that of its Foo.
		if err = errors.Join(err, controller.Stop()); err != nil {
			return err
		}
	}
	return errors.Join(b.empty(ctx, namespace), b.empty(ctx, warmed))
}

// warm lets a manager that has just started create a few Deployments. The floor creates copies of the first of them.
func (b *bench) warm(ctx context.Context, namespace string, pid int) error {
	if err := b.create(ctx, &harness.Sample{Contestant: keelson, Size: 32}, namespace, pid); err != nil {
		return err
	}
	deployment, err := b.Observer.Kube.AppsV1().Deployments(namespace).Get(ctx, objectName(0), metav1.GetOptions{})
	b.model = deployment
	return err
}

// create creates Foos as fast as the API takes them. It waits until their Deployments are seen, and then until the Foos of
// keelson are steady.
func (b *bench) create(ctx context.Context, s *harness.Sample, namespace string, pid int) error {
	o, err := harness.ObserveCreation(ctx, b.Observer.Kube.AppsV1().Deployments(namespace))
	if err != nil {
		return err
	}
	defer o.Stop()
	before, err := b.Served(ctx)
	if err != nil {
		return err
	}
	used := harness.ProcessorTime(pid)
	began := time.Now()
	err = b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
		foo, err := createFoo(ctx, writer, namespace, objectName(i))
		if err == nil && s.Contestant == floor {
			err = createDeployment(ctx, writer, b.newDeployment(foo))
		}
		return err
	})
	if err != nil {
		return err
	}
	seen, err := o.Await(ctx, harness.Created, s.Size)
	if err != nil {
		return err
	}
	s.Set("processor", harness.ProcessorTime(pid)-used)
	s.SetSeen("seen", began, seen)
	if s.Contestant != keelson && s.Contestant != idle {
		return nil
	}
	after, last, err := b.AwaitQuiet(ctx, quiet)
	if err != nil {
		return err
	}
	s.Requests = after.Since(before).Writes()
	s.SetTimes("steady", last.Sub(began))
	return b.checkSteady(ctx, namespace, s.Size)
}

// checkSteady returns an error unless n Foos have a current status.
func (b *bench) checkSteady(ctx context.Context, namespace string, n int) error {
	foos, err := b.Observer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(foos.Items) != n {
		return fmt.Errorf("there are %d Foos, want %d", len(foos.Items), n)
	}
	for _, foo := range foos.Items {
		if foo.Status.ObservedGeneration != foo.Generation {
			return fmt.Errorf("the Foo %s has no current status, although nothing was written for %s", foo.Name, quiet)
		}
	}
	return nil
}

// empty deletes all Foos and Deployments of a namespace. No controller of Foos may run.
func (b *bench) empty(ctx context.Context, namespace string) error {
	if err := harness.DeleteAll(ctx, b.Observer.Keelson.SamplecontrollerV1alpha1().Foos(namespace)); err != nil {
		return err
	}
	return harness.DeleteAll(ctx, b.Observer.Kube.AppsV1().Deployments(namespace))
}

// measureIdle looks at a manager with many Foos: at its requests and memory while nothing happens, and at repairs.
func (b *bench) measureIdle(ctx context.Context) (err error) {
	b.Say("Creating %d Foos, and watching them for %s", b.idleFoos, b.idle)
	namespace, err := b.Namespace(ctx)
	if err != nil {
		return err
	}
	m, err := b.StartManager(ctx, b.Binary, "foo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Stop()) }()
	return m.During(ctx, func(ctx context.Context) error {
		s := b.NewSample(idle, 0, b.idleFoos)
		if err := b.create(ctx, s, namespace, m.PID); err != nil {
			return fmt.Errorf("create %d Foos: %w", b.idleFoos, err)
		}
		requests, err := b.Idle(ctx, s, m, b.idle)
		if err != nil {
			return err
		}
		s.Set("idle requests", requests.Total())
		b.Say("Deleting %d Deployments, one after the other", b.repairs)
		return b.measureRepairs(ctx, namespace)
	})
}

// measureRepairs deletes Deployments of Foos one after the other. In turns with them it deletes one without a Foo, which
// the client itself creates again.
func (b *bench) measureRepairs(ctx context.Context, namespace string) error {
	o, err := harness.ObserveCreation(ctx, b.Observer.Kube.AppsV1().Deployments(namespace))
	if err != nil {
		return err
	}
	defer o.Stop()
	writer := b.Writers[0]
	plain := b.newDeployment(&v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "plain", UID: uuid.NewUUID()}})
	plain.OwnerReferences = nil
	if err := createDeployment(ctx, writer, plain); err != nil {
		return err
	}
	if _, err := o.Await(ctx, harness.Created, 1); err != nil {
		return err
	}
	took := map[string][]time.Duration{}
	err = harness.Interleave(b.repairs, []string{keelson, floor}, func(round int, contestant string) error {
		o.Forget()
		name := plain.Name
		if contestant == keelson {
			name = objectName(round * b.idleFoos / b.repairs) // spread over all Foos
		}
		began := time.Now()
		if err := writer.Kube.AppsV1().Deployments(namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		if contestant == floor {
			if err := createDeployment(ctx, writer, plain); err != nil {
				return err
			}
		}
		seen, err := o.Await(ctx, harness.Created, 1)
		if err != nil {
			return err
		}
		if seen[name].IsZero() {
			return fmt.Errorf("expected a new Deployment %s, and not %v", name, seen)
		}
		took[contestant] = append(took[contestant], seen[name].Sub(began))
		return nil
	})
	for contestant, times := range took {
		b.NewSample(contestant, 0, b.idleFoos).SetTimes("repair", times...)
	}
	return err
}

func (b *bench) report() {
	all := b.Samples
	b.RatioTarget(fmt.Sprintf("%d Foos until the last Deployment, in times of the floor", b.foos), "≤", burstLimit,
		all.Ratios(keelson, floor, b.foos, "seen", harness.Last))
	writes, foos := all.Requests(keelson)
	b.Target("writes for a Foo until it is steady, events included", "≤", writesLimit, writes.Total()/float64(foos), "", writes.Each(foos))
	columns := append(harness.Distribution("seen", harness.Milliseconds),
		harness.Column{Header: "× floor", Figure: "seen", Stat: harness.Last, Over: floor},
		harness.Column{Header: "steady", Figure: "steady", Stat: harness.Last, Format: harness.Seconds},
		harness.Column{Header: "CPU time", Figure: "processor", Stat: harness.Last, Format: harness.Seconds})
	b.Printf("\n## Foos created as fast as the API takes them\n\nFrom the first create until an observer has seen the Deployments. CPU time is that of the controller, or of the client of\n" +
		"the floor, until then.\n")
	b.SampleTable(b.foos, []string{floor, keelson}, columns...)
	if b.peerFoos > 0 && b.peerFoos != b.foos {
		b.Printf("\n%d Foos, once:\n", b.peerFoos)
		b.SampleTable(b.peerFoos, []string{floor, keelson, peer}, columns...)
	}
	if b.idleFoos == 0 {
		return
	}
	n := b.idleFoos
	s := all.Of(idle, n)
	repair := all.Of(keelson, n).Pool("repair")
	b.Target(fmt.Sprintf("a deleted Deployment is back, p99, with %d Foos", n), "<", repairLimit, 1000*harness.P99(repair), " ms",
		fmt.Sprintf("%d samples; the floor has %s", len(repair), harness.Milliseconds(harness.P99(all.Of(floor, n).Pool("repair")))))
	b.Target(fmt.Sprintf("requests in %s with %d idle Foos", b.idle, n), "≤", 0, s.Median("idle requests", harness.Last), "",
		"about Foos, Deployments and events, without renewed watches")
	b.Target(fmt.Sprintf("peak memory (RSS) of the manager with %d Foos", n), "<", memoryLimit, s.Median("peak", harness.Last)/1e6, " MB",
		"the program file is "+harness.Megabytes(s.Median("file", harness.Last)))
	b.Printf("\n## %d Foos\n", n)
	b.SampleTable(n, []string{idle}, columns...)
	b.SampleTable(n, []string{idle}, harness.IdleColumns...)
	b.Printf("\nFrom the deletion of a Deployment until its successor is seen, one after the other:\n")
	b.SampleTable(n, []string{floor, keelson}, harness.Distribution("repair", harness.Milliseconds)...)
}
