package cluster_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/api/crds"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
	"github.com/keelson-dev/keelson/internal/install"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// storedCluster is a Cluster as the original controller left it in etcd: our definition would not take it anew.
const storedCluster = `
apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Cluster
metadata:
  name: cluster-default
  finalizers: [provisioner]
  labels: {rke: "true"}
spec:
  ConfigPath: /etc/keelson/rke/cluster.yml
status:
  appliedConfig: "nodes: []\n"
  conditions:
  - {type: Provisioned, status: "True", lastUpdateTime: "2018-03-01T12:00:00Z"}
  - {type: Ready, status: "True", lastUpdateTime: "2018-03-01T12:00:00Z", lastTransitionTime: "2018-03-01T12:00:00Z"}
  - {type: Initialized, status: "True"}
`

// storedKubeconfig is its Kubeconfig, whose owner has no group.
const storedKubeconfig = `
apiVersion: clusterprovisioner.rke.io/v1alpha1
kind: Kubeconfig
metadata:
  name: cluster-default
  ownerReferences:
  - {apiVersion: v1alpha1, kind: Cluster, name: cluster-default, uid: UID}
spec:
  ConfigPath: /etc/keelson/rke/kube_config_cluster.yml
`

// TestLongWhatTheOriginalStored writes objects under a definition that takes anything, as that of the original did, and
// replaces the definition with ours.
func TestLongWhatTheOriginalStored(t *testing.T) {
	t.Parallel()
	config := env.Own(t)
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(install.CRDs(t.Context(), config, lenient(definitions)))
	raw := harness.Client(t, config, harness.Scheme(t))
	stored := object(t, storedCluster)
	do(raw.Create(t.Context(), stored))
	do(raw.Create(t.Context(), object(t, strings.ReplaceAll(storedKubeconfig, "UID", string(stored.GetUID())))))
	do(install.CRDs(t.Context(), config, definitions))

	w := newWorldOn(t, config, metav1.NamespaceDefault)
	w.outside.Change(stored.GetUID(), func(*fake.Cluster) *fake.Cluster {
		return &fake.Cluster{Name: w.name, Kubeconfig: fake.Kubeconfig("https://10.0.0.1:6443"), KubeconfigPath: "/etc/keelson/rke/kube_config_cluster.yml"}
	})
	w.answer(well())
	w.settle()
	w.expectWhole()
	w.expect(v1alpha1.ConditionReady, "True", v1alpha1.ReasonAvailable)
	c, k := w.get(), w.kubeconfig()
	if diff := cmp.Diff(v1alpha1.ClusterSpec{ConfigPath: "/etc/keelson/rke/cluster.yml"}, c.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{v1alpha1.Finalizer}, c.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if k.Spec.ConfigPath != "/etc/keelson/rke/kube_config_cluster.yml" || k.Spec.LegacyConfigPath != "" {
		t.Errorf("Kubeconfig %+v", k.Spec)
	}
	for _, condition := range c.Status.Conditions {
		if condition.Reason == "" || condition.LastTransitionTime.IsZero() {
			t.Errorf("condition %+v", condition)
		}
	}
	if events := w.events(); strings.Count(events, v1alpha1.ReasonMigrated) != 1 {
		t.Errorf("events:\n%s", events)
	}

	// Stored again, and deleted before a manager of ours has seen it.
	w.delete()
	w.settle()
	w.expectNothing()
	do(install.CRDs(t.Context(), config, lenient(definitions)))
	harness.Eventually(t, "the lenient definition is in force", func() bool {
		stored = object(t, storedCluster)
		return raw.Create(t.Context(), stored) == nil
	})
	do(raw.Delete(t.Context(), stored))
	do(install.CRDs(t.Context(), config, definitions))
	w.outside.Change(stored.GetUID(), func(*fake.Cluster) *fake.Cluster { return &fake.Cluster{Name: w.name} })
	w.prober.answers = map[types.UID]*cluster.Probe{}
	w.settle()
	w.expectNothing()
}

// lenient returns definitions that take anything, and have no status of its own.
func lenient(definitions []*apiextensionsv1.CustomResourceDefinition) []*apiextensionsv1.CustomResourceDefinition {
	var all []*apiextensionsv1.CustomResourceDefinition
	for _, d := range definitions {
		d = d.DeepCopy()
		for i := range d.Spec.Versions {
			v := &d.Spec.Versions[i]
			v.Subresources = nil
			v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: ptr.To(true),
			}}
		}
		all = append(all, d)
	}
	return all
}

func object(t *testing.T, document string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}
