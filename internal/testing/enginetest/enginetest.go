// Package enginetest is the contract of cluster.Engine as tests for every engine.
package enginetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/kubeconfig"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// Place is the environment of the engine under test. Each test gets its own.
type Place struct {
	// NewEngine returns an engine for the clusters of this place, as a new manager would. The
	// previous engine is closed.
	NewEngine func() cluster.Engine
	// Spec is a spec that the engine supports.
	Spec v1alpha1.ClusterSpec
	// Change changes the desired cluster, in the spec or in an object that it refers to.
	Change func(*cluster.Request)
	// Restarts is true if that restarts the API server, whose process the engine reports.
	Restarts bool
	// Lose removes the engine's files of a cluster by hand; nil if it has none.
	Lose func(cluster.Request)
	// Left returns the leftovers of a cluster.
	Left func(cluster.Request) []string
}

// Run runs the contract.
func Run(t *testing.T, newPlace func(t *testing.T) Place) {
	for _, test := range []struct {
		name string
		run  func(*run)
	}{
		{"nothing exists before Apply, and Delete succeeds", testNothing},
		{"a cluster is created, the next engine adopts it, a change is applied, and it is deleted", testMake},
		{"it is deleted during its creation", testDeleteEarly},
		{"an abandoned cluster stays, and an engine that has never seen it deletes it", testAbandon},
		{"a lost state is not replaced by a new one, and is deleted", testLost},
		{"a closed engine does nothing", testClosed},
		{"a cluster on the host is reported, stopped, and started again", testKeep},
		{"a request stops it, and the next one starts it", testStop},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel() // they wait for processes most of the time
			r := &run{T: t, Place: newPlace(t), woken: map[string]bool{}}
			r.restart()
			r.request = cluster.Request{Name: "contract", UID: types.UID(uid(t.Name())), ManagementClusterUID: "home", Spec: r.Spec}
			test.run(r)
			r.remove()
			r.do(r.engine.Close())
		})
	}
}

// uid derives a UID from a name.
func uid(name string) string { return uuid.NewSHA1(uuid.Nil, []byte(name)).String() }

// run is a test of the contract.
type run struct {
	*testing.T
	Place
	engine  cluster.Engine
	request cluster.Request

	mu    sync.Mutex
	woken map[string]bool
}

// restart closes the engine, if there is one, and creates the next.
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

// observe calls Observe and expects no error.
func (r *run) observe() cluster.Observation {
	r.Helper()
	seen, err := r.engine.Observe(r.Context(), r.request)
	if err != nil {
		r.Fatalf("Observe: %v", err)
	}
	return seen
}

// apply applies, waits for success, and records the result as the controller does.
func (r *run) apply() cluster.Observation {
	r.Helper()
	if err := r.engine.Apply(r.Context(), r.request); err != nil {
		r.Fatalf("Apply: %v", err)
	}
	var seen cluster.Observation
	r.eventually("it is applied", func() bool {
		seen = r.observe()
		if o := seen.Operation; o != nil && o.State == v1alpha1.OperationFailed && !o.Stale {
			r.Fatalf("the operation failed: %v", o.Err)
		}
		// The files may be visible before the end of the operation that wrote them.
		isUnderWay := seen.Operation != nil && seen.Operation.State == v1alpha1.OperationProcessing
		return seen.Applied && seen.Attended && !isUnderWay
	})
	r.request.Applied, r.request.AppliedConfig = seen.ConfigHash, seen.Config
	return seen
}

// remove deletes the cluster and waits until nothing is left.
func (r *run) remove() {
	r.Helper()
	r.request.Deleting = true
	r.eventually("nothing exists", func() bool {
		seen := r.observe()
		if o := seen.Operation; o != nil && o.Delete && o.State == v1alpha1.OperationFailed {
			r.Fatalf("the removal failed: %v", o.Err)
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
		r.Errorf("before any operation: %+v", seen)
	}
	r.remove()
}

func testMake(r *run) {
	seen := r.apply()
	if !seen.Exists || seen.ConfigHash == "" || seen.Config == "" {
		r.Errorf("after the creation Observe returns %+v", seen)
	}
	if _, err := kubeconfig.Parse(seen.Kubeconfig); err != nil {
		r.Errorf("its kubeconfig is unusable: %v", err)
	}
	if seen.Operation == nil || seen.Operation.State != v1alpha1.OperationSucceeded || seen.Operation.Delete {
		r.Errorf("the operation of the creation is %+v", seen.Operation)
	}
	r.eventually("Watch reports the change", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.woken[r.request.Name]
	})
	again := r.apply()
	if again.ConfigHash != seen.ConfigHash || string(again.Kubeconfig) != string(seen.Kubeconfig) {
		r.Error("a repeated Apply changed something")
	}
	r.expectAdopted(again)
	r.expectChange()
	r.remove()
	r.remove() // idempotent
}

// expectAdopted continues with the next engine, for a cluster that the one before has observed so.
func (r *run) expectAdopted(before cluster.Observation) {
	r.restart()
	seen := r.observe()
	if !seen.Exists || !seen.Applied || seen.Attended {
		r.Errorf("the next engine observes Exists %v, Applied %v, Attended %v; want true, true, false", seen.Exists, seen.Applied, seen.Attended)
	}
	if string(seen.Kubeconfig) != string(before.Kubeconfig) {
		r.Error("the next engine has a different kubeconfig")
	}
	r.apply()
}

func testDeleteEarly(r *run) {
	r.do(r.engine.Apply(r.Context(), r.request))
	r.remove()
}

func testLost(r *run) {
	if r.Lose == nil {
		r.Skip("SKIP: this engine has no files")
	}
	r.apply()
	r.do(r.engine.Close())
	r.engine = nil
	r.Lose(r.request)
	r.restart()
	if _, err := r.engine.Observe(r.Context(), r.request); !errors.Is(err, cluster.ErrStateMissing) {
		r.Errorf("Observe returns %v, want a missing state", err)
	}
}

func testClosed(r *run) {
	r.do(r.engine.Close())
	if err := r.engine.Apply(r.Context(), r.request); !errors.Is(err, cluster.ErrStopping) {
		r.Errorf("Apply returns %v, want a stopping manager", err)
	}
	if err := r.engine.Delete(r.Context(), r.request); !errors.Is(err, cluster.ErrStopping) {
		r.Errorf("Delete returns %v, want a stopping manager", err)
	}
	r.engine = nil
	r.restart()
}

func testAbandon(r *run) {
	r.apply()
	r.do(r.engine.Abandon(r.Context(), r.request))
	if len(r.Left(r.request)) == 0 {
		r.Error("the abandoned cluster was removed")
	}
	r.restart()
	r.remove()
}

// testKeep is for a cluster.OrphanStopper; other engines run nothing on the host.
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
		r.Errorf("after a stop Observe returns %+v", seen)
	}
	if len(r.Left(r.request)) == 0 {
		r.Error("the stopped cluster was removed")
	}
	r.stop() // idempotent
	if after := r.apply(); after.ConfigHash != before.ConfigHash || string(after.Kubeconfig) != string(before.Kubeconfig) {
		r.Error("after a stop and a start it is a different cluster")
	}
	r.expectRunning(true)

	r.restart()
	r.expectRunning(true)
	r.stop()
	r.restart()
	r.expectRunning(false)
}

// testStop is for engines that can stop a cluster.
func testStop(r *run) {
	if r.request.Spec.EngineOrDefault() == v1alpha1.EngineRKE {
		return
	}
	r.applyStop() // nothing exists
	if left := r.Left(r.request); len(left) > 0 {
		r.Errorf("stopping nothing has created: %v", left)
	}
	before := r.apply()
	r.applyStop()
	if seen := r.observe(); !seen.Exists || !seen.Applied || string(seen.Kubeconfig) != string(before.Kubeconfig) {
		r.Errorf("after a stop Observe returns %+v", seen)
	}
	r.applyStop() // idempotent
	r.restart()
	r.applyStop()
	if after := r.apply(); after.ConfigHash != before.ConfigHash || string(after.Kubeconfig) != string(before.Kubeconfig) {
		r.Error("after a stop and a start it is a different cluster")
	}
	r.restart()
	r.applyStop() // by an engine that has never seen it run

	if err := r.engine.Apply(r.Context(), r.request); err != nil {
		r.Fatal(err)
	}
	r.applyStop() // while it starts
}

// applyStop stops the cluster by a request.
func (r *run) applyStop() {
	r.Helper()
	r.request.Stop = true
	defer func() { r.request.Stop = false }()
	r.do(r.engine.Apply(r.Context(), r.request))
	r.eventually("it is stopped", func() bool {
		seen := r.observe()
		if o := seen.Operation; o != nil && o.State == v1alpha1.OperationFailed && !o.Stale {
			r.Fatalf("the stop failed: %v", o.Err)
		}
		if seen.Stopped && !seen.Running {
			return true
		}
		if !seen.Attended {
			r.do(r.engine.Apply(r.Context(), r.request))
		}
		return false
	})
	if _, ok := r.engine.(cluster.OrphanStopper); ok {
		r.expectRunning(false)
	}
}

// stop stops the cluster and checks that it is not running.
func (r *run) stop() {
	r.Helper()
	r.do(r.engine.(cluster.OrphanStopper).StopOrphan(r.Context(), r.request.UID))
	r.expectRunning(false)
}

// expectRunning fails the test unless the engine reports the cluster as running, or reports none.
// It may report a cluster as soon as it is applied.
func (r *run) expectRunning(want bool) {
	r.Helper()
	var found []cluster.HostedCluster
	r.eventually(fmt.Sprintf("it is reported as running: %v", want), func() bool {
		var err error
		found, err = r.engine.(cluster.OrphanStopper).List(r.Context())
		r.do(err)
		return (len(found) > 0) == want
	})
	if want && (len(found) != 1 || found[0].Name != r.request.Name || found[0].UID != r.request.UID || found[0].ManagementClusterUID != r.request.ManagementClusterUID || found[0].Dir == "") {
		r.Errorf("reported as running: %+v, for the request %+v", found, r.request)
	}
}
