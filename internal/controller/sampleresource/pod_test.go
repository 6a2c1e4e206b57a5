package sampleresource

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	samplev1 "github.com/keelson-dev/keelson/api/sample/v1"
)

func TestNewPod(t *testing.T) {
	want := `{
  "metadata": {
    "name": "sample-1",
    "namespace": "market",
    "labels": {
      "app.kubernetes.io/instance": "sample",
      "app.kubernetes.io/managed-by": "keelson",
      "app.kubernetes.io/name": "sampleresource"
    },
    "ownerReferences": [
      {
        "apiVersion": "example.com/v1",
        "kind": "SampleResource",
        "name": "sample",
        "uid": "sample-1",
        "controller": true,
        "blockOwnerDeletion": true
      }
    ]
  },
  "spec": {
    "containers": [
      {
        "name": "sample",
        "image": "nginx:1.29",
        "resources": {},
        "securityContext": {
          "allowPrivilegeEscalation": false
        }
      }
    ],
    "automountServiceAccountToken": false,
    "securityContext": {
      "seccompProfile": {
        "type": "RuntimeDefault"
      }
    }
  },
  "status": {}
}`
	if diff := cmp.Diff(want, asJSON(newPod(newSample(), "sample-1"))); diff != "" {
		t.Errorf("newPod (-want +got):\n%s", diff)
	}
}

func TestNamesOfPodsAreValidAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a", 252), strings.Repeat("a", 249) + ".abc"} {
		for _, n := range []int{0, 1, 2, 10, 100000} {
			sample := newSample(func(s *samplev1.SampleResource) { s.Name = name })
			pod := podName(sample, n)
			if problems := validation.IsDNS1123Subdomain(pod); len(problems) > 0 {
				t.Errorf("the name %d of %q is %q: %s", n, name, pod, problems)
			}
			if seen[pod] {
				t.Errorf("the name %q is there twice", pod)
			}
			seen[pod] = true
			if n == 0 && pod != name {
				t.Errorf("the first Pod of %q is %q", name, pod)
			}
		}
	}
}

func TestIsReady(t *testing.T) {
	sample := newSample()
	for _, test := range []struct {
		name   string
		change func(*corev1.Pod)
		want   bool
	}{
		{"it is", func(*corev1.Pod) {}, true},
		{"it is not", starting, false},
		{"nobody has said so", func(p *corev1.Pod) { p.Status.Conditions = nil }, false},
		{
			"it was, with the image before",
			func(p *corev1.Pod) { p.Generation, p.Status.Conditions[0].ObservedGeneration = 2, 1 }, false,
		},
		{
			"it is, with the image that it has now",
			func(p *corev1.Pod) { p.Generation, p.Status.Conditions[0].ObservedGeneration = 2, 2 }, true,
		},
		{"the kubelet does not say with which image", func(p *corev1.Pod) { p.Generation = 2 }, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := isReady(ownedBy(sample, 0, test.change)); got != test.want {
				t.Errorf("isReady = %t", got)
			}
		})
	}
}
