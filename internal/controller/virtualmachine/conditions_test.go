package virtualmachine

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

// The condition RestartRequired says why the last start did not apply a change.
func TestChangeThatAStartCannotApply(t *testing.T) {
	server := &backend.Server{State: backend.StateRunning, Pending: []string{"resource.rootDisk"}, PendingReason: "the claim does not grow"}
	conditions := summarizeServerConditions(&v1alpha1.VirtualMachine{}, observation{name: "pod", server: server}, plan{}, metav1.Condition{})
	restart := meta.FindStatusCondition(conditions, v1alpha1.ConditionRestartRequired)
	if restart == nil || restart.Status != metav1.ConditionTrue || !strings.Contains(restart.Message, "resource.rootDisk") ||
		!strings.Contains(restart.Message, server.PendingReason) {
		t.Errorf("RestartRequired is %+v", restart)
	}
}
