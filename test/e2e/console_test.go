package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/keelson-dev/keelson/internal/testing/browser"
)

// openConsole opens a path of the console, which ends with the test.
func (s session) openConsole(t *testing.T, path string) *browser.Tab {
	t.Helper()
	served := s.Start(t, "keelson", "console", "--kubeconfig", kubeconfig)
	served.Await(t, "#token=")
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/#token=\S+`).FindString(served.Text())
	b := browser.New(t) // closed before the console
	b.Open(strings.Replace(url, "/#", path+"#", 1))
	return b
}

// A person changes a schedule in a browser, and sees its runs on the time line.
func TestLongAccessConsoleSchedule(t *testing.T) {
	s := newSession(t)
	s.kubectl(t, "create", "-f", manifest("crontab-backup.yaml"))
	b := s.openConsole(t, "/crontabs/"+s.namespace+"/backup")
	b.Sees("At 00:00 every day")
	b.Click("Change the schedule")
	b.Fill("Schedule", "*/3 * * * * *")
	b.Sees("Every 3 seconds")
	b.Until(`document.querySelectorAll(".times tbody tr").length === 10`)
	b.Click("Save")
	b.Sees("Succeeded", "< 1s")
	b.Until(`document.querySelectorAll(".lane .run.succeeded").length > 1`)
	b.Keep("real-schedule")
	b.PressUntil("go", `document.querySelector("h1").textContent === "Overview"`)
	b.Until(`document.querySelectorAll(".lane .run.succeeded").length > 1`)
	b.Keep("real-overview")
	b.Do(chromedp.NavigateBack())
	b.Click("Suspend")
	b.Sees("The schedule is suspended")
	b.Click("Run now")
	b.Sees("on demand")
}

// A person sees the display of a machine in a browser, and types into it: its firmware has a shell.
func TestLongAccessConsoleScreen(t *testing.T) {
	needQEMU(t)
	s := newSession(t)
	s.Stdin = `{apiVersion: cloudnative.tw/v1alpha1, kind: VirtualMachine, metadata: {name: desktop}, spec: {
resource: {cpu: 1, memory: 256Mi, rootDisk: 64Mi}, image: {empty: true, agent: false}, firmware: UEFI, display: {type: VGA}}}`
	s.kubectl(t, "create", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Created", "vm/desktop")
	b := s.openConsole(t, "/virtualmachines/"+s.namespace+"/desktop")
	b.Expect("Canvas2D") // of this test, which reads the screen
	b.Unfold("Screen")
	b.Sees("Ctrl-] leaves the screen")
	b.Until(`document.querySelector(".vnc canvas").width > 300 && (` + lit + `) > 1000`)
	shell := ""
	for same := 0; same < 5; {
		b.Pause(time.Second)
		now := browser.Value[string](b, picture)
		if same++; now != shell {
			shell, same = now, 0
		}
	}
	b.Keep("real-screen")
	b.Do(chromedp.Focus(".vnc canvas"))
	b.Type("help\r")
	b.Until(fmt.Sprintf("(%s) !== %q", picture, shell))
	b.Keep("real-screen-typed")
	b.Saved("Screenshot", "image/png ")
	s.kubectl(t, "patch", "vm/desktop", "--type=merge", "-p", `{"spec":{"action":"stopped"}}`)
	b.Sees("powered off")
}

const (
	pixels = `(() => { const c = document.querySelector(".vnc canvas"); return new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer); })()`
	// lit is how many pixels of the screen are not black.
	lit = pixels + `.filter((p) => p & 0xffffff).length`
	// picture identifies what the screen shows.
	picture = `String(` + pixels + `.reduce((sum, p) => (sum * 31 + p) | 0, 0))`
)

// A person opens the objects of another Cluster in a browser, and downloads its kubeconfig.
func TestLongAccessConsoleCluster(t *testing.T) {
	s := clusterSession(t)
	s.Stdin = "{apiVersion: clusterprovisioner.rke.io/v1alpha1, kind: Cluster, metadata: {name: opened}}"
	s.kubectl(t, "create", "-f", "-")
	s.Stdin = ""
	t.Cleanup(func() { s.Run(t, "kubectl", "delete", "cluster/opened", "--wait=false") })
	b := s.openConsole(t, "/clusters/opened")
	b.Sees("Provision")
	s.wait(t, "condition=Ready", "cluster/opened")
	b.Sees("Succeeded", "Control plane", "API server")
	b.Saved("Download the kubeconfig", "text/plain")
	b.Unfold("Objects in this cluster")
	b.Sees("kube-system")
	b.Fill("Kind", "pods")
	b.Sees("There are no Pods")
	server := s.kubectl(t, "config", "view", "--minify", "-o", "jsonpath={.clusters[0].cluster.server}") + "/apis/access.cloudnative.tw/v1alpha1/clusters/opened/proxy"
	s.OK(t, "kubectl", "--server", server, "run", "inside", "--image=busybox")
	b.Sees("inside", "Logs")
	b.Keep("real-cluster")
}
