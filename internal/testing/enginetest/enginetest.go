// Package enginetest has the contract of cluster.Engine: what every engine must do, whatever it makes clusters of.
package enginetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// Place is where the engine under test makes its clusters. Each test gets one of its own.
type Place struct {
	// NewEngine returns an engine for the clusters of this place, as a manager that starts has it. The engine before was
	// closed.
	NewEngine func() cluster.Engine
	// Spec is one that the engine can make.
	Spec v1alpha1.ClusterSpec
	// Change changes what is wanted, in the spec or in what it refers to.
	Change func(*cluster.Request)
	// Lose removes by hand all that the engine keeps about a cluster on disk. Nil: it keeps nothing.
	Lose func(cluster.Request)
	// Left returns what is left of a cluster.
	Left func(cluster.Request) []string
}

// Run runs the contract.
func Run(t *testing.T, newPlace func(t *testing.T) Place) {
	for _, test := range []struct {
		name string
		run  func(*run)
	}{
		{"nothing is there before Apply, and nothing has to be deleted", testNothing},
		{"a cluster is made, and Apply may be repeated", testMake},
		{"the next engine finds it again", testRestart},
		{"a change is applied", testChange},
		{"it is deleted, and Delete may be repeated", testDelete},
		{"it is deleted while it is being made", testDeleteEarly},
		{"it is deleted by an engine that has never seen it", testDeleteAfterRestart},
		{"it is deleted although its state was lost", testDeleteLost},
		{"a lost state is not replaced by a new one", testLost},
		{"a closed engine does nothing", testClosed},
		{"an abandoned cluster stays", testAbandon},
		{"one that runs on the host is told, stopped, and started again", testKeep},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := &run{T: t, Place: newPlace(t), woken: map[string]bool{}}
			r.restart()
			r.request = cluster.Request{Name: "contract", UID: types.UID(uid(t.Name())), ManagementClusterUID: "home", Spec: r.Spec}
			test.run(r)
			r.remove()
			r.do(r.engine.Close())
		})
	}
}

// uid makes a UID of a name.
func uid(name string) string {
	text := []byte("contract-")
	for _, c := range []byte(name) {
		if 'a' <= c && c <= 'z' {
			text = append(text, c)
		}
	}
	return string(text)
}

// run is one test.
type run struct {
	*testing.T
	Place
	engine  cluster.Engine
	request cluster.Request

	mu    sync.Mutex
	woken map[string]bool
}

// restart closes the engine, if there is one, and makes the next.
func (r *run) restart() {
	r.Helper()
	if r.engine != nil {
		r.do(r.engine.Close())
	}
	r.engine = r.NewEngine()
	r.engine.Notify(func(name string) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.woken[name] = true
	})
}

func (r *run) do(err error) {
	r.Helper()
	if err != nil {
		r.Error(err)
	}
}

func (r *run) eventually(what string, check func() bool) {
	r.Helper()
	harness.Eventually(r.T, what, check)
}

// observe is Observe, of which no error is expected.
func (r *run) observe() cluster.Observation {
	r.Helper()
	seen, err := r.engine.Observe(r.Context(), r.request)
	if err != nil {
		r.Fatalf("Observe: %v", err)
	}
	return seen
}

// apply applies and waits until that has succeeded, and notes it as the controller does.
func (r *run) apply() cluster.Observation {
	r.Helper()
	if err := r.engine.Apply(r.Context(), r.request); err != nil {
		r.Fatalf("Apply: %v", err)
	}
	var seen cluster.Observation
	r.eventually("it is applied", func() bool {
		seen = r.observe()
		if o := seen.Operation; o != nil && o.State == v1alpha1.OperationFailed && !o.Stale {
			r.Fatalf("The operation has failed: %v", o.Err)
		}
		// What is on disk may be seen before the end of the operation that wrote it.
		isUnderWay := seen.Operation != nil && seen.Operation.State == v1alpha1.OperationProcessing
		return seen.Applied && seen.Attended && !isUnderWay
	})
	r.request.Applied, r.request.AppliedConfig = seen.ConfigHash, seen.Config
	return seen
}

// remove deletes and waits until nothing is left.
func (r *run) remove() {
	r.Helper()
	r.request.Deleting = true
	r.eventually("nothing exists", func() bool {
		seen := r.observe()
		if o := seen.Operation; o != nil && o.Delete && o.State == v1alpha1.OperationFailed {
			r.Fatalf("The removal has failed: %v", o.Err)
		}
		if !seen.Exists {
			return true
		}
		if err := r.engine.Delete(r.Context(), r.request); err != nil && !errors.Is(err, cluster.ErrBusy) {
			r.Fatalf("Delete: %v", err)
		}
		return false
	})
	r.do(r.engine.Abandon(r.Context(), r.request))
	if left := r.Left(r.request); len(left) > 0 {
		r.Errorf("Left behind: %v", left)
	}
}

func testNothing(r *run) {
	if seen := r.observe(); seen.Exists || seen.Applied || seen.Attended || seen.Operation != nil {
		r.Errorf("Before anything was done: %+v", seen)
	}
	r.remove()
}

func testMake(r *run) {
	seen := r.apply()
	if !seen.Exists || seen.ConfigHash == "" || seen.Config == "" {
		r.Errorf("It is made, and Observe says %+v", seen)
	}
	if _, err := kubeconfig.Parse(seen.Kubeconfig); err != nil {
		r.Errorf("Its kubeconfig cannot be used: %v", err)
	}
	if seen.Operation == nil || seen.Operation.State != v1alpha1.OperationSucceeded || seen.Operation.Delete {
		r.Errorf("The operation that made it is %+v", seen.Operation)
	}
	r.eventually("somebody was told that it has changed", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.woken[r.request.Name]
	})
	again := r.apply()
	if again.ConfigHash != seen.ConfigHash || string(again.Kubeconfig) != string(seen.Kubeconfig) {
		r.Error("Another Apply of the same has changed something")
	}
}

func testRestart(r *run) {
	before := r.apply()
	r.restart()
	seen := r.observe()
	if !seen.Exists || !seen.Applied || seen.Attended {
		r.Errorf("The next engine sees Exists %v, Applied %v, Attended %v; want true, true, false", seen.Exists, seen.Applied, seen.Attended)
	}
	if string(seen.Kubeconfig) != string(before.Kubeconfig) {
		r.Error("The next engine has another kubeconfig")
	}
	r.apply()
}

func testChange(r *run) {
	before := r.apply()
	r.Change(&r.request)
	if seen := r.observe(); seen.Applied || !seen.Exists {
		r.Errorf("Something else is wanted, and Observe says Applied %v, Exists %v", seen.Applied, seen.Exists)
	}
	if after := r.apply(); after.ConfigHash == before.ConfigHash {
		r.Error("The change has not changed the hash of what is applied")
	}
}

func testDelete(r *run) {
	r.apply()
	r.remove()
	r.remove()
}

func testDeleteEarly(r *run) {
	r.do(r.engine.Apply(r.Context(), r.request))
	r.remove()
}

func testDeleteAfterRestart(r *run) {
	r.apply()
	r.restart()
	r.remove()
}

func testDeleteLost(r *run) {
	if r.Lose == nil {
		r.Skip("SKIP: this engine keeps nothing on disk")
	}
	r.apply()
	r.do(r.engine.Close())
	r.engine = nil
	r.Lose(r.request)
	r.restart()
	r.remove()
}

func testLost(r *run) {
	if r.Lose == nil {
		r.Skip("SKIP: this engine keeps nothing on disk")
	}
	r.apply()
	r.do(r.engine.Close())
	r.engine = nil
	r.Lose(r.request)
	r.restart()
	if _, err := r.engine.Observe(r.Context(), r.request); !errors.Is(err, cluster.ErrStateMissing) {
		r.Errorf("Observe says %v, want that the state is missing", err)
	}
}

func testClosed(r *run) {
	r.do(r.engine.Close())
	if err := r.engine.Apply(r.Context(), r.request); !errors.Is(err, cluster.ErrStopping) {
		r.Errorf("Apply says %v, want that the manager is stopping", err)
	}
	if err := r.engine.Delete(r.Context(), r.request); !errors.Is(err, cluster.ErrStopping) {
		r.Errorf("Delete says %v, want that the manager is stopping", err)
	}
	r.engine = nil
	r.restart()
}

func testAbandon(r *run) {
	r.apply()
	r.do(r.engine.Abandon(r.Context(), r.request))
	if len(r.Left(r.request)) == 0 {
		r.Error("Nothing is left of an abandoned cluster")
	}
}

// testKeep is for a cluster.OrphanStopper; of another engine nothing runs on the host.
func testKeep(r *run) {
	if _, ok := r.engine.(cluster.OrphanStopper); !ok {
		return
	}
	r.expectRunning(false)
	before := r.apply()
	r.expectRunning(true)
	r.stop()
	seen := r.observe()
	if !seen.Exists || !seen.Applied || seen.Attended || seen.Running {
		r.Errorf("It is stopped, and Observe says %+v", seen)
	}
	if len(r.Left(r.request)) == 0 {
		r.Error("Nothing is left of a cluster that was stopped")
	}
	r.stop() // nothing is to be done
	if after := r.apply(); after.ConfigHash != before.ConfigHash || string(after.Kubeconfig) != string(before.Kubeconfig) {
		r.Error("It is another one after it was stopped and started again")
	}
	r.expectRunning(true)

	r.restart()
	r.expectRunning(true)
	r.stop()
	r.restart()
	r.expectRunning(false)
}

// stop stops the cluster, which must not run afterwards.
func (r *run) stop() {
	r.Helper()
	r.do(r.engine.(cluster.OrphanStopper).Stop(r.Context(), r.request.UID))
	r.expectRunning(false)
}

// expectRunning fails the test unless the engine tells that the cluster runs, which may be as soon as it is applied, or that
// none does.
func (r *run) expectRunning(want bool) {
	r.Helper()
	var found []cluster.HostedCluster
	r.eventually(fmt.Sprintf("it is told as running: %v", want), func() bool {
		var err error
		found, err = r.engine.(cluster.OrphanStopper).List(r.Context())
		r.do(err)
		return (len(found) > 0) == want
	})
	if want && (len(found) != 1 || found[0].Name != r.request.Name || found[0].UID != r.request.UID || found[0].ManagementClusterUID != r.request.ManagementClusterUID || found[0].Dir == "") {
		r.Errorf("Told as running: %+v, of the request %+v", found, r.request)
	}
}
