package local_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// idler is an engine with a cluster that becomes idle, and that a test stops and starts as the controller does.
type idler struct {
	*testing.T
	engine  *local.Engine
	request cluster.Request
	dir     string
}

func (i *idler) observe() cluster.Observation {
	i.Helper()
	seen, err := i.engine.Observe(i.Context(), i.request)
	if err != nil {
		i.Fatal(err)
	}
	return seen
}

// becomeIdle waits until no client was connected for a time, and stops the cluster.
func (i *idler) becomeIdle(after time.Duration) {
	i.Helper()
	harness.Eventually(i.T, "no client is connected", func() bool {
		seen := i.observe()
		return !seen.LastClient.IsZero() && time.Since(seen.LastClient) >= after
	})
	i.stop()
}

// stop stops the cluster, waits until the engine listens, and checks that nothing but the data of the cluster is there.
func (i *idler) stop() {
	i.Helper()
	stop := i.request
	stop.Stop, stop.Idle = true, true
	if err := i.engine.Apply(i.Context(), stop); err != nil {
		i.Fatal(err)
	}
	defer func() {
		if i.Failed() {
			seen := i.observe()
			i.Logf("the last observation: %+v, operation %+v", seen, seen.Operation)
		}
	}()
	harness.Eventually(i.T, "the cluster is stopped and the engine listens", func() bool {
		seen := i.observe()
		return seen.Idle && seen.Stopped && seen.Listening
	})
	if rest := left(i.T, i.dir); len(rest) != 1 {
		i.Errorf("idle, and left: %v; want only its data", rest)
	}
}

// kubectl returns a command that is a client of another process.
func (i *idler) kubectl(args ...string) *exec.Cmd {
	i.Helper()
	binary, err := env.Binary("keelson-kube")
	if err != nil {
		i.Fatal(err)
	}
	//nolint:gosec // the binary under test
	return exec.CommandContext(i.Context(), binary, append([]string{"kubectl", "--kubeconfig=" + filepath.Join(i.dir, "kubeconfig")}, args...)...)
}

// client returns a client of the cluster with connections of its own.
func (i *idler) client() (*kubernetes.Clientset, func()) {
	i.Helper()
	access, err := kubeconfig.Parse(i.observe().Kubeconfig)
	if err != nil {
		i.Fatal(err)
	}
	transport := &http.Transport{TLSHandshakeTimeout: time.Minute, ForceAttemptHTTP2: true}
	if transport.TLSClientConfig, err = rest.TLSConfigFor(access.Config); err != nil {
		i.Fatal(err)
	}
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: access.Server}, &http.Client{Transport: transport})
	if err != nil {
		i.Fatal(err)
	}
	return client, transport.CloseIdleConnections
}

// ask sends a request to an idle cluster, starts the cluster as the controller does, and returns when it was answered.
func (i *idler) ask() {
	i.Helper()
	client, hangUp := i.client()
	began := time.Now()
	answered := make(chan error, 1)
	go func() {
		_, err := client.CoreV1().Namespaces().Get(i.Context(), "default", metav1.GetOptions{})
		answered <- err
	}()
	harness.Eventually(i.T, "the engine notices the client", func() bool { return !i.observe().Idle })
	if !i.observe().Woken {
		i.Error("the engine does not say that a client has connected")
	}
	if err := i.engine.Apply(i.Context(), i.request); err != nil {
		i.Fatal(err)
	}
	if err := <-answered; err != nil {
		i.Fatalf("the first request: %v", err)
	}
	i.Logf("the first answer came after %s", time.Since(began).Round(time.Millisecond))
	began = time.Now()
	if _, err := client.CoreV1().Namespaces().Get(i.Context(), "default", metav1.GetOptions{}); err != nil {
		i.Errorf("the second request: %v", err)
	}
	i.Logf("the second answer came after %s", time.Since(began).Round(time.Millisecond))
	hangUp()
}

func newIdler(t *testing.T, opts local.Options) *idler {
	t.Helper()
	i := &idler{
		T: t, engine: local.New(opts), dir: filepath.Join(opts.Dir, "idle"), request: helperArgs{UID: "idle", Idle: true}.request(),
	}
	t.Cleanup(func() {
		if err := i.engine.Close(); err != nil {
			t.Error(err)
		}
	})
	return i
}

func TestLongIdle(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	i := newIdler(t, opts)
	applyAndWait(t, i.engine, i.request)

	// A client that is connected and silent keeps the cluster running. The control plane and this process are connected all the time.
	watch, began := i.kubectl("get", "namespaces", "--watch"), time.Now()
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the silent client was seen", func() bool { return i.observe().LastClient.Sub(began) > 5*time.Second })
	if err := watch.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = watch.Wait() // it was killed

	i.becomeIdle(4 * time.Second)
	i.ask()
	i.becomeIdle(4 * time.Second)

	// The next manager listens, too.
	if err := i.engine.Close(); err != nil {
		t.Fatal(err)
	}
	i.engine = local.New(opts)
	seen := i.observe()
	if !seen.Idle || !seen.Stopped || seen.Listening {
		t.Errorf("the next manager observes %+v", seen)
	}
	i.stop()
	i.ask()
	i.remove()
}

// A manager that is killed while it stops an idle cluster is followed by one that goes on with the stop, and one that is killed while
// it starts the cluster for a client by one that goes on with the start.
func TestLongAManagerThatIsKilledWhileIdle(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	i := newIdler(t, opts)
	next := func(isIdle bool) {
		t.Helper()
		i.engine = local.New(opts)
		if seen := i.observe(); seen.Idle != isIdle {
			t.Errorf("the next manager observes that the cluster is idle: %t, want %t", seen.Idle, isIdle)
		}
	}
	end := func() {
		t.Helper()
		if err := i.engine.Close(); err != nil {
			t.Fatal(err)
		}
	}
	args := helperArgs{Dir: opts.Dir, UID: i.request.UID, Idle: true, Stop: true}
	for _, args.After = range []time.Duration{0, 20 * time.Millisecond, 200 * time.Millisecond} {
		applyAndWait(t, i.engine, i.request)
		end()
		killedManager(t, args)
		next(true)
		i.stop()
	}
	end()
	args.Stop = false
	for _, args.At = range []string{"Starting etcd", "Starting kube-apiserver", "Starting kube-scheduler"} {
		killedManager(t, args)
		once(t, i.dir)
	}
	next(false)
	applyAndWait(t, i.engine, i.request)
	i.remove()
}

// remove removes the cluster, and checks that nothing is left.
func (i *idler) remove() {
	t := i.T
	t.Helper()
	if err := i.engine.Delete(t.Context(), i.request); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the cluster is removed", func() bool {
		i.request.Deleting = true
		return !i.observe().Exists
	})
	if rest := left(t, i.dir); len(rest) > 0 {
		t.Errorf("left behind: %v", rest)
	}
}
