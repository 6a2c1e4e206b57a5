package crontab

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

func TestRequestedValues(t *testing.T) {
	parameters := []stablev1.Parameter{
		{Name: "region", Default: "us", Enum: []stablev1.ParameterValue{"us", "eu"}},
		{Name: "note"},
		{Name: "ticket", Required: true},
	}
	for _, test := range []struct {
		name  string
		given Values
		want  Values
		err   string
	}{
		{name: "defaults", given: Values{"ticket": "7"}, want: Values{"region": "us", "note": "", "ticket": "7"}},
		{name: "other values", given: Values{"ticket": "7", "region": "eu", "note": "a=b,c"}, want: Values{"region": "eu", "note": "a=b,c", "ticket": "7"}},
		{name: "a name that is unknown", given: Values{"ticket": "7", "regoin": "eu"}, err: `there is no parameter "regoin" in spec.parameters: "note", "region", "ticket"`},
		{name: "a value outside of the enum", given: Values{"ticket": "7", "region": "mars"}, err: `the parameter "region" cannot be "mars", only "us", "eu"`},
		{name: "an empty value outside of the enum", given: Values{"ticket": "7", "region": ""}, err: `the parameter "region" cannot be "", only "us", "eu"`},
		{name: "nothing for one that is required", err: `the parameter "ticket" is required and has no value`},
		{name: "an empty value for one that is required", given: Values{"ticket": ""}, err: `the parameter "ticket" is required and has no value`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := RequestedValues(&stablev1.CronTabSpec{Parameters: parameters, RunParameters: test.given})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("values (-want +got):\n%s", diff)
			}
			if (err != nil) != (test.err != "") || err != nil && err.Error() != test.err {
				t.Errorf("error %v, want %q", err, test.err)
			}
		})
	}
	if values, err := RequestedValues(&stablev1.CronTabSpec{RunParameters: Values{"a": "b"}}); err == nil || err.Error() != `there is no parameter "a" in spec.parameters` {
		t.Errorf("without parameters: %v, %v", values, err)
	}
}

// The values come before what refers to them, are what a user typed, and the Pod of the caller stays as it is.
func TestAddValues(t *testing.T) {
	newPod := func() *corev1.PodSpec {
		return &corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first"}},
			Containers:     []corev1.Container{{Name: "main", Env: []corev1.EnvVar{{Name: "URL", Value: "https://$(region)"}}}},
		}
	}
	template := newPod()
	pod := *template
	Values{"region": "eu", "price": "5$ or $(region)"}.AddTo(&pod)
	env := []corev1.EnvVar{{Name: "price", Value: "5$$ or $$(region)"}, {Name: "region", Value: "eu"}}
	want := newPod()
	want.InitContainers[0].Env = env
	want.Containers[0].Env = append(env[:2:2], want.Containers[0].Env...)
	if diff := cmp.Diff(want, &pod); diff != "" {
		t.Errorf("the Pod (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(newPod(), template); diff != "" {
		t.Errorf("the template has changed (-want +got):\n%s", diff)
	}
}
