package manager

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// A manager answers for all kinds that the configuration of an installation has: by its rules for those whose controllers it
// runs, and with no objection for others.
func TestWebhookOfControllersThatAreOff(t *testing.T) {
	for _, test := range []struct {
		controllers string
		// refused are the resources of which it refuses what its rules forbid.
		refused map[string]bool
	}{
		{"crontab,virtualmachine", map[string]bool{cronTabs: true, virtualMachines: true}},
		{"crontab", map[string]bool{cronTabs: true}},
		{"foo", map[string]bool{}},
	} {
		t.Run(test.controllers, func(t *testing.T) {
			c, namespace := newWebhookClient(t), env.Namespace(t)
			o := webhookOptions(t, c, namespace)
			o.Controllers = strings.Split(test.controllers, ",")
			front := newBalancer(t)
			mustAnswerAt(t, c, o, front.address(), cronTabs, virtualMachines)
			m := start(t, o, controllers...)
			within(t, "the manager to be ready", m.Ready())
			front.add(m.WebhookAddress())

			for resource, wrong := range map[string]client.Object{
				cronTabs: newCronTab(namespace, "wrong", backwards),
				virtualMachines: &v1alpha1.VirtualMachine{
					ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "wrong"}, Spec: v1alpha1.VirtualMachineSpec{Driver: "docker"},
				},
			} {
				var err error
				harness.Eventually(t, "the API server has an answer about "+resource, func() bool {
					err = c.Create(t.Context(), wrong.DeepCopyObject().(client.Object), client.DryRunAll)
					return err == nil || apierrors.IsInvalid(err)
				})
				if got := err != nil; got != test.refused[resource] {
					t.Errorf("%s are refused: %t, want %t: %v", resource, got, test.refused[resource], err)
				}
			}
		})
	}
}
