package cluster_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/keelson-dev/keelson/api/clusterprovisioner/v1alpha1"
	"github.com/keelson-dev/keelson/internal/controller/cluster"
	"github.com/keelson-dev/keelson/internal/engine/fake"
)

// issue sets the kubeconfigs that the engine has issued to users.
func (w *world) issue(users map[string]string) {
	w.Helper()
	w.setIssued(users)
	w.settle()
}

// setIssued is issue without a reconcile.
func (w *world) setIssued(users map[string]string) {
	w.Helper()
	w.issued = users
	w.outside.Change(w.get().UID, func(c *fake.Cluster) *fake.Cluster {
		c.Users = nil
		for name, data := range users {
			c.Users = append(c.Users, cluster.UserKubeconfig{Name: name, Kubeconfig: []byte(data)})
		}
		return c
	})
}

// userSecrets returns the contents of the Secrets of users, by their names.
func (w *world) userSecrets() map[string]string {
	w.Helper()
	var list corev1.SecretList
	w.do(w.client.List(w.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelUser}))
	found := map[string]string{}
	for _, secret := range list.Items {
		if !metav1.IsControlledBy(&secret, w.get()) || secret.Type != v1alpha1.SecretTypeKubeconfig {
			w.Errorf("the Secret %s has the owners %+v and the type %s", secret.Name, secret.OwnerReferences, secret.Type)
		}
		found[strings.TrimPrefix(secret.Name, w.name)] = string(secret.Data[v1alpha1.SecretKey])
	}
	return found
}

func (w *world) expectUsers(want map[string]string) {
	w.Helper()
	got := w.userSecrets()
	if len(got) != len(want) || len(w.get().Status.Users) != len(want) {
		w.Errorf("Secrets %v, status %+v; want %v", got, w.get().Status.Users, want)
	}
	for name, data := range want {
		if got["-kubeconfig-"+name] != data {
			w.Errorf("the kubeconfig of %s is %q, want %q", name, got["-kubeconfig-"+name], data)
		}
	}
}

func users(names ...string) func(*v1alpha1.Cluster) {
	return func(c *v1alpha1.Cluster) {
		c.Spec.Users = nil
		for _, name := range names {
			c.Spec.Users = append(c.Spec.Users, v1alpha1.ClusterUser{Name: name})
		}
	}
}

func TestUsers(t *testing.T) {
	const name = v1alpha1.ConditionUsersReady
	w := newWorld(t)
	w.made(users("alice", "bob"))
	if is := w.expect(name, "False", v1alpha1.ReasonWaiting); !strings.Contains(is.Message, "alice, bob") {
		t.Errorf("the message is %q", is.Message)
	}
	w.issue(map[string]string{"alice": "a", "bob": "b"})
	w.expect(name, "True", v1alpha1.ReasonKubeconfigWritten)
	w.expectUsers(map[string]string{"alice": "a", "bob": "b"})

	w.issue(map[string]string{"alice": "new", "bob": "b"}) // renewed
	w.expectUsers(map[string]string{"alice": "new", "bob": "b"})
	key := client.ObjectKey{Namespace: w.namespace, Name: w.name + "-kubeconfig-bob"}
	damaged := &corev1.Secret{}
	w.do(w.client.Get(t.Context(), key, damaged))
	damaged.Data, damaged.Labels = nil, nil
	w.do(w.client.Update(t.Context(), damaged))
	w.settle()
	w.expectUsers(map[string]string{"alice": "new", "bob": "b"})

	w.change(users("bob"))
	w.settle()
	w.expectUsers(map[string]string{"bob": "b"})
	w.change(users())
	w.settle()
	w.expectUsers(nil)
	for _, c := range w.get().Status.Conditions {
		if c.Type == name {
			t.Errorf("without users it has the condition %+v", c)
		}
	}
}

// The Secret of a removed user is deleted also if the manager was killed before it had written the status about it.
func TestUserRemovedAfterACrash(t *testing.T) {
	w := newWorld(t)
	w.made(users("alice"))
	w.issue(map[string]string{"alice": "a"})
	c := w.get()
	c.Status.Users = nil
	w.do(w.client.Status().Update(t.Context(), c))
	w.change(users())
	w.restart()
	w.settle()
	w.expectUsers(nil)
}

// The Secret of somebody else is left alone, and the condition says so.
func TestUserSecretOfAnother(t *testing.T) {
	w := newWorld(t)
	w.made()
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: w.name + "-kubeconfig-alice"}, StringData: map[string]string{"a": "b"}}
	w.do(w.client.Create(t.Context(), foreign))
	w.change(users("alice"))
	w.issue(map[string]string{"alice": "a"})
	if is := w.expect(v1alpha1.ConditionUsersReady, "False", v1alpha1.ReasonErrResourceExists); !strings.Contains(is.Message, foreign.Name) {
		t.Errorf("the message is %q", is.Message)
	}
	w.do(w.client.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	if string(foreign.Data["a"]) != "b" || len(foreign.OwnerReferences) > 0 {
		t.Errorf("the Secret has changed: %+v", foreign)
	}
	w.do(w.client.Delete(t.Context(), foreign))
	w.pass(time.Minute)
	w.settle()
	w.expectUsers(map[string]string{"alice": "a"})

	w.delete()
	w.settle()
	w.expectNothing()
	var list corev1.SecretList
	w.do(w.client.List(t.Context(), &list, client.InNamespace(w.namespace), client.HasLabels{v1alpha1.LabelUser}))
	if len(list.Items) > 0 {
		t.Errorf("%d Secrets of users are left", len(list.Items))
	}
}
