package statuscheck

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
)

func TestProblems(t *testing.T) {
	well := func() *v1alpha1.Foo {
		return &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "b", Generation: 3},
			Status: v1alpha1.FooStatus{
				ObservedGeneration: 3,
				Conditions: []metav1.Condition{{
					Type: "Ready", Status: metav1.ConditionTrue, Reason: "AllGood2", Message: "All is well",
					ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(time.Unix(1e9, 0)),
				}},
			},
		}
	}
	for _, test := range []struct {
		name  string
		spoil func(*v1alpha1.Foo)
		want  []string
	}{
		{"a settled object is fine", func(*v1alpha1.Foo) {}, nil},
		{
			"the status is about an earlier generation",
			func(f *v1alpha1.Foo) { f.Generation = 4 },
			[]string{
				"status.observedGeneration is 3, the generation is 4",
				"condition Ready has observedGeneration 3, the generation is 4",
			},
		},
		{
			"there are no conditions",
			func(f *v1alpha1.Foo) { f.Status.Conditions = nil },
			[]string{"condition Ready is missing"},
		},
		{
			"a condition has a name that other tools know",
			func(f *v1alpha1.Foo) {
				stalled := f.Status.Conditions[0]
				stalled.Type = "Stalled"
				f.Status.Conditions = append(f.Status.Conditions, stalled)
			},
			[]string{"kstatus says Failed: All is well"},
		},
		{
			"a condition is duplicated",
			func(f *v1alpha1.Foo) {
				f.Status.Conditions = append(f.Status.Conditions, f.Status.Conditions[0])
			},
			[]string{"condition Ready is duplicated"},
		},
		{
			"a condition has only a type",
			func(f *v1alpha1.Foo) {
				f.Status.Conditions = append(f.Status.Conditions, metav1.Condition{Type: "Bare", ObservedGeneration: 3})
			},
			[]string{
				`condition Bare has reason "", which is not in camel case`,
				"condition Bare has no message",
				"condition Bare has no lastTransitionTime",
				`condition Bare has status ""`,
			},
		},
		{
			"a reason is a sentence",
			func(f *v1alpha1.Foo) { f.Status.Conditions[0].Reason = "all good" },
			[]string{`condition Ready has reason "all good", which is not in camel case`},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			foo := well()
			test.spoil(foo)
			if diff := cmp.Diff(test.want, Problems(foo)); diff != "" {
				t.Errorf("Problems (-want +got):\n%s", diff)
			}
		})
	}
}
