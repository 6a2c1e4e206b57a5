//go:build linux

package node

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/keelson-dev/keelson/internal/access/client"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// ofMachines selects the objects of machines of the driver pod.
const ofMachines = "cloudnative.tw/virtualmachine-uid"

// machineInPod is a machine with the default guest, a root disk, and a web server at a port that is not in spec.ports. The page disk says
// whether a disk "data" is one that an earlier run had, and the page boot differs after each boot.
const machineInPod = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: vm}
spec:
  driver: pod
  resource: {cpu: 1, memory: 192Mi, rootDisk: 64Mi}
  cloudInit:
    userData: |
      #cloud-config
      write_files:
      - {path: /www/hello, content: it serves}
      bootcmd:
      - mkdir -p /www; cat /proc/sys/kernel/random/boot_id > /www/boot
      - disk=/dev/disk/by-id/virtio-data; if [ -e $disk ]; then head -c 4 $disk | tr '\0' - > /www/disk; printf kept > $disk; sync; fi
      - busybox httpd -p 8080 -h /www
  readinessProbe: {httpGet: {port: 8080, path: /hello}, periodSeconds: 1, timeoutSeconds: 30}
`

// TestLongMachinesInPods is the life of a VirtualMachine of the driver pod on a real node, in a namespace that enforces Pod Security
// "restricted".
func TestLongMachinesInPods(t *testing.T) {
	u := newPodsUser(t)
	u.steps(t, []step{
		{"the instance starts, with the images", upWithPods},
		{"what the driver cannot do is refused", refusedInPods},
		{"it is created, and its agent connects", createInPod},
		{"its console, its log and its ports are reached", accessInPod},
		{"it gets a display", screenInPod},
		{"it is paused, and goes on", pauseInPod},
		{"it sleeps without its Pod, and goes on", sleepInPod},
		{"its memory is damaged while it sleeps, and it boots", damagedInPod},
		{"its node is drained", drainInPod},
		{"it is restarted, and keeps its disk", restartInPod},
		{"its memory changes while it runs", balloonInPod},
		{"its ports change while it runs", portInPod},
		{"its disk cannot grow here, and it starts", refusedGrowthInPod},
		{"its disk grows while it runs", growInPod},
		{"a disk is added, kept and removed", disksInPod},
		{"its Pod deleted, it runs again", func(t *testing.T, u *user) {
			u.losePod(t, func() { u.kubectl(t, "delete", "pod", "--selector", ofMachines, "--wait=false") })
		}},
		{"its Pod deleted by force, it runs again, and never twice", forcedInPod},
		{"the manager killed, and its Pod deleted by force, it runs again", managerKilledInPod},
		{"deleted, it leaves nothing", deleteInPod},
		{"a machine moves to another node with its memory", movedInPod},
		{"an autoscaler scales a set of machines", autoscaledInPod},
		{"a machine has new disks at each start", ephemeralInPod},
		{"a machine downloads its image", imageInPod},
		{"the manager killed as soon as a machine is created, it runs", createdAndKilledInPod},
	})
}

// newPodsUser is like newUser, for tests of machines in Pods.
func newPodsUser(t *testing.T) *user {
	t.Helper()
	if os.Getenv(appsVariable) != "" {
		t.Skip("the image of the launcher is built with Go, which this machine does not have")
	}
	u := newUser(t)
	t.Cleanup(func() { // before the instance stops
		if t.Failed() {
			u.Run(t, "kubectl", "get", "virtualmachine,vmsnap", "--output", "yaml")
			u.Run(t, "kubectl", "describe", "pods,pvc")
			u.Run(t, "kubectl", "logs", "--selector", ofMachines, "--tail=50")
			u.Run(t, "kubectl", "logs", "--selector", ofSnapshots, "--tail=50")
			u.Run(t, "kubectl", "get", "events")
		}
	})
	return u
}

// startPods starts the instance, or only its manager if the rest runs.
func (u *user) startPods(t *testing.T) string {
	t.Helper()
	return u.OK(t, "keelson", "up", "--detach", "--node=real", "--vm-driver=pod", "--data-dir", u.data)
}

func upWithPods(t *testing.T, u *user) {
	u.startPods(t)
	u.kubectl(t, "label", "namespace", "default", "pod-security.kubernetes.io/enforce=restricted")
}

func refusedInPods(t *testing.T, u *user) {
	for field, spec := range map[string]string{
		"spec.disks":             "disks: [{name: data, virtualDisk: data}]",
		"spec.firmware":          "firmware: UEFI",
		"spec.image":             "image: {path: /disk.qcow2}",
		"spec.resource.cpu":      "resource: {cpu: 500m}",
		"spec.resource.rootDisk": "image: {container: \"disk:v1\"}",
	} {
		shell := u.Shell
		shell.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: refused}\nspec: {driver: pod, " + spec + "}\n"
		transcript.Contains(t, shell.Fails(t, 1, "kubectl", "create", "-f", "-"), field, "the driver pod")
	}
}

func createInPod(t *testing.T, u *user) {
	began := time.Now()
	u.apply(t, machineInPod)
	u.awaitMachine(t)
	t.Logf("created and ready after %.1f s", time.Since(began).Seconds())
	if got := u.field(t, "virtualmachine/vm", `{.status.conditions[?(@.type=="AgentConnected")].status}`); got != "True" {
		t.Errorf("AgentConnected is %q", got)
	}
	u.Until(t, "its usage is measured", transcript.Not(""), "kubectl", "get", "virtualmachine/vm", "-o", "jsonpath={.status.server.usage.memory}")
	if got, want := u.field(t, "virtualmachine/vm", "{.status.server.addresses[0]}"), u.kubectl(t, "get", "pods", "--selector", ofMachines, "-o", "jsonpath={.items[*].status.podIP}"); got != want {
		t.Errorf("its address is %q, that of its Pod %q", got, want)
	}
}

// awaitMachine waits until the machine is ready.
func (u *user) awaitMachine(t *testing.T) {
	t.Helper()
	u.kubectl(t, "wait", "--for=condition=Ready", "virtualmachine/vm", "--timeout", transcript.WaitTimeout.String())
}

// pauseInPod pauses the machine in its Pod.
func pauseInPod(t *testing.T, u *user) {
	pod := u.kubectl(t, "get", "pods", "--selector", ofMachines, "-o", "jsonpath={.items[*].metadata.uid}")
	u.request(t, "paused")
	u.kubectl(t, "wait", "--for=jsonpath={.status.server.state}=Paused", "virtualmachine/vm", "--timeout", transcript.WaitTimeout.String())
	if got := u.field(t, "virtualmachine/vm", `{.status.conditions[?(@.type=="Ready")].reason}`); got != "Paused" {
		t.Errorf("Ready has the reason %s", got)
	}
	u.request(t, "active")
	u.awaitMachine(t)
	if now := u.kubectl(t, "get", "pods", "--selector", ofMachines, "-o", "jsonpath={.items[*].metadata.uid}"); now != pod {
		t.Errorf("its Pod was replaced")
	}
}

// accessInPod reaches the machine by the access API, in a namespace that lets nobody in.
func accessInPod(t *testing.T, u *user) {
	u.apply(t, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: nobody}\nspec: {podSelector: {}, policyTypes: [Ingress]}\n")
	defer u.kubectl(t, "delete", "networkpolicy", "nobody")
	config, err := clientcmd.BuildConfigFromFlags("", u.Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	u.types(t, "echo it says $((6*7))", "it says 42")
	began := time.Now()
	if got := u.page(t, "hello"); got != "it serves" {
		t.Errorf("port 8080 answers %q", got)
	}
	t.Logf("port 8080 answered after %d ms", time.Since(began).Milliseconds())
	if conn, err := client.DialPort(t.Context(), config, "default", "vm", 9); err == nil {
		_ = conn.Close()
		t.Error("port 9, at which nothing listens, is open")
	} else {
		transcript.Contains(t, err.Error(), "the guest refuses the connection")
	}
	u.Until(t, "the log has the output of the console", func(out string) bool { return strings.Contains(out, "it says 42") },
		"keelson", "vm", "logs", "vm", "--kubeconfig", u.Env["KUBECONFIG"])
}

// page returns a page of the web server in the machine.
func (u *user) page(t *testing.T, name string) string {
	t.Helper()
	return u.pageOf(t, "vm", name)
}

// pageOf is page for any machine.
func (u *user) pageOf(t *testing.T, machine, name string) string {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", u.Env["KUBECONFIG"])
	if err != nil {
		t.Fatal(err)
	}
	conn, err := client.DialPort(t.Context(), config, "default", machine, 8080)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // it was read to its end
	if _, err := io.WriteString(conn, "GET /"+name+" HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(raw), "\r\n\r\n")
	return body
}

// run returns the current run of the machine.
func (u *user) run(t *testing.T) string {
	t.Helper()
	return u.field(t, "virtualmachine/vm", "{.status.server.run}")
}

// awaitOtherRun waits until the machine is ready in another run.
func (u *user) awaitOtherRun(t *testing.T, before string) {
	t.Helper()
	u.Until(t, "it runs again", func(out string) bool {
		words := strings.Fields(out)
		return len(words) == 2 && words[0] != before && words[1] == "True"
	}, "kubectl", "get", "virtualmachine", "vm", "-o", `jsonpath={.status.server.run} {.status.conditions[?(@.type=="Ready")].status}`)
}

// restart requests a restart, and waits for it.
func (u *user) restart(t *testing.T) {
	t.Helper()
	before := u.run(t)
	u.kubectl(t, "patch", "virtualmachine", "vm", "--type=merge", "--patch", `{"spec":{"restartRequestedAt":"`+time.Now().UTC().Format(time.RFC3339)+`"}}`)
	u.awaitOtherRun(t, before)
}

func restartInPod(t *testing.T, u *user) {
	began, claim := time.Now(), u.field(t, "pvc", "{.items[*].metadata.uid}")
	u.restart(t)
	t.Logf("ready again after %.1f s", time.Since(began).Seconds())
	if now := u.field(t, "pvc", "{.items[*].metadata.uid}"); now != claim || claim == "" {
		t.Errorf("its claim was %q and is %q", claim, now)
	}
}

// disksInPod adds a disk, which has its content in the next run, too, and removes it.
func disksInPod(t *testing.T, u *user) {
	change := func(disks, reason string) {
		t.Helper()
		u.kubectl(t, "patch", "virtualmachine", "vm", "--type=merge", "--patch", `{"spec":{"disks":`+disks+`}}`)
		u.kubectl(t, "wait", "virtualmachine/vm", "--for=condition=DisksReady=False", "--timeout", transcript.WaitTimeout.String())
		transcript.Contains(t, u.field(t, "virtualmachine/vm", `{.status.conditions[?(@.type=="DisksReady")]}`), "DisksPending", reason)
		u.restart(t)
		u.kubectl(t, "wait", "virtualmachine/vm", "--for=condition=DisksReady", "--timeout", transcript.WaitTimeout.String())
	}
	change(`[{"name":"data","size":"32Mi"}]`, "Disk data: it is added when the machine restarts")
	if got := u.page(t, "disk"); got != "----" {
		t.Errorf("the new disk begins with %q", got)
	}
	u.restart(t)
	if got := u.page(t, "disk"); got != "kept" {
		t.Errorf("after a restart, the disk begins with %q", got)
	}
	change("null", "Disk data: it is removed when the machine restarts")
	u.Until(t, "its claim is gone", transcript.Is(""), "kubectl", "get", "pvc", "--selector", "cloudnative.tw/virtualmachine-disk", "-o", "name")
}

// losePod loses the Pod of the machine, which must run again, and never twice at once.
func (u *user) losePod(t *testing.T, lose func()) {
	t.Helper()
	before, uid := u.run(t), u.field(t, "virtualmachine/vm", "{.metadata.uid}")
	most := watchProcesses(t, uid)
	began := time.Now()
	lose()
	u.awaitOtherRun(t, before)
	t.Logf("ready again after %.1f s", time.Since(began).Seconds())
	if n := most(); n != 1 {
		t.Errorf("it ran %d times at once", n)
	}
}

// deleteByForce deletes the Pod from the API server, which does not wait until its containers have ended.
func (u *user) deleteByForce(t *testing.T) {
	t.Helper()
	u.kubectl(t, "delete", "pod", "--selector", ofMachines, "--force", "--grace-period=0", "--wait=false")
}

func forcedInPod(t *testing.T, u *user) { u.losePod(t, func() { u.deleteByForce(t) }) }

func managerKilledInPod(t *testing.T, u *user) {
	u.losePod(t, func() {
		u.killManager(t)
		u.deleteByForce(t)
		u.startPods(t)
	})
}

// killManager kills the process with the controllers.
func (u *user) killManager(t *testing.T) {
	t.Helper()
	signals.Send(t, u.status(t).ManagerPID, syscall.SIGKILL)
	transcript.Eventually(t, "the manager has ended", func() bool { return u.status(t).ManagerPID == 0 })
}

func deleteInPod(t *testing.T, u *user) {
	began := time.Now()
	u.kubectl(t, "delete", "virtualmachine", "vm", "--timeout", transcript.WaitTimeout.String())
	t.Logf("deleted after %.1f s", time.Since(began).Seconds())
	if left := u.kubectl(t, "get", "pods,secrets,pvc,poddisruptionbudgets", "--all-namespaces", "--selector", ofMachines, "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

func createdAndKilledInPod(t *testing.T, u *user) {
	u.apply(t, machineInPod)
	u.killManager(t)
	u.startPods(t)
	u.awaitMachine(t)
	deleteInPod(t, u)
}
