package console_test

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
	vmv1alpha1 "github.com/keelson-dev/keelson/api/virtualmachine/v1alpha1"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// click clicks the enabled button with a text, when there is one, in an open dialog first.
func (b *tab) click(text string) {
	b.t.Helper()
	button := fmt.Sprintf(`[...(document.querySelector("dialog[open]") ?? document).querySelectorAll("button")].find((b) => b.textContent === %q && !b.disabled)`, text)
	b.until("!!" + button)
	value[bool](b, button+".click() ?? true")
}

// eventually waits for the object in the API.
func eventually[T client.Object](w *world, object T, check func(T) bool) {
	w.t.Helper()
	harness.Eventually(w.t, fmt.Sprintf("%T %s", object, object.GetName()), func() bool {
		return w.client.Get(w.t.Context(), client.ObjectKeyFromObject(object), object) == nil && check(object)
	})
}

func TestVerbs(t *testing.T) {
	w := newWorld(t)
	c := serve(t, w.config, 0)
	b := newTab(t) // closed before the console
	b.open(strings.Replace(c.URL(), "/#", "/virtualmachines/"+w.namespace+"/web#", 1))
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web"}}
	b.click("Restart")
	b.sees("is stopped and started again")
	b.click("Restart")
	eventually(w, machine, func(m *vmv1alpha1.VirtualMachine) bool { return m.Spec.RestartedAt != nil })
	b.open(c.Address() + "/virtualmachines/" + w.namespace + "/old")
	machine.Name = "old"
	b.click("Start")
	eventually(w, machine, func(m *vmv1alpha1.VirtualMachine) bool { return m.Spec.Action == vmv1alpha1.ActionActive })

	b.open(c.Address() + "/crontabs/" + w.namespace + "/backup")
	cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backup"}}
	b.click("Suspend")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return *c.Spec.Suspend })
	b.click("Resume")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return !*c.Spec.Suspend })
	b.click("Run now")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool {
		return c.Annotations["crontab.stable.example.com/run-requested-at"] != ""
	})
}

func TestDelete(t *testing.T) {
	w := newWorld(t)
	c := serve(t, w.config, 0)
	b := newTab(t) // closed before the console
	b.open(strings.Replace(c.URL(), "/#", "/virtualmachines/"+w.namespace+"/web#", 1))
	b.click("Delete …")
	b.sees("Delete web?", "To confirm, type")
	disabled := `document.querySelector("dialog .danger").disabled`
	b.press("we")
	b.until(disabled)
	b.keep("delete")
	b.press("b")
	b.until("!" + disabled)
	b.press("\r")
	b.until(`location.pathname === "/virtualmachines"`)
	harness.Eventually(t, "the deletion", func() bool {
		machine := &vmv1alpha1.VirtualMachine{}
		return apierrors.IsNotFound(w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "web"}, machine))
	})
}

func TestEdit(t *testing.T) {
	w := newWorld(t)
	c := serve(t, w.config, 0)
	b := newTab(t) // closed before the console
	b.expect("422")
	b.open(strings.Replace(c.URL(), "/#", "/crontabs/"+w.namespace+"/backup#", 1))
	b.sees("YAML")
	value[bool](b, `(document.querySelector("summary").click(), true)`)
	b.click("Edit")
	replace := func(from, to string) {
		b.until(fmt.Sprintf(`document.querySelector("textarea")?.value.includes(%q)`, from))
		value[bool](b, fmt.Sprintf(`(() => { const t = document.querySelector("textarea"); t.value = t.value.replace(%q, %q); return t.dispatchEvent(new Event("input", {bubbles: true})); })()`, from, to))
	}
	replace("0 3 * * *", "61 3 * * *")
	b.click("Check")
	b.sees("the minute must be")
	replace("61 3 * * *", "5 3 * * *")
	b.click("Check")
	b.sees("-   schedule: 0 3 * * *", "+   schedule: 5 3 * * *")
	b.keep("edit")
	cronTab := &stablev1.CronTab{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "backup"}}
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return c.Spec.Schedule == "0 3 * * *" })
	b.click("Save")
	eventually(w, cronTab, func(c *stablev1.CronTab) bool { return c.Spec.Schedule == "5 3 * * *" })
}

func TestVerbsOfAReader(t *testing.T) {
	w := newWorld(t)
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{"cloudnative.tw"}, Resources: []string{"virtualmachines"}, Verbs: []string{"get", "list", "watch"},
	}}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "reader"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "joe"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
	}
	for _, object := range []client.Object{role, binding} {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName = "joe"
	c := serve(t, config, 0)
	b := newTab(t) // closed before the console
	b.expect("403")
	b.open(strings.Replace(c.URL(), "/#", "/virtualmachines/"+w.namespace+"/web#", 1))
	b.sees("GuestReady", "Restart")
	b.until(`[...document.querySelectorAll("main .actions button")].every((b) => b.disabled && b.title.startsWith("You may not "))`)
}

func TestCreate(t *testing.T) {
	w := newWorld(t)
	c := serve(t, w.config, 0)
	b := newTab(t) // closed before the console
	b.expect("409")
	b.open(strings.Replace(c.URL(), "/#", "/virtualmachines?namespace="+w.namespace+"#", 1))
	b.click("Create")
	b.sees("Root disk", "SHA-256")
	b.until(`document.querySelector("input[name=name]")?.focus() ?? true`)
	b.press("web")
	b.until(`document.querySelector("textarea").value.includes("name: web")`)
	b.click("Create")
	b.sees(`virtualmachines.cloudnative.tw "web" already exists`)
	b.press("-2")
	b.click("Check")
	b.sees("Nothing is created yet")
	b.keep("create")
	b.click("Create")
	b.until(`location.pathname.endsWith("/web-2")`)
	machine := &vmv1alpha1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "web-2"}}
	eventually(w, machine, func(m *vmv1alpha1.VirtualMachine) bool { return m.Spec.Resource.Memory.String() == "512Mi" })
}
