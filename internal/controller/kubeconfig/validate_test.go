package kubeconfig

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/confine"
)

func TestValidator(t *testing.T) {
	validate := NewValidator("secrets", confine.Dirs{"/etc/rke"})
	for _, test := range []struct {
		name string
		spec v1alpha1.KubeconfigSpec
		want string
	}{
		{"nothing yet", v1alpha1.KubeconfigSpec{}, ""},
		{"a Secret", v1alpha1.KubeconfigSpec{SecretRef: &v1alpha1.SecretReference{Namespace: "secrets", Name: "s"}}, ""},
		{"a Secret elsewhere", v1alpha1.KubeconfigSpec{SecretRef: &v1alpha1.SecretReference{Namespace: "kube-system", Name: "s"}},
			`spec.secretRef.namespace: Invalid value: "kube-system": this manager may read Secrets in the namespace secrets only`},
		{"a file", v1alpha1.KubeconfigSpec{ConfigPath: "/etc/rke/kube_config_a.yml"}, ""},
		{"a file elsewhere", v1alpha1.KubeconfigSpec{ConfigPath: "/etc/kubernetes/admin.conf"},
			`spec.configPath: Invalid value: "/etc/kubernetes/admin.conf": it is in none of the directories that users may name files in; clusters.rkeConfigDirs of the manager allows: /etc/rke`},
		{"a file elsewhere, as the original had it", v1alpha1.KubeconfigSpec{LegacyConfigPath: "/etc/rke/../passwd"},
			`spec.configPath: Invalid value: "/etc/rke/../passwd": it is in none of the directories that users may name files in; clusters.rkeConfigDirs of the manager allows: /etc/rke`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if all := validate(&v1alpha1.Kubeconfig{Spec: test.spec}); len(all) > 0 {
				got = all.ToAggregate().Error()
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("the refusal (-want +got):\n%s", diff)
			}
		})
	}
}
