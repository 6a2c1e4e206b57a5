package virtualmachine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// The condition RestartRequired says why a change could not be applied.
func TestChangeThatCannotBeApplied(t *testing.T) {
	server := &backend.Server{State: backend.StateRunning, Pending: []string{"resource.rootDisk"}, PendingReason: "the claim does not grow"}
	conditions := summarizeServerConditions(&v1alpha1.VirtualMachine{}, observation{name: "pod", server: server}, plan{}, metav1.Condition{})
	restart := meta.FindStatusCondition(conditions, v1alpha1.ConditionRestartRequired)
	if restart == nil || restart.Status != metav1.ConditionTrue || !strings.Contains(restart.Message, "resource.rootDisk") ||
		!strings.Contains(restart.Message, server.PendingReason) {
		t.Errorf("RestartRequired is %+v", restart)
	}
}

// A start that waits says for what, at once, and as an event.
func TestBlockedStart(t *testing.T) {
	for name, test := range map[string]struct {
		blocked *backend.Blocked
		want    string
		reason  string
	}{
		"it makes progress":      {nil, "", v1alpha1.ReasonStarting},
		"no node can take it":    {&backend.Blocked{Unschedulable: true, Message: "0/3 nodes are available: 3 Insufficient cpu."}, "3 Insufficient cpu. It starts when", v1alpha1.ReasonUnschedulable},
		"its image is not there": {&backend.Blocked{Message: "ErrImagePull: not found"}, "ErrImagePull: not found. It is retried", v1alpha1.ReasonPowerFailed},
	} {
		t.Run(name, func(t *testing.T) {
			vm, server := newVM(), newServer(backend.StateStopped, during(backend.TaskStart), func(s *backend.Server) { s.Blocked = test.blocked })
			status := summarize(vm, observedServer(server), decide(vm, observedServer(server), noon), acted{})
			ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
			if ready.Reason != test.reason || !strings.Contains(ready.Message, test.want) || isNews(metav1.Condition{}, *ready) != (test.blocked != nil) {
				t.Errorf("%s: %s, news: %t", ready.Reason, ready.Message, isNews(metav1.Condition{}, *ready))
			}
		})
	}
}

// A guest that has said nothing since it was powered on says so, and each reset is news. One that answers, or has no agent, is what it is.
func TestSilentGuest(t *testing.T) {
	reset := func(n int) *backend.Silence { return &backend.Silence{Resets: n, After: 40 * time.Second} }
	gaveUp := &backend.Silence{Resets: 3, After: time.Minute, GaveUp: true}
	ready := func(agent backend.Agent, silence *backend.Silence) metav1.Condition {
		server := newServer(backend.StateRunning, func(s *backend.Server) { s.Agent, s.Silence = agent, silence })
		return readyByServer(power{}, server, func(reason, format string, args ...any) metav1.Condition {
			return newCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, format, args...)
		})
	}
	for name, test := range map[string]struct {
		agent      backend.Agent
		was, is    *backend.Silence
		reason     string
		wantInside string
		news       bool
	}{
		"it boots":            {backend.AgentWaiting, nil, nil, v1alpha1.ReasonGuestBooting, "", false},
		"its first reset":     {backend.AgentWaiting, nil, reset(1), v1alpha1.ReasonGuestReset, "said nothing for 40s", true},
		"its second reset":    {backend.AgentWaiting, reset(1), reset(2), v1alpha1.ReasonGuestReset, "after reset 2", true},
		"it boots after that": {backend.AgentWaiting, reset(2), reset(2), v1alpha1.ReasonGuestReset, "", false},
		"resets did not help": {backend.AgentWaiting, reset(3), gaveUp, v1alpha1.ReasonGuestSilent, "3 resets did not help", true},
		"it answers":          {backend.AgentConnected, reset(2), reset(2), v1alpha1.ReasonGuestReady, "", false},
		"it has no agent":     {backend.AgentNone, nil, gaveUp, v1alpha1.ReasonRunning, "", false},
		"its agent was lost":  {backend.AgentLost, nil, gaveUp, v1alpha1.ReasonGuestSilent, "stopped responding", true},
	} {
		t.Run(name, func(t *testing.T) {
			was, is := ready(backend.AgentWaiting, test.was), ready(test.agent, test.is)
			if is.Reason != test.reason || !strings.Contains(is.Message, test.wantInside) || isNews(was, is) != test.news {
				t.Errorf("%s: %s, news: %t", is.Reason, is.Message, isNews(was, is))
			}
		})
	}
}

// A run whose guest does not boot yet has its progress in Ready.
func TestProgressBeforeTheGuestBoots(t *testing.T) {
	for name, test := range map[string]struct {
		agent                                 backend.Agent
		progress, message, reason, wantInside string
	}{
		"the image is being downloaded": {backend.AgentWaiting, "the image is being downloaded, 40 % of 100 MiB", "", v1alpha1.ReasonStarting, "40 %"},
		"the guest boots":               {backend.AgentWaiting, "", "", v1alpha1.ReasonGuestBooting, "has not responded yet"},
		"the agent was lost":            {backend.AgentLost, "", "", v1alpha1.ReasonGuestSilent, "stopped responding"},
		"a volume is full":              {backend.AgentLost, "", "a full volume", v1alpha1.ReasonGuestHalted, "a full volume"},
		"without an agent, it is full":  {backend.AgentNone, "", "a full volume", v1alpha1.ReasonGuestHalted, "a full volume"},
	} {
		server := newServer(backend.StateRunning, func(s *backend.Server) { s.Agent, s.Progress, s.Message = test.agent, test.progress, test.message })
		ready := readyByServer(power{}, server, func(reason, format string, args ...any) metav1.Condition {
			return newCondition(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, format, args...)
		})
		if ready.Reason != test.reason || !strings.Contains(ready.Message, test.wantInside) {
			t.Errorf("%s: %s: %s", name, ready.Reason, ready.Message)
		}
	}
}
