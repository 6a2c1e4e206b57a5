package pod

import (
	"slices"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// runningWith returns a new machine that runs with an eviction policy.
func (c *cluster) runningWith(policy v1alpha1.EvictionPolicy) backend.Machine {
	c.Helper()
	machine := c.machine(uuid.NewUUID())
	machine.Pod.EvictionPolicy = policy
	c.runs(machine)
	return machine
}

// evict asks once to evict the Pod of a machine: the client would ask again for 100 seconds after a refusal.
func (c *cluster) evict(machine backend.Machine) error {
	object := metav1.ObjectMeta{Namespace: machine.Namespace, Name: objectName(machine.UID)}
	return c.api.CoreV1().RESTClient().Post().Namespace(object.Namespace).Resource("pods").Name(object.Name).SubResource("eviction").
		Body(&policyv1.Eviction{ObjectMeta: object}).MaxRetries(0).Do(c.Context()).Error()
}

// The API server refuses to evict a machine with the policy none, until that changes.
func TestEvictionIsRefused(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.runningWith(v1alpha1.EvictionNone)
	if err := c.evict(machine); !apierrors.IsTooManyRequests(err) {
		t.Errorf("the eviction: %v", err)
	}
	server := c.until(machine, "it runs on", isRunning)
	if len(server.Pending) > 0 {
		t.Errorf("pending are %q", server.Pending)
	}
	machine.Pod.EvictionPolicy, machine.Hash = v1alpha1.EvictionStop, "2"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	if err := c.evict(machine); err != nil {
		t.Errorf("the eviction with another policy: %v", err)
	}
	c.until(machine, "it is off", func(s backend.Server) bool {
		return s.State == backend.StateStopped && s.Ended != nil && s.Ended.Cause == backend.CauseHost
	})
	machine.Pod.EvictionPolicy, machine.Hash = v1alpha1.EvictionNone, "3"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	c.remove(machine)
	c.nothingLeft()
}

// A machine with the policy sleep falls asleep when it is evicted, and not when it is stopped.
func TestEvictedMachineSleeps(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.runningWith(v1alpha1.EvictionSleep)
	if grace := *c.pod(machine).Spec.TerminationGracePeriodSeconds; grace != usualGrace+4 { // 128 MiB
		t.Errorf("its Pod has %d s", grace)
	}
	if err := c.evict(machine); err != nil {
		t.Fatal(err)
	}
	c.until(machine, "it is asleep", isAsleep)
	changed := machine
	changed.MemoryBytes, changed.Hash = 256<<20, "2"
	harness.Eventually(t, "it is awake", func() bool {
		c.must("Start", c.driver.Start(t.Context(), changed))
		server, err := c.driver.Observe(t.Context(), machine.Identity)
		return err == nil && isRunning(server)
	})
	if now := c.definition(machine); now.MemoryBytes != machine.MemoryBytes || now.Epoch != "" {
		t.Errorf("it wakes as %+v", now)
	}
	c.stop(machine)
	server := c.until(machine, "it is off", func(s backend.Server) bool { return s.Ended != nil })
	if server.Ended.Cause != backend.CauseRequested {
		t.Errorf("it was stopped, and is %+v", server)
	}
	c.remove(machine)
}

// A change from or to the policy sleep is one of the Pod.
func TestEvictionPolicyIsPending(t *testing.T) {
	c := newCluster(t)
	c.open(t)
	machine := c.running()
	machine.Pod.EvictionPolicy, machine.Hash = v1alpha1.EvictionSleep, "2"
	c.must("Reconfigure", c.driver.Reconfigure(t.Context(), machine))
	c.until(machine, "the change is pending", func(s backend.Server) bool { return slices.Equal(s.Pending, []string{"pod.evictionPolicy"}) })
	c.sleep(machine)
	c.must("Start", c.driver.Start(t.Context(), machine))
	c.until(machine, "it is awake, with the change", func(s backend.Server) bool { return isRunning(s) && len(s.Pending) == 0 })
	c.remove(machine)
}
