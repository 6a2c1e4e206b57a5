package local_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/etcdsnapshot"
	"github.com/keelson-dev/keelson/internal/engine/local"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// helperVariable makes the test binary a manager that kills itself. It holds helperArgs as JSON.
const helperVariable = "KEELSON_TEST_HELPER"

type helperArgs struct {
	Dir    string
	UID    types.UID
	Delete bool
	Stop   bool
	// Idle means that the cluster has spec.idle, and that Stop is because it is idle.
	Idle bool
	// Snapshots and From make the cluster one of a snapshot.
	Snapshots etcdsnapshot.Dir
	From      types.UID
	// Restore is the snapshot from which the cluster is restored.
	Restore types.UID
	// At is the description of the operation at which the helper kills itself, After the time after the beginning.
	At    string
	After time.Duration
}

func (a helperArgs) request() cluster.Request {
	r := cluster.Request{Name: "victim", UID: a.UID, Spec: v1alpha1.ClusterSpec{Engine: v1alpha1.EngineLocal}, Deleting: a.Delete, Stop: a.Stop}
	if a.Idle {
		r.Spec.Idle, r.Idle = &v1alpha1.ClusterIdle{StopAfter: metav1.Duration{Duration: time.Minute}}, a.Stop
	}
	if a.From != "" {
		r.Spec.From, r.Snapshot.UID = &v1alpha1.ClusterSource{Snapshot: "source"}, a.From
	}
	if a.Restore != "" {
		r.Restore = &cluster.Restore{Token: "once", Name: "before", UID: a.Restore}
	}
	return r
}

// runHelper begins an operation, and kills this process in the middle of it.
func runHelper(encoded string) int {
	var args helperArgs
	if err := json.Unmarshal([]byte(encoded), &args); err != nil {
		panic(err)
	}
	engine := local.New(local.Options{
		Dir: args.Dir, Snapshots: args.Snapshots, Nodes: 1, Ephemeral: true, Binary: func() (string, error) { return env.Binary("keelson-kube") },
	})
	ctx := context.Background()
	begin := engine.Apply
	if args.Delete {
		begin = engine.Delete
	}
	if err := begin(ctx, args.request()); err != nil {
		fmt.Println(err)
		return 1
	}
	if args.At == "" {
		time.Sleep(args.After) //nolint:forbidigo // a moment is the point
		killItself()
	}
	for {
		seen, err := engine.Observe(ctx, args.request())
		if err != nil {
			fmt.Println(err)
			return 1
		}
		if o := seen.Operation; o == nil || o.Description == args.At || o.State != v1alpha1.OperationProcessing {
			killItself()
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // it polls for its own end
	}
}

func killItself() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) //nolint:forbidigo // this process
	select {}
}

// killedManager runs a helper, which must have killed itself.
func killedManager(t *testing.T, args helperArgs) {
	t.Helper()
	encoded, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), helperVariable+"="+string(encoded))
	output, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Fatalf("the helper has ended by itself: %v: %s", err, output)
	}
}

// TestLongAManagerThatIsKilled kills the manager at one step after the other, first of making a cluster, then of stopping and of
// removing it; each goes on from what the one before has left.
func TestLongAManagerThatIsKilled(t *testing.T) {
	t.Parallel()
	opts := newOptions(t)
	args := helperArgs{Dir: opts.Dir, UID: "killed"}
	dir := filepath.Join(opts.Dir, string(args.UID))
	for _, args.At = range []string{
		"Starting", "Starting etcd", "Starting certificates", "Starting kube-apiserver",
		"Starting kube-controller-manager", "Starting kube-scheduler", "The spec is applied",
	} {
		killedManager(t, args)
		once(t, dir)
	}

	engine := local.New(opts)
	applyAndWait(t, engine, args.request())
	once(t, dir)
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}

	args.Stop, args.At = true, ""
	for _, args.After = range []time.Duration{0, 5, 20, 50, 100, 200, 500} {
		args.After *= time.Millisecond
		killedManager(t, args)
		t.Logf("killed %s after the beginning of the stop, it left: %d things", args.After, len(left(t, dir)))
	}
	engine = local.New(opts)
	if err := engine.Apply(t.Context(), args.request()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the cluster is stopped", func() bool {
		seen, err := engine.Observe(t.Context(), args.request())
		return err == nil && seen.Stopped
	})
	if rest := left(t, dir); len(rest) != 1 {
		t.Errorf("stopped, and left: %v; want only its data", rest)
	}
	args.Stop = false
	applyAndWait(t, engine, args.request())
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}

	args.Delete = true
	for _, args.After = range []time.Duration{0, 2, 5, 10, 15, 20, 30, 50} {
		args.After *= time.Millisecond
		addRemains(t, dir)
		killedManager(t, args)
		t.Logf("killed %s after the beginning of the removal, it left: %d things", args.After, len(left(t, dir)))
	}
	engine = local.New(opts)
	if err := engine.Delete(t.Context(), args.request()); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "the cluster is removed", func() bool {
		seen, err := engine.Observe(t.Context(), args.request())
		return err == nil && !seen.Exists
	})
	if rest := left(t, dir); len(rest) > 0 {
		t.Errorf("left behind: %v", rest)
	}
	if err := engine.Close(); err != nil {
		t.Error(err)
	}
}

// applyAndWait returns when all components of a cluster run.
func applyAndWait(t *testing.T, engine cluster.Engine, request cluster.Request) {
	t.Helper()
	if err := engine.Apply(t.Context(), request); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if t.Failed() {
			seen, err := engine.Observe(t.Context(), request)
			t.Logf("the last operation: %+v, %v", seen.Operation, err)
		}
	}()
	harness.Eventually(t, "all components run", func() bool {
		seen, err := engine.Observe(t.Context(), request)
		return err == nil && seen.Applied && seen.Attended && seen.Running && len(seen.Components) == 5
	})
}

// addRemains adds processes and files to a cluster that is being removed, so that there is something left to do at every
// moment.
func addRemains(t *testing.T, dir string) {
	t.Helper()
	for i := range 10 {
		cmd := exec.CommandContext(t.Context(), "sleep", "300")
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "KEELSON_CONTROL_PLANE=" + dir}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }() // it is killed
		sub := filepath.Join(dir, "etcd", fmt.Sprint(i))
		if err := os.MkdirAll(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		for j := range 50 {
			write(t, filepath.Join(sub, fmt.Sprint(j)), "", 0o600)
		}
	}
}

// once fails the test if any component of a cluster runs twice.
func once(t *testing.T, dir string) {
	t.Helper()
	found := map[string]int{}
	for _, one := range left(t, dir) {
		if words := strings.Fields(one); len(words) > 1 && strings.HasSuffix(words[0], "keelson-kube") {
			found[words[1]]++
		}
	}
	for name, n := range found {
		if n > 1 {
			t.Errorf("%d processes of %s", n, name)
		}
	}
}
