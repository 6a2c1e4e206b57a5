package foo

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
)

func TestDecide(t *testing.T) {
	foo := newFoo()
	renamedFoo := newFoo(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
	for _, test := range []struct {
		name string
		foo  *v1alpha1.Foo
		seen observation
		want plan
	}{
		{
			name: "there is no Deployment: create it",
			seen: see(foo),
			want: plan{action: create},
		},
		{
			name: "the Deployment is as it should be: nothing to do",
			seen: see(foo, ownedBy(foo)),
			want: plan{action: keep, current: ownedBy(foo)},
		},
		{
			name: "somebody scaled the Deployment: scale it back",
			seen: see(foo, ownedBy(foo, scaled(5))),
			want: plan{action: repair, current: ownedBy(foo, scaled(5)), differs: []string{"replicas 5 instead of 3"}},
		},
		{
			name: "the Deployment is on its way out: wait for the end of it",
			seen: see(foo, ownedBy(foo, deleted)),
			want: plan{action: waitForDeletion, current: ownedBy(foo, deleted)},
		},
		{
			name: "the Deployment is on its way out and differs: it is not worth a repair",
			seen: see(foo, ownedBy(foo, deleted, scaled(5))),
			want: plan{action: waitForDeletion, current: ownedBy(foo, deleted, scaled(5))},
		},
		{
			name: "the selector differs, which cannot be changed: start over",
			seen: see(foo, ownedBy(foo, func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels["app"] = "x" })),
			want: plan{
				action:  replace,
				current: ownedBy(foo, func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels["app"] = "x" }),
			},
		},
		{
			name: "the Deployment has no owner: it is someone else's",
			seen: see(foo, ownedBy(foo, orphaned)),
			want: plan{action: blocked},
		},
		{
			name: "the Deployment has another controller: it is someone else's",
			seen: see(foo, ownedBy(foo, func(d *appsv1.Deployment) {
				d.OwnerReferences[0] = metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "shop", UID: "c", Controller: ptr.To(true)}
			})),
			want: plan{action: blocked},
		},
		{
			name: "the Foo is an owner but not the controller: the Deployment is someone else's",
			seen: see(foo, ownedBy(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].Controller = nil })),
			want: plan{action: blocked},
		},
		{
			name: "the Deployment is of another Foo: it is someone else's",
			seen: see(foo, ownedBy(newFoo(func(f *v1alpha1.Foo) { f.Name, f.UID = "stall", "foo-2" }))),
			want: plan{action: blocked},
		},
		{
			name: "the Deployment is of an earlier Foo of this name: the garbage collector is about to delete it",
			seen: see(foo, ownedBy(foo, ofEarlierFoo)),
			want: plan{action: waitForCollection},
		},
		{
			name: "the Foo was renamed: the new Deployment comes first",
			foo:  renamedFoo,
			seen: see(renamedFoo, ownedBy(foo)),
			want: plan{action: create},
		},
		{
			name: "the Foo was renamed and the new Deployment is not available: the old one goes on serving",
			foo:  renamedFoo,
			seen: see(renamedFoo, ownedBy(foo), ownedBy(renamedFoo, unavailable)),
			want: plan{action: keep, current: ownedBy(renamedFoo, unavailable), again: podPatience},
		},
		{
			name: "the Foo was renamed and somebody scaled the new Deployment: the old one goes on serving",
			foo:  renamedFoo,
			seen: see(renamedFoo, ownedBy(foo), ownedBy(renamedFoo, scaled(0))),
			want: plan{action: repair, current: ownedBy(renamedFoo, scaled(0)), differs: []string{"replicas 0 instead of 3"}},
		},
		{
			name: "the Foo was renamed and the new Deployment is available: the old one goes",
			foo:  renamedFoo,
			seen: see(renamedFoo, ownedBy(foo), ownedBy(renamedFoo)),
			want: plan{action: keep, current: ownedBy(renamedFoo), renamed: []*appsv1.Deployment{ownedBy(foo)}},
		},
		{
			name: "the Foo was renamed to a name that someone else has: the old Deployment goes on serving",
			foo:  renamedFoo,
			seen: see(renamedFoo, ownedBy(foo), ownedBy(renamedFoo, orphaned)),
			want: plan{action: blocked},
		},
		{
			name: "the old Deployment of a renamed Foo is on its way out: nothing to do",
			foo:  renamedFoo,
			seen: see(renamedFoo, ownedBy(foo, deleted), ownedBy(renamedFoo)),
			want: plan{action: keep, current: ownedBy(renamedFoo)},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.foo == nil {
				test.foo = foo
			}
			test.want.at = noon
			got := decide(test.foo, test.seen, noon)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(plan{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("decide (-want +got):\n%s", diff)
			}
		})
	}
}

// What the cache drops of a Deployment must make no difference.
func TestDecideSeesTheSameInASlimDeployment(t *testing.T) {
	foo := newFoo()
	for _, deployment := range []*appsv1.Deployment{
		ownedBy(foo), ownedBy(foo, scaled(5)), ownedBy(foo, deleted), ownedBy(foo, orphaned), ownedBy(foo, ofEarlierFoo),
		ownedBy(foo, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "other" }),
		ownedBy(foo, func(d *appsv1.Deployment) { d.Spec.Template.Labels = nil }), ownedBy(foo, unconfined),
		ownedBy(foo, func(d *appsv1.Deployment) { d.Labels = nil }),
		ownedBy(foo, func(d *appsv1.Deployment) { d.Spec.Selector.MatchLabels["app"] = "x" }),
		ownedBy(foo, func(d *appsv1.Deployment) { d.Status.UpdatedReplicas = 1 }),
		ownedBy(foo, unavailable, stuck(appsv1.DeploymentProgressing, "False", "ProgressDeadlineExceeded", "timed out")),
		ownedBy(foo, unavailable, stuck(appsv1.DeploymentReplicaFailure, "True", "FailedCreate", "exceeded quota")),
	} {
		slim := must(slimDeployment(deployment.DeepCopy())).(*appsv1.Deployment)
		for _, d := range []*appsv1.Deployment{deployment, slim} {
			if got := d.OwnerReferences; !cmp.Equal(got, deployment.OwnerReferences) {
				t.Errorf("owner references are %v", got)
			}
		}
		full, thin := see(foo, deployment), see(foo, slim)
		fullPlan, thinPlan := decide(foo, full, noon), decide(foo, thin, noon)
		want := summarize(foo, full, fullPlan, nil)
		got := summarize(foo, thin, thinPlan, nil)
		if fullPlan.action != thinPlan.action || !cmp.Equal(fullPlan.differs, thinPlan.differs) || !cmp.Equal(want, got) {
			t.Errorf("of the whole Deployment: %s %q %v\nof the slim one: %s %q %v",
				fullPlan.action, fullPlan.differs, want, thinPlan.action, thinPlan.differs, got)
		}
	}
}
