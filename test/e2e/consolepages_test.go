package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// shop has objects of all kinds: most work, one machine does not.
const shop = `
{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: web, labels: {app: shop}}, spec: {
  resource: {cpu: 1, memory: 256Mi}, ports: [{name: ssh, port: 22}]}}
---
{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: db, labels: {app: shop}}, spec: {
  resource: {cpu: 1, memory: 256Mi}, disks: [{name: data, virtualDisk: orders}]}}
---
{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: desktop}, spec: {
  resource: {cpu: 1, memory: 256Mi, rootDisk: 64Mi}, image: {empty: true, agent: false}, firmware: UEFI, display: {type: VGA}}}
---
{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: old}, spec: {resource: {cpu: 1, memory: 256Mi}, action: stopped}}
---
{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: search}, spec: {resource: {cpu: 1, memory: 256Mi}, image: {name: debian-13}}}
---
{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualDisk, metadata: {name: orders}, spec: {size: 1Gi}}
---
{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: prices}, spec: {schedule: "*/10 * * * * *", successfulJobsHistoryLimit: 20,
  jobTemplate: {containers: [{name: main, image: busybox}]}}}
---
{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: backup}, spec: {schedule: "30 2 * * *", timeZone: Europe/Berlin,
  jobTemplate: {containers: [{name: main, image: busybox}]}}}
---
{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: invoices}, spec: {schedule: "*/15 8-18 * * MON-FRI",
  jobTemplate: {containers: [{name: main, image: busybox}]}}}
---
{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: newsletter}, spec: {schedule: "0 9 * * MON", suspend: true,
  jobTemplate: {containers: [{name: main, image: busybox}]}}}
---
{apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, metadata: {name: shop}, spec: {deploymentName: shop, replicas: 2}}
---
{apiVersion: example.com/v1, kind: SampleResource, metadata: {name: frontend}, spec: {podImage: "nginx:1.29"}}
---
{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: staging}, spec: {users: [{name: alice, groups: [developers], ttl: 720h}]}}
---
{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: ClusterSnapshot, metadata: {name: staging-before-upgrade}, spec: {clusterName: staging}}
`

// openShop creates the objects, and opens the console when they are there.
func openShop(t *testing.T) (session, *browser.Tab) {
	t.Helper()
	needQEMU(t)
	s := clusterSession(t)
	s.namespace = "shop"
	s.OK(t, "kubectl", "create", "namespace", s.namespace)
	t.Cleanup(func() {
		s.Run(t, "kubectl", "delete", "cluster/staging", "clustersnapshot/staging-before-upgrade", "vmimage/empty", "--wait=false")
		s.OK(t, "kubectl", "delete", "namespace", s.namespace, "--wait=false")
	})
	empty := filepath.Join(t.TempDir(), "empty.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", empty, "64M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.OK(t, "keelson", "vm", "image", "add", "empty", "--file", empty, "--no-agent", "--kubeconfig", kubeconfig)
	s.Stdin = shop
	s.kubectl(t, "create", "-f", "-")
	s.Stdin = ""
	for _, object := range []string{"vm/web", "vm/db", "vm/desktop", "vdisk/orders", "foo/shop", "sampleresource/frontend", "cluster/staging", "clustersnapshot/staging-before-upgrade"} {
		s.wait(t, "condition=Ready", object)
	}
	s.until(t, "runs of a schedule", func(out string) bool { return strings.Count(out, "prices-") > 2 }, "get", "jobs", "-o", "name")
	return s, s.openConsole(t, "/?namespace=shop")
}

// settled is true when the page knows how many objects there are, and what its user may do.
const settled = `[...document.querySelectorAll("nav a + a:not([href^=\"/kinds\"])")].every((a) => a.querySelector(".count")) && !document.querySelector("main .bar button:disabled")`

// A person looks at all pages of the console, with objects of all kinds. With KEELSON_SCREENSHOTS=DIR it writes the
// screenshots of the documentation: make screenshots.
func TestLongAccessConsolePages(t *testing.T) {
	_, b := openShop(t)
	origin := browser.Value[string](b, "location.origin")
	b.Until(`document.querySelectorAll(".lane .run").length > 5`)
	b.Until(settled)
	b.Sees("Needs attention", "search", "debian-13", "requested")
	b.Show("overview")
	for _, page := range []struct {
		name, path string
		texts      []string
	}{
		{"machines", "/virtualmachines?namespace=shop", []string{"web", "db", "desktop", "old", "search"}},
		{"disks", "/virtualdisks?namespace=shop", []string{"orders"}},
		{"disk", "/virtualdisks/shop/orders", []string{"orders", "Conditions"}},
		{"images", "/virtualmachineimages", []string{"empty"}},
		{"image", "/virtualmachineimages/empty", []string{"empty", "Conditions"}},
		{"schedules", "/crontabs?namespace=shop", []string{"prices", "backup", "newsletter"}},
		{"clusters", "/clusters", []string{"staging"}},
		{"snapshots", "/clustersnapshots", []string{"staging-before-upgrade"}},
		{"snapshot", "/clustersnapshots/staging-before-upgrade", []string{"SnapshotTaken", "Conditions"}},
		{"kubeconfigs", "/kubeconfigs", []string{"staging"}},
		{"kubeconfig", "/kubeconfigs/staging", []string{"staging", "Conditions"}},
		{"foos", "/foos?namespace=shop", []string{"shop"}},
		{"foo", "/foos/shop/shop", []string{"Related objects", "Conditions"}},
		{"sampleresources", "/sampleresources?namespace=shop", []string{"frontend"}},
		{"sampleresource", "/sampleresources/shop/frontend", []string{"Related objects", "Conditions"}},
		{"kinds", "/kinds?namespace=shop", []string{"ConfigMap", "Deployment"}},
		{"pods", "/pods?namespace=shop", []string{"frontend"}},
		{"new-machine", "/virtualmachines?create&namespace=shop", []string{"Root disk", "apiVersion"}},
		{"new-schedule", "/crontabs?create&namespace=shop", []string{"At 03:00 every day", "apiVersion"}},
	} {
		b.Open(origin + page.path)
		b.Sees(page.texts...)
		b.Until(settled)
		if page.name == "machines" {
			b.Until(`!!document.querySelector("svg.spark path")`)
		}
		b.Show(page.name)
	}
	showMachine(b, origin)
	showSchedule(b, origin)
	showCluster(b, origin)
}

func showMachine(b *browser.Tab, origin string) {
	b.Open(origin + "/virtualmachines/shop/web")
	b.Unfold("Usage in the last hour")
	b.Until(`document.querySelectorAll("figure canvas").length === 4`)
	b.Show("machine")
	scrollTo(b, "section:has(.history)")
	b.Show("history")
	b.Press("?")
	b.Sees("Keyboard shortcuts")
	b.Show("keys")
	b.Click("Close")
	b.Unfold("Usage in the last hour") // closes it
	b.Unfold("Serial console")
	b.Sees("You type into the machine")
	scrollTo(b, "details:has(.terminal)") // it draws nothing while one does not see it
	b.Type("\r")                          // the shell has it when it is there
	b.Until(`document.querySelector(".xterm-rows").textContent.includes("root@web")`)
	b.Type("uname -a; free\r")
	b.Until(`document.querySelector(".xterm-rows").textContent.includes("Mem")`)
	b.Show("terminal")
	b.Fill("Name of the snapshot", "running")                                                        // long after the page was opened
	browser.Value[bool](b, `document.querySelector("section input[type=checkbox]").click() ?? true`) // with memory
	b.Click("Take a snapshot")
	b.Until(`[...document.querySelectorAll("section tr")].some((row) => /running.*SnapshotTaken.*memory/.test(row.textContent))`)
	b.Open(origin + "/virtualmachines/shop/desktop")
	b.Fill("Name of the snapshot", "before-install")
	b.Click("Take a snapshot")
	b.Sees("before-install", "SnapshotTaken", "Create a machine from it")
	scrollTo(b, "section:has(input)")
	b.Show("machine-snapshots")
	b.Expect("Canvas2D") // of this test, which reads the screen
	b.Unfold("Screen")
	b.Until(`document.querySelector(".vnc canvas")?.width > 300 && (` + lit + `) > 1000`)
	scrollTo(b, "details:has(.vnc)")
	b.Accessible()
	b.Show("screen")
}

func showSchedule(b *browser.Tab, origin string) {
	b.Open(origin + "/crontabs?namespace=shop&view=timeline")
	b.Until(`document.querySelectorAll(".lane .run").length > 5`)
	b.Show("timeline")
	b.Open(origin + "/crontabs/shop/prices")
	b.Until(`document.querySelectorAll(".lane .run.succeeded").length > 1`)
	b.Show("schedule")
	b.Open(origin + "/crontabs/shop/backup")
	b.Click("Change the schedule")
	b.Fill("Schedule", "30 2 * 3 SUN")
	b.Sees("its time is skipped that day")
	b.Until(`document.querySelectorAll(".times tbody tr").length === 10`)
	scrollTo(b, "main section:has(textarea)")
	b.Show("schedule-editor")
	b.Click("Cancel")
	b.Unfold("YAML")
	b.Click("Edit")
	b.Replace("30 2 * * *", "5 3 * * *")
	b.Click("Check")
	b.Sees("-   schedule: 30 2 * * *", "+   schedule: 5 3 * * *")
	browser.Value[bool](b, `(document.querySelector(".diff").scrollIntoView({block: "end"}), true)`)
	b.Show("editor")
}

func showCluster(b *browser.Tab, origin string) {
	b.Open(origin + "/clusters/staging")
	b.Sees("Succeeded", "Control plane", "API server", "State of the nodes", "alice", "staging-before-upgrade", "Create a Cluster from it")
	b.Show("cluster")
	b.Unfold("Objects in this cluster")
	b.Sees("kube-system")
	scrollTo(b, "details[open]")
	b.Show("cluster-objects")
}

func scrollTo(b *browser.Tab, selector string) {
	browser.Value[bool](b, fmt.Sprintf(`(document.querySelector(%q).scrollIntoView(), true)`, selector))
}
