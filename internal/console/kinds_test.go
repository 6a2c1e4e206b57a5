package console_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// Every kind of the API is found by a search, listed, and edited as YAML.
func TestOtherKinds(t *testing.T) {
	w := newWorld(t)
	note := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "note"}, Data: map[string]string{"text": "before"}}
	if err := w.client.Create(t.Context(), note); err != nil {
		t.Fatal(err)
	}
	c := serve(t, w.config)
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(c.URL(), "/#", "/?namespace="+w.namespace+"#", 1))
	b.Sees("Needs attention", "All kinds")
	b.Press("/")
	b.Until(`location.pathname === "/kinds" && document.activeElement.className === "search"`)
	b.Sees("Deployment", "ClusterRole", "VirtualMachine", "Secrets are not shown")
	b.Until(`![...document.querySelectorAll("main td")].some((td) => td.textContent === "Secret")`)
	b.Accessible()
	b.Keep("kinds")
	b.Press("configmap")
	b.Until(`document.querySelectorAll("main tbody tr").length === 1`)
	b.Press("\r")
	b.Until(`location.pathname === "/configmaps"`)
	b.Sees("ConfigMaps", "note")
	b.Keep("configmaps")
	b.Open(c.Address() + "/configmaps/" + w.namespace + "/note")
	b.Sees("note", "YAML")
	b.Unfold("YAML")
	b.Click("Edit")
	b.Replace("before", "after")
	b.Click("Check")
	b.Sees("-   text: before", "+   text: after")
	b.Accessible()
	b.Keep("configmap")
	b.Click("Save")
	eventually(w, note, func(m *corev1.ConfigMap) bool { return m.Data["text"] == "after" })
	b.Click("Delete …")
	b.Sees("Delete note?")
	b.Press("note")
	b.Until(`!document.querySelector("dialog .danger").disabled`)
	b.Press("\r")
	b.Until(`location.pathname === "/configmaps"`)
	b.Until(`document.querySelectorAll("main td a").length > 0 && ![...document.querySelectorAll("main td a")].some((a) => a.textContent === "note")`)
	// A deep link, to a kind with another group and a name with a colon.
	b.Open(c.Address() + "/clusterroles.rbac.authorization.k8s.io/system:discovery")
	b.Sees("system:discovery", "ClusterRoles", "kubernetes.io/bootstrapping")
	b.Press("u")
	b.Until(`location.pathname === "/clusterroles.rbac.authorization.k8s.io"`)
	b.Sees("system:basic-user")
	b.Open(c.Address() + "/secrets")
	b.Sees("There is no such page")
}

// A user sees all kinds, those that may not be listed in grey with the reason.
func TestOtherKindsOfAReader(t *testing.T) {
	w := newWorld(t)
	config := rest.CopyConfig(w.config)
	config.Impersonate.UserName, config.Impersonate.Groups = "frank", []string{"system:authenticated"}
	w.allowEverywhere("frank", "", "configmaps")
	b := openPage(t, config, "/kinds?search=core&namespace="+w.namespace, "403") // the kinds of Keelson
	b.Sees("ConfigMap", "You may not list pods in "+w.namespace)
	b.Until(`[...document.querySelectorAll("main td a")].some((a) => a.textContent === "ConfigMap")`)
	b.Until(`document.querySelector("main .denied").title.startsWith("You may not list")`)
	b.Accessible()
}
