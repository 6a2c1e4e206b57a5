package crds_test

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// With the example, a team has Clusters with its names, and no others. It cannot get rights on the host with them.
func TestClustersOfTeams(t *testing.T) {
	config := env.Own(t)
	env.Define(t, config)
	admin, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	applyExample(t, admin, "cluster-teams.yaml")
	as := func(user string, groups ...string) dynamic.ResourceInterface {
		own := rest.CopyConfig(config)
		own.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: append(groups, "system:authenticated")}
		client, err := dynamic.NewForConfig(own)
		if err != nil {
			t.Fatal(err)
		}
		return client.Resource(resources["Cluster"])
	}
	member, stranger, all := as("jane", "keelson:team:web"), as("joe", "keelson:team:other"), admin.Resource(resources["Cluster"])
	create := func(client dynamic.ResourceInterface, name, spec string) error {
		object := newObject(t, "Cluster", "", spec)
		object.SetGenerateName("")
		object.SetName(name)
		_, err := client.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}
	harness.Eventually(t, "the policy is in force", func() bool {
		object := newObject(t, "Cluster", "", `{}`)
		object.SetGenerateName("")
		object.SetName("db-demo")
		_, err := member.Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "begin with web-")
	})
	refused := func(what string, err error, says string) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", what, err, says)
		}
	}
	accepted := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	accepted("a Cluster of the administrator", create(all, "db-demo", `{"nodes":{"real":1}}`))
	accepted("a Cluster of the team", create(member, "web-demo", `{"nodes":{"simulated":2}}`))
	refused("a name that begins with that of the team", create(member, "website", `{}`), "begin with web-")
	refused("the engine rke", create(member, "web-rke", `{"configPath":"/etc/keelson/rke/a.yml"}`), "spec.configPath is for administrators")
	refused("a fork", create(member, "web-fork", `{"from":{"snapshot":"a"}}`), "spec.from is for administrators")
	refused("a schedule", create(member, "web-saved", `{"snapshots":{"schedule":"@daily"}}`), "spec.snapshots and spec.restore are for administrators")
	refused("a restore", create(member, "web-saved", `{"restore":{"snapshot":"a","requestedAt":"2026-11-25T18:00:00Z"}}`), "spec.snapshots and spec.restore are for administrators")
	refused("a real node", create(member, "web-real", `{"nodes":{"real":1}}`), "spec.nodes.real is for administrators")
	hosted := `{"engine":"hosted","hosted":{"namespace":"web"}}`
	refused("Pods in a namespace of others", create(member, "web-hosted", hosted), "in which you may create Secrets")
	letRule(t, admin, "web", "keelson:team:web")
	harness.Eventually(t, "the team has a namespace", func() bool { return create(member, "web-hosted", hosted) == nil })
	refused("a team without a binding", create(stranger, "other-demo", `{}`), "cannot create resource")

	patch := func(client dynamic.ResourceInterface, name, text string) error {
		_, err := client.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	accepted("a change", patch(member, "web-demo", `{"spec":{"running":false}}`))
	refused("a real node, later", patch(member, "web-demo", `{"spec":{"nodes":{"simulated":0,"real":1}}}`), "spec.nodes.real is for administrators")
	refused("a change of another Cluster", patch(member, "db-demo", `{"spec":{"running":false}}`), "begin with web-")
	accepted("the finalizer of the manager", patch(all, "web-demo", `{"metadata":{"finalizers":["clusterprovisioner.rke.io/provisioner"]}}`))
	refused("without the finalizer", patch(member, "web-demo", `{"metadata":{"finalizers":null}}`), "metadata.finalizers is for administrators")
	refused("a deletion that gives up", patch(member, "web-demo", `{"metadata":{"annotations":{"clusterprovisioner.rke.io/force-delete":"true"}}}`), "force-delete is for administrators")
	refused("a Cluster with such a deletion", func() error {
		object := newObject(t, "Cluster", "", `{}`)
		object.SetGenerateName("")
		object.SetName("web-forced")
		object.SetAnnotations(map[string]string{"clusterprovisioner.rke.io/force-delete": "true"})
		_, err := member.Create(t.Context(), object, metav1.CreateOptions{})
		return err
	}(), "force-delete is for administrators")
	accepted("a deletion that gives up, of the administrator", patch(all, "web-demo", `{"metadata":{"annotations":{"clusterprovisioner.rke.io/force-delete":"true"}}}`))
	accepted("a change after that", patch(member, "web-demo", `{"metadata":{"labels":{"a":"b"}}}`))
	accepted("none that gives up", patch(member, "web-demo", `{"metadata":{"annotations":null}}`))
	refused("the status", func() error {
		_, err := member.Patch(t.Context(), "web-demo", types.MergePatchType, []byte(`{"status":{"endpoint":"x"}}`), metav1.PatchOptions{}, "status")
		return err
	}(), "cannot patch resource")

	refused("a deletion of another Cluster", member.Delete(t.Context(), "db-demo", metav1.DeleteOptions{}), "begin with web-")
	refused("a deletion of all Clusters", member.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), "cannot delete")
	accepted("a deletion", member.Delete(t.Context(), "web-demo", metav1.DeleteOptions{}))
	accepted("the finalizer is removed by the manager", patch(all, "web-demo", `{"metadata":{"finalizers":null}}`))
}

// letRule creates a namespace in which a group has all rights: other roles have none without kube-controller-manager.
func letRule(t *testing.T, admin dynamic.Interface, namespace, group string) {
	t.Helper()
	create := func(resource schema.GroupVersionResource, namespace string, object map[string]any) {
		t.Helper()
		_, err := admin.Resource(resource).Namespace(namespace).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	create(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	})
	create(schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"}, namespace, map[string]any{
		"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": map[string]any{"name": "all"},
		"roleRef":  map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []any{map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}},
	})
}
