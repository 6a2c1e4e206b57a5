package manager

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1alpha1 "github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	"github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// What is stored while nobody can be asked is said in conditions, and stays manageable: metadata, finalizers, status and
// deletions are nobody's business but the API server's.
func TestLongWebhookAway(t *testing.T) {
	const namespace = metav1.NamespaceDefault
	cfg, c, o := newAsked(t)
	m := startWith(t, cfg, o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	awaitRefusal(t, c, namespace, true)
	m.stop()
	if err := within(t, "the manager to stop", m.result); err != nil {
		t.Fatal(err)
	}
	awaitRefusal(t, c, namespace, false)

	stored := []struct {
		name   string
		object client.Object
		// condition is the one that says what is wrong, and reason why.
		condition, reason string
		// change is a patch that leaves the mistake as it is, another one that makes another mistake, of which says is a part.
		change, another, says string
	}{
		{
			"a schedule", newCronTab(namespace, "bad", backwards),
			stablev1.ConditionReady, stablev1.ReasonInvalidSchedule,
			`{"spec":{"suspend":true}}`, `{"spec":{"schedule":"31-10 * * * *"}}`, "the range runs backwards",
		},
		{
			"a driver", &v1alpha1.VirtualMachine{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lost"}, Spec: v1alpha1.VirtualMachineSpec{Driver: "bhyve"},
			},
			v1alpha1.ConditionReady, v1alpha1.ReasonDriverMissing,
			`{"spec":{"action":"stopped"}}`, "", "",
		},
		{
			"a file for rke, as the original had it", &clusterv1alpha1.Cluster{
				ObjectMeta: metav1.ObjectMeta{Name: "outside"}, Spec: clusterv1alpha1.ClusterSpec{LegacyConfigPath: "/etc/passwd"},
			},
			clusterv1alpha1.ConditionProvisioned, clusterv1alpha1.ReasonInvalidSpec,
			`{"spec":{"paused":true}}`, `{"spec":{"configPath":"/etc/shadow"}}`, "clusters.rkeConfigDirs",
		},
		{
			"a Secret", &clusterv1alpha1.Kubeconfig{
				ObjectMeta: metav1.ObjectMeta{Name: "secret"},
				Spec:       clusterv1alpha1.KubeconfigSpec{SecretRef: &clusterv1alpha1.SecretReference{Namespace: "kube-system", Name: "a"}},
			},
			clusterv1alpha1.ConditionReady, clusterv1alpha1.ReasonKubeconfigInvalid,
			`{"spec":{"secretRef":{"name":"b"}}}`, `{"spec":{"secretRef":{"namespace":"kube-public"}}}`, "in the namespace default only",
		},
		{
			"a kubeconfig, as the original had it", &clusterv1alpha1.Kubeconfig{
				ObjectMeta: metav1.ObjectMeta{Name: "file"}, Spec: clusterv1alpha1.KubeconfigSpec{LegacyConfigPath: "/etc/kubernetes/admin.conf"},
			},
			clusterv1alpha1.ConditionReady, clusterv1alpha1.ReasonKubeconfigInvalid,
			`{"spec":{"ConfigPath":""}}`, `{"spec":{"configPath":"/etc/shadow"}}`, "clusters.rkeConfigDirs",
		},
	}
	began := time.Now()
	for _, test := range stored {
		test.object.SetFinalizers([]string{"example.com/test"})
		if err := c.Create(t.Context(), test.object); err != nil {
			t.Fatalf("%s, while the manager is away: %v", test.name, err)
		}
	}
	t.Logf("%d objects were created in %v while the manager was away", len(stored), time.Since(began))

	// Another manager, at another port, with another authority.
	within(t, "the manager to be ready", startWith(t, cfg, o, controllers...).Ready())
	awaitRefusal(t, c, namespace, true)
	for _, test := range stored {
		t.Run(test.name, func(t *testing.T) {
			object := test.object
			harness.Eventually(t, "the condition says "+test.reason, func() bool {
				return reasonOf(t, c, object, test.condition) == test.reason
			})
			patch := func(patch string) error {
				return c.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)))
			}
			if err := patch(`{"metadata":{"labels":{"a":"b"}}}`); err != nil {
				t.Errorf("a label: %v", err)
			}
			if err := patch(`{"metadata":{"finalizers":["example.com/test","example.com/other"]}}`); err != nil {
				t.Errorf("a finalizer: %v", err)
			}
			if err := patch(test.change); err != nil {
				t.Errorf("a change beside the mistake: %v", err)
			}
			if test.another != "" {
				if err := patch(test.another); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("another mistake: got %v, want a refusal in words with %q", err, test.says)
				}
			}
			if err := c.Delete(t.Context(), object); err != nil {
				t.Errorf("a deletion: %v", err)
			}
			if err := patch(`{"metadata":{"finalizers":null}}`); err != nil {
				t.Errorf("its finalizers: %v", err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); !apierrors.IsNotFound(err) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

// reasonOf returns the reason of a condition of an object.
func reasonOf(t *testing.T, c client.Client, object client.Object, condition string) string {
	t.Helper()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
		t.Fatal(err)
	}
	var conditions []metav1.Condition
	switch object := object.(type) {
	case *stablev1.CronTab:
		conditions = object.Status.Conditions
	case *v1alpha1.VirtualMachine:
		conditions = object.Status.Conditions
	case *clusterv1alpha1.Cluster:
		conditions = object.Status.Conditions
	case *clusterv1alpha1.Kubeconfig:
		conditions = object.Status.Conditions
	}
	if found := meta.FindStatusCondition(conditions, condition); found != nil {
		return found.Reason
	}
	return ""
}
