package manager

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	virtualmachinev1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/config/rbac"
	access "github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/driver/fake"
	"github.com/keelson-dev/keelson/internal/testing/env"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// startAccess starts a manager of VirtualMachines with the access API, like that of keelson up. It has the permissions that
// its preflight asks for, and no others.
func startAccess(t *testing.T, config *rest.Config) *running {
	t.Helper()
	o := newTestOptions(t, "")
	o.Namespaces, o.HealthAddress, o.MetricsAddress = nil, Off, Off
	o.LeaderElection.LockNamespace, o.SecretNamespace = rbac.Home, rbac.Home
	o.StateDir, o.Machines.Drivers = t.TempDir(), []string{fake.Name}
	o.Access.Address, o.Access.Direct = "127.0.0.1:0", true
	o.Controllers = []string{"virtualmachine"}
	if err := prepare(&o, controllers); err != nil {
		t.Fatal(err)
	}
	if err := checkAPI(t.Context(), config, o, controllers); err != nil { // makes the namespace
		t.Fatal(err)
	}
	const name = "manager"
	roles, err := Roles(o, name)
	if err != nil {
		t.Fatal(err)
	}
	client := newTestClient(t, config)
	for _, role := range roles {
		if err := client.Create(t.Context(), role.(kube.Object)); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	m := startWith(t, as(config, name), o, controllers...)
	within(t, "the manager to be ready", m.Ready())
	return m
}

// isOffered reports whether the API server has the access API in its discovery, and err if a group does not answer.
func isOffered(t *testing.T, config *rest.Config) (bool, error) {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	for _, list := range lists {
		if list.GroupVersion == access.Group+"/"+access.Version && len(list.APIResources) > 0 {
			return true, err
		}
	}
	return false, err
}

// as returns the configuration of a user.
func as(config *rest.Config, user string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user}
	return config
}

// grant binds a user to a role for subresources of machines.
func grant(t *testing.T, config *rest.Config, namespace, user string, resources ...string) {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(config)
	role := &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: user},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{access.Group}, Resources: resources, Verbs: []string{"get"}}},
	}
	_, err := client.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: role.ObjectMeta, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}
	if _, err = client.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// The access API is reached through kube-apiserver, by users with the permission only. It disappears when the manager
// stops, and is back with the next one, also after a manager that was killed.
func TestAccessThroughTheAPIServer(t *testing.T) {
	config := env.Own(t)
	env.Define(t, config)
	m := startAccess(t, config)
	client := newTestClient(t, config)
	if err := virtualmachinev1alpha1.AddToScheme(client.Scheme()); err != nil {
		t.Fatal(err)
	}
	vm := &virtualmachinev1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	vm.Spec.Resource.CPU.Set(1)
	if err := client.Create(t.Context(), vm); err != nil {
		t.Fatal(err)
	}
	grant(t, config, "default", "jane", "virtualmachines/console", "virtualmachines/log")
	readLog := func(user, name string) error {
		log, err := access.ReadLog(t.Context(), as(config, user), "default", name, -1, false)
		if err == nil {
			_, err = io.Copy(io.Discard, log)
			_ = log.Close()
		}
		return err
	}
	status := func(user, name string) int {
		var answer apierrors.APIStatus
		if err := readLog(user, name); errors.As(err, &answer) {
			return int(answer.Status().Code)
		}
		return 0
	}
	// It takes a moment until kube-apiserver knows the API and the role.
	harness.Eventually(t, "the driver fake has no console", func() bool { return status("jane", "web") == http.StatusNotImplemented })
	if got := status("jane", "other"); got != http.StatusNotFound {
		t.Errorf("the log of a machine that does not exist: %d", got)
	}
	if got := status("john", "web"); got != http.StatusForbidden {
		t.Errorf("the log for a user without the permission: %d", got)
	}
	_, err := access.Dial(t.Context(), as(config, "jane"), "default", "web", access.PortForward, nil)
	if !apierrors.IsForbidden(err) {
		t.Errorf("a port for a user without the permission: %v", err)
	}
	var answer apierrors.APIStatus
	if _, err = access.Dial(t.Context(), as(config, "jane"), "default", "web", access.Console, nil); !errors.As(err, &answer) {
		t.Errorf("a console of the driver fake: %v", err)
	}
	if offered, err := isOffered(t, config); !offered || err != nil {
		t.Errorf("discovery: %v, %v", offered, err)
	}

	m.stop()
	if err := within(t, "the manager to stop", m.result); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, "the API disappears without an error of discovery", func() bool {
		offered, err := isOffered(t, config)
		return !offered && err == nil
	})
	if err := readLog("jane", "web"); !errors.Is(err, access.ErrNotOffered) && !apierrors.IsForbidden(err) {
		t.Errorf("without a manager: %v", err)
	}

	killed := startAccess(t, config)
	killed.access.remove = func(context.Context) error { return nil } // as if it were killed
	harness.Eventually(t, "it is back", func() bool { return status("jane", "web") == http.StatusNotImplemented })
	killed.stop()
	if err := within(t, "the manager to stop", killed.result); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, "the manager does not answer", func() bool { return status("jane", "web") == http.StatusServiceUnavailable })
	startAccess(t, config)
	harness.Eventually(t, "it is back after a kill", func() bool { return status("jane", "web") == http.StatusNotImplemented })
}
