// Command foo measures the Foo controller on a control plane of its own: how fast the Deployments of many new Foos exist,
// how many requests a Foo costs, and how much memory the manager needs. The floor, measured in the same run, is a plain
// client that makes the same writes. Upstream's sample-controller is the peer.
//
//	make bench-foo
//	make bench-foo ARGS='--foos 500 --rounds 3'
package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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
)

// The targets.
const (
	burstLimit  = 1.5 // times the floor
	writesLimit = 2.0 // a Foo
	writes      = "writes for a Foo until it is steady, events included"
)

// connections is the number of connections of the client that creates objects.
const connections = 16

func main() { harness.Main("foo", measure) }

type bench struct {
	*harness.Run
	*harness.Cluster
	foos, peerFoos int
	peer           string             // the binary
	model          *appsv1.Deployment // what the controller creates
}

func measure(ctx context.Context, r *harness.Run, args []string) (err error) {
	b := &bench{Run: r}
	r.Flags.IntVar(&b.foos, "foos", 1000, "Foos in a burst")
	r.Flags.IntVar(&b.peerFoos, "peer-foos", 100, "Foos for sample-controller; 0 leaves it out")
	if err := r.Parse(args, 5, "--foos=50 --rounds=1 --peer-foos=0"); err != nil {
		return err
	}
	if b.Cluster, err = r.StartCluster(ctx, connections); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	b.Counted, b.Uncounted = []string{"foos", "deployments", "events"}, []string{"POST foos", "DELETE foos"}
	r.Note("clients with %d connections; medians of %d rounds in turns", connections, r.Rounds)

	// The Deployments of keelson are the model of those of the floor, so it comes first.
	contestants := []string{keelson, floor}
	contest := harness.Contest{Start: b.start, Measure: b.create, Learn: b.learn, Empty: b.empty}
	run := func(s *harness.Sample) error { return b.Burst(ctx, s, contest) }
	if err := r.InTurns(r.Rounds, b.foos, contestants, "seen", run); err != nil {
		return err
	}
	if b.peerFoos > 0 {
		b.peer = filepath.Join(b.Dir, "sample-controller")
		version, err := b.BuildPeer(ctx, b.peer, "k8s.io/sample-controller", "k8s.io/sample-controller")
		if err != nil {
			return fmt.Errorf("%w (--peer-foos=0 leaves it out)", err)
		}
		r.Note("sample-controller %s as shipped: its client is throttled to 5 requests a second after the first 10, so it gets fewer Foos, once", version)
		if err := r.InTurns(1, b.peerFoos, append(contestants, peer), "seen", run); err != nil {
			return err
		}
	}
	b.report()
	return nil
}

// start starts the controller of a contestant; the floor has none.
func (b *bench) start(ctx context.Context, contestant string) (*harness.Program, error) {
	switch contestant {
	case keelson:
		return b.StartManager(ctx, "foo")
	case peer:
		return b.StartProgram(ctx, peer, "Started workers", b.peer, "-kubeconfig="+b.Kubeconfig)
	}
	return nil, nil
}

// learn makes one of the first Deployments of keelson the model of those of the floor.
func (b *bench) learn(ctx context.Context, contestant, namespace string) (err error) {
	if contestant == keelson {
		b.model, err = b.Observer.Kube.AppsV1().Deployments(namespace).Get(ctx, objectName(0), metav1.GetOptions{})
	}
	return err
}

// create creates Foos as fast as the API takes them, and waits until they have their Deployments and are steady.
func (b *bench) create(ctx context.Context, s *harness.Sample, pid int, namespace string) error {
	start := func(ctx context.Context, _ time.Time) error {
		return b.Each(ctx, s.Size, func(ctx context.Context, writer harness.Connection, i int) error {
			foo, err := writer.Keelson.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, &v1alpha1.Foo{
				ObjectMeta: metav1.ObjectMeta{Name: objectName(i)},
				Spec:       v1alpha1.FooSpec{DeploymentName: objectName(i), Replicas: ptr.To[int32](1)},
			}, metav1.CreateOptions{})
			if err == nil && s.Contestant == floor {
				_, err = writer.Kube.AppsV1().Deployments(namespace).Create(ctx, b.newDeployment(foo), metav1.CreateOptions{})
			}
			return err
		})
	}
	deployments := b.Observer.Kube.AppsV1().Deployments(namespace)
	return harness.MeasureBurst(ctx, b.Cluster, s, deployments, harness.Burst{PID: pid, Start: start})
}

// empty deletes all Foos and Deployments of a namespace.
func (b *bench) empty(ctx context.Context, namespace string) error {
	if err := harness.DeleteAll(ctx, b.Observer.Keelson.SamplecontrollerV1alpha1().Foos(namespace)); err != nil {
		return err
	}
	return harness.DeleteAll(ctx, b.Observer.Kube.AppsV1().Deployments(namespace))
}

func (b *bench) report() {
	b.Judge(
		harness.Target{Name: "last Deployment, in times of the floor", Limit: burstLimit, Contestant: keelson, Over: floor, Size: b.foos, Figure: "seen", Stat: harness.Last},
		harness.Target{Name: writes, Limit: writesLimit, Contestant: keelson, Size: b.foos, Figure: "writes", Stat: harness.Last})
	b.Printf("\n## Foos created as fast as the API takes them\n\nFrom the first create until an observer has seen the Deployments, and until nothing is written any more. Processor time is that\n" +
		"of the controller until then, or of the client of the floor until the last Deployment.\n")
	columns := harness.BurstColumns(floor, keelson)
	b.BurstTable(b.foos, []string{floor, keelson}, columns...)
	if b.peerFoos > 0 && b.peerFoos != b.foos {
		b.Printf("\n%d Foos, once:\n", b.peerFoos)
		b.BurstTable(b.peerFoos, []string{floor, keelson, peer}, columns...)
	}
}
