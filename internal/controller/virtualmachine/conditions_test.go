package virtualmachine

import (
	"strings"
	"testing"

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
