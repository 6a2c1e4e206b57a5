package foo

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/keelson-dev/keelson/api/samplecontroller/v1alpha1"
)

func TestNewDeployment(t *testing.T) {
	want := `{
  "kind": "Deployment",
  "apiVersion": "apps/v1",
  "metadata": {
    "name": "web",
    "namespace": "market",
    "labels": {
      "app.kubernetes.io/instance": "shop",
      "app.kubernetes.io/managed-by": "keelson",
      "app.kubernetes.io/name": "foo",
      "samplecontroller.k8s.io/foo-uid": "foo-1"
    },
    "ownerReferences": [
      {
        "apiVersion": "samplecontroller.k8s.io/v1alpha1",
        "kind": "Foo",
        "name": "shop",
        "uid": "foo-1",
        "controller": true,
        "blockOwnerDeletion": true
      }
    ]
  },
  "spec": {
    "replicas": 3,
    "selector": {
      "matchLabels": {
        "samplecontroller.k8s.io/foo-uid": "foo-1"
      }
    },
    "template": {
      "metadata": {
        "labels": {
          "app.kubernetes.io/instance": "shop",
          "app.kubernetes.io/managed-by": "keelson",
          "app.kubernetes.io/name": "foo",
          "samplecontroller.k8s.io/foo-uid": "foo-1"
        }
      },
      "spec": {
        "containers": [
          {
            "name": "foo",
            "image": "nginx:1.29",
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
      }
    }
  }
}`
	if diff := cmp.Diff(want, asJSON(newDeployment(newFoo()))); diff != "" {
		t.Errorf("newDeployment (-want +got):\n%s", diff)
	}
}

func TestNewDeploymentFillsInWhatAnOldFooDoesNotHave(t *testing.T) {
	foo := newFoo(func(f *v1alpha1.Foo) { f.Spec.Replicas, f.Spec.Image = nil, "" })
	deployment := must(asObject(newDeployment(foo)))
	if got := *deployment.Spec.Replicas; got != 1 {
		t.Errorf("replicas are %d", got)
	}
	if got := containerOf(&deployment.Spec.Template.Spec).Image; got != "nginx:latest" {
		t.Errorf("image is %q", got)
	}
}

func TestLabelsOfLongNamesAreValidAndDistinct(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 253),
		strings.Repeat("a.", 100) + "b", strings.Repeat("a.", 100) + "c", strings.Repeat("a-", 120) + "x",
	} {
		value := newLabels(newFoo(func(f *v1alpha1.Foo) { f.Name = name }))[labelInstance]
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			t.Errorf("the label of %q is %q: %s", name, value, problems)
		}
		if seen[value] {
			t.Errorf("the label %q is there twice", value)
		}
		seen[value] = true
	}
}

func TestSelectorStaysWhenTheDeploymentIsRenamed(t *testing.T) {
	renamed := newFoo(func(f *v1alpha1.Foo) { f.Spec.DeploymentName = "web2" })
	if got, want := selectorText(renamed), selectorText(newFoo()); got != want {
		t.Errorf("the selector is %q after the rename, and was %q", got, want)
	}
}

func TestDifferences(t *testing.T) {
	foo := newFoo()
	for _, test := range []struct {
		name   string
		change func(*appsv1.Deployment)
		want   []string
	}{
		{"nothing was changed", func(*appsv1.Deployment) {}, nil},
		{"replicas were changed", scaled(0), []string{"replicas 0 instead of 3"}},
		{"replicas were removed, which means one", func(d *appsv1.Deployment) { d.Spec.Replicas = nil }, []string{"replicas 1 instead of 3"}},
		{
			"the image was changed",
			func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "nginx:1.0" },
			[]string{`image "nginx:1.0" instead of "nginx:1.29"`},
		},
		{
			"a container was renamed",
			func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Name = "main" },
			[]string{`no container "foo"`},
		},
		{"it was made before its pods were confined", unconfined, []string{"another security context", "a service account token for its pods"}},
		{
			"its pods get a token",
			func(d *appsv1.Deployment) { d.Spec.Template.Spec.AutomountServiceAccountToken = ptr.To(true) },
			[]string{"a service account token for its pods"},
		},
		{
			"its pods get system calls",
			func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
			},
			[]string{"another security context"},
		},
		{
			"its container may gain privileges",
			func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil
			},
			[]string{"another security context"},
		},
		{"a label was removed", func(d *appsv1.Deployment) { delete(d.Labels, labelName) }, []string{"other labels"}},
		{
			"a label of the pods was changed",
			func(d *appsv1.Deployment) { d.Spec.Template.Labels[labelInstance] = "mine" },
			[]string{"other labels"},
		},
		{
			"the owner reference lost its block on deletion",
			func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = ptr.To(false) },
			[]string{"another owner reference"},
		},
		{
			"all at once",
			func(d *appsv1.Deployment) {
				scaled(9)(d)
				d.Labels = nil
				d.Spec.Template.Spec.Containers[0].Image = "x"
			},
			[]string{"replicas 9 instead of 3", `image "x" instead of "nginx:1.29"`, "other labels"},
		},
		{
			"others added what is theirs to add",
			func(d *appsv1.Deployment) {
				d.Annotations = map[string]string{"deployment.kubernetes.io/revision": "4"}
				d.Labels["team"] = "a"
				d.Spec.Template.Labels["team"] = "a"
				d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
				d.Spec.Template.Spec.SecurityContext.RunAsNonRoot = ptr.To(true)
				d.Spec.Template.Spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
				d.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
				d.Spec.Template.Spec.Containers = append([]corev1.Container{{Name: "sidecar", Image: "proxy"}}, d.Spec.Template.Spec.Containers...)
			},
			nil,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, differences(foo, ownedBy(foo, test.change))); diff != "" {
				t.Errorf("differences (-want +got):\n%s", diff)
			}
		})
	}
}
