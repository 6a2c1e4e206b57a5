package console_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/browser"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// eventually waits for the object in the API.
func eventually[T client.Object](w *world, object T, check func(T) bool) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("%T %s", object, object.GetName()), func() bool {
		return w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object) == nil && check(object)
	})
}

func TestVerbs(t *testing.T) {
	w := newWorld(t)
	c := serve(t, w.config)
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(c.URL(), "/#", "/virtualmachines/"+w.namespace+"/web#", 1))
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}}
	b.Click("Restart")
	b.Sees("is stopped and started again")
	b.Click("Restart")
	eventually(w, machine, func(m *vmv1alpha1.VirtualMachine) bool { return m.Spec.RestartRequestedAt != nil })
	b.Open(c.Address() + "/virtualmachines/" + w.namespace + "/old")
	machine.Name = "old"
	b.Click("Start")
	eventually(w, machine, func(m *vmv1alpha1.VirtualMachine) bool { return m.Spec.Action == vmv1alpha1.ActionActive })

	b.Open(c.Address() + "/crontabs/" + w.namespace + "/backup")
	cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backup"}}
	b.Click("Suspend")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return *c.Spec.Suspend })
	b.Click("Resume")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return !*c.Spec.Suspend })
	b.Click("Run now")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool {
		return c.Spec.RunRequestedAt != nil
	})
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/virtualmachines/"+w.namespace+"/web")
	b.Click("Delete …")
	b.Sees("Delete web?", "To confirm, type")
	disabled := `document.querySelector("dialog .danger").disabled`
	b.Press("we")
	b.Until(disabled)
	b.Accessible()
	b.Keep("delete")
	b.Press("b")
	b.Until("!" + disabled)
	b.Press("\r")
	b.Until(`location.pathname === "/virtualmachines"`)
	harness.Eventually(t, "the deletion", func() bool {
		machine := &vmv1alpha1.VirtualMachine{}
		return apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, machine))
	})
}

func TestEdit(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/crontabs/"+w.namespace+"/backup", "422")
	b.Sees("YAML")
	browser.Value[bool](b, `(document.querySelector("summary").click(), true)`)
	b.Click("Edit")
	b.Replace("0 3 * * *", "61 3 * * *")
	b.Click("Check")
	b.Sees("the minute must be")
	b.Replace("61 3 * * *", "5 3 * * *")
	b.Click("Check")
	b.Sees("-   schedule: 0 3 * * *", "+   schedule: 5 3 * * *")
	b.Accessible()
	b.Keep("edit")
	cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backup"}}
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return c.Spec.Schedule == "0 3 * * *" })
	b.Click("Save")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return c.Spec.Schedule == "5 3 * * *" })
}

func TestEditorKnowsTheFields(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/crontabs?namespace="+w.namespace)
	b.Click("Create")
	b.Replace(`schedule: "0 3 * * *"`, "daylightS")
	b.Until(`document.querySelector(".cm-tooltip-autocomplete [aria-selected]")?.textContent.startsWith("daylightSaving")`)
	b.Keep("editor-fields")
	b.Pause(browserDelay)
	b.Type("\r")
	b.Until(`[...document.querySelectorAll(".cm-tooltip-autocomplete li")].some((l) => l.textContent.startsWith("Literal"))`)
	b.Accessible()
	b.Pause(browserDelay)
	b.Type("\r")
	b.Until(`document.querySelector(".cm-content").textContent.includes("daylightSaving: Once")`)
	b.Hover(`[...document.querySelectorAll(".cm-line span")].find((s) => s.textContent === "image")`)
	b.Sees("image: string", "Container image name")
	b.Keep("editor-help")
}

// browserDelay is longer than the editor ignores Enter after it has opened the list of fields.
const browserDelay = 200 * time.Millisecond

// allowEverywhere lets a user read a resource without namespaces.
func (w *world) allowEverywhere(user, group, resource string) {
	w.t.Helper()
	name := user + "-" + w.namespace
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"},
	}}}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
	}
	for _, object := range []client.Object{role, binding} {
		if err := w.client.Create(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
}

// allow lets a user read a resource of machines in the namespace.
func (w *world) allow(user, resource string) {
	w.t.Helper()
	w.allowIn(user, "cloudnative.tw", resource)
}

func (w *world) allowIn(user, group, resource string) {
	w.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: user}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: user},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: user},
	}
	for _, object := range []client.Object{role, binding} {
		if err := w.client.Create(w.t.Context(), object); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestVerbsOfAReader(t *testing.T) {
	w := newWorld(t)
	w.allow("joe", "virtualmachines")
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = "joe"
	b := openPage(t, config, "/virtualmachines/"+w.namespace+"/web", "403")
	b.Sees("GuestReady", "Restart")
	b.Until(`[...document.querySelectorAll("main .actions button")].every((b) => b.disabled && b.title.startsWith("You may not "))`)
}

func TestCreate(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/virtualmachines?namespace="+w.namespace, "409")
	b.Click("Create")
	b.Sees("Root disk", "SHA-256")
	b.Until(`document.querySelector("input[name=name]")?.focus() ?? true`)
	b.Press("web")
	b.Until(`document.querySelector(".cm-content")?.textContent.includes("name: web")`)
	b.Click("Create")
	b.Sees(`virtualmachines.cloudnative.tw "web" already exists`)
	b.Press("-2")
	b.Click("Check")
	b.Sees("Nothing is created yet")
	b.Accessible()
	b.Keep("create")
	b.Click("Create")
	b.Until(`location.pathname.endsWith("/web-2")`)
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web-2"}}
	eventually(w, machine, func(m *vmv1alpha1.VirtualMachine) bool { return m.Spec.Resource.Memory.String() == "512Mi" })
	if disk := machine.Spec.Resource.RootDisk; disk == nil || disk.String() != "10Gi" || machine.Spec.CloudInit == nil || !strings.Contains(machine.Spec.CloudInit.UserData, sshKey) {
		t.Errorf("root disk %v, cloud-init %+v: not as keelson vm create makes them", disk, machine.Spec.CloudInit)
	}
}

func TestCreateASchedule(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/crontabs?namespace="+w.namespace)
	b.Click("Create")
	b.Sees("At 03:00 every day")
	b.Until(`document.querySelector("input[name=name]")?.focus() ?? true`)
	b.Press("reports")
	b.Fill("Schedule", "30 2 * * MON-FRI")
	b.Fill("Time zone", "Europe/Berlin")
	b.Fill("If a run is still active", "Queue")
	b.Fill("Command", `sh -c "date; uptime"`)
	b.Sees("At 02:30 on Monday to Friday", "Mon ")
	b.Until(`document.querySelectorAll(".times tbody tr").length === 10`)
	b.Until(`document.querySelector(".cm-content").textContent.includes('- "date; uptime"')`)
	b.Accessible()
	b.Keep("create-schedule")
	b.Click("Create")
	b.Until(`location.pathname.endsWith("/reports")`)
	eventually(w, &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reports"}}, func(c *stablev1.CronTab) bool {
		return c.Spec.TimeZone == "Europe/Berlin" && c.Spec.ConcurrencyPolicy == stablev1.QueueConcurrent
	})
}

func TestHistoryOfAMachine(t *testing.T) {
	w := newWorld(t)
	b := openPage(t, w.config, "/virtualmachines/"+w.namespace+"/db")
	b.Sees("Ready became False", "there is no Secret db-seed", "Created")
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "db"}}
	eventually(w, machine, func(*vmv1alpha1.VirtualMachine) bool { return true })
	w.ready(machine, "True", "GuestReady", "")
	b.Sees("Ready became True", "Ready became False")
	b.Accessible()
	b.Keep("history")
}
