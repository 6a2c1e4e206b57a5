package cluster_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/engine/fake"
)

const stopAfter = 30 * time.Minute

// idling sets spec.idle.
func idling(c *v1alpha1.Cluster) {
	c.Spec.Idle = &v1alpha1.ClusterIdle{StopAfter: metav1.Duration{Duration: stopAfter}}
}

// talk makes a client be connected to the cluster now.
func (w *world) talk() {
	w.outside.Change(w.get().UID, func(c *fake.Cluster) *fake.Cluster {
		c.LastClient = w.clock.Now()
		return c
	})
}

// becomeIdle lets the time of spec.idle pass.
func (w *world) becomeIdle() {
	w.Helper()
	w.talk()
	w.pass(stopAfter)
	w.settle()
	w.expectAtRest()
}

func TestIdle(t *testing.T) {
	w := newWorld(t)
	w.made(idling)
	w.talk()
	w.pass(stopAfter - time.Minute)
	if result := w.reconcile(); result.RequeueAfter <= 0 || result.RequeueAfter > time.Minute {
		t.Errorf("the next reconcile is after %s", result.RequeueAfter)
	}
	w.expectWhole()
	w.events()
	w.outside.Calls()

	w.becomeIdle()
	message := w.get().Status.Message
	if !strings.Contains(message, "idle") || !strings.Contains(message, "A connection to https://"+w.name+".example:6443 starts it") {
		t.Errorf("the message is %q", message)
	}
	if len(w.prober.Targets()) > 0 {
		t.Error("an idle cluster is probed, which would start it")
	}
	if events := w.events(); strings.Contains(events, "Warning") || strings.Count(events, "Normal "+v1alpha1.ReasonStopped) != 1 {
		t.Errorf("events:\n%s", events)
	}
	if calls := len(w.outside.Calls()); calls != 1 {
		t.Errorf("%d calls of the engine to stop it", calls)
	}

	w.restart() // the next manager does not start it, and its engine listens again
	w.settle()
	w.expectAtRest()
	if calls := len(w.outside.Calls()); calls != 1 {
		t.Errorf("%d calls of the next engine to listen", calls)
	}
	if events := w.events(); events != "" {
		t.Errorf("events of a restart:\n%s", events)
	}

	w.outside.Connect(w.get().UID)
	w.talk()
	w.settle()
	w.expectWhole()
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
	if events := w.events(); strings.Contains(events, "Warning") || strings.Count(events, "Normal "+v1alpha1.ReasonClientConnected) != 1 {
		t.Errorf("events:\n%s", events)
	}

	w.becomeIdle()
	w.delete()
	w.settle()
	w.expectNothing()
}

// A cluster that is stopped because it is idle stays stopped when spec.running becomes false, and runs when spec.idle is removed.
func TestIdleAndTheRestOfTheSpec(t *testing.T) {
	w := newWorld(t)
	w.made(idling)
	w.becomeIdle()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.APIServer = &v1alpha1.APIServer{Port: 16443} })
	w.settle()
	w.expectAtRest()
	w.expect(v1alpha1.ConditionProvisioned, "False", v1alpha1.ReasonStopped)

	w.run(false)
	w.settle()
	w.expectAtRest()
	if message := w.get().Status.Message; strings.Contains(message, "idle") {
		t.Errorf("the message is %q", message)
	}
	w.run(true)
	w.settle()
	w.expectWhole()

	w.becomeIdle()
	w.change(func(c *v1alpha1.Cluster) { c.Spec.Idle = nil })
	w.settle()
	w.expectWhole()
}
