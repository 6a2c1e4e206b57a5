//go:build linux

package node

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// web is a Pod of the program app on each node, and a Service for all of them.
const web = `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: app, image: "app:v1"}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports:
  - {name: tcp, port: 80, targetPort: 8080}
  - {name: udp, port: 80, targetPort: 8080, protocol: UDP}
`

// TestLongNodes is the life of three real nodes of one control plane.
func TestLongNodes(t *testing.T) {
	if rootless {
		t.Skip("several real nodes need root")
	}
	u := newUser(t)
	u.steps(t, []step{
		{"they are ready, and share the machine", upWithThree},
		{"an image is loaded into all of them", func(t *testing.T, u *user) { u.loadApp(t, "v1") }},
		{"each has a Pod, with logs, exec and port-forward", podOnEach},
		{"an image is pulled once for all of them", sharesLayers},
		{"Pods reach each other, Services and the API", reachAcross},
		{"kubectl top shows each node", topOfNodes},
		{"a claim gets a volume on the node of its Pod", volumeOnNode},
		{"a node is rebooted under load", rebooted},
		{"a node killed, the others go on, and it links itself again", nodeKilled},
		{"a node that is drained is empty", drained},
		{"a node stopped and started", stoppedAndStarted},
		{"a node is added", added},
		{"a node that is partitioned comes back, and the Pods of a lost one are replaced when it is out of service", partitionedAndLost},
		{"keelson killed, the nodes keep running, and one that is off stays off", keelsonKilledWithOneOff},
		{"nodes are removed with all that they have", removed},
		{"down leaves nothing, up has fewer nodes", upWithTwo},
	})
}

func (u *user) upWith(t *testing.T, nodes int) string {
	t.Helper()
	return u.OK(t, "keelson", "up", "--detach", "--node=real", fmt.Sprintf("--nodes=%d", nodes), "--vm-driver=fake", "--data-dir", u.data)
}

// keelsonNode runs a command of keelson node.
func (u *user) keelsonNode(t *testing.T, words ...string) string {
	t.Helper()
	return u.OK(t, append(append([]string{"keelson", "node"}, words...), "--data-dir", u.data)...)
}

func upWithThree(t *testing.T, u *user) {
	transcript.Contains(t, u.upWith(t, 3), "Its 3 nodes share this host: Pods run with")
	var nodes struct {
		Items []struct {
			Status struct{ Capacity, Allocatable map[string]resource.Quantity }
		}
	}
	if err := json.Unmarshal([]byte(u.kubectl(t, "get", "nodes", "-o", "json")), &nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 3 {
		t.Fatalf("%d nodes", len(nodes.Items))
	}
	for _, name := range []string{"cpu", "memory"} {
		var sum resource.Quantity
		for _, n := range nodes.Items {
			sum.Add(n.Status.Allocatable[name])
		}
		if capacity := nodes.Items[0].Status.Capacity[name]; sum.Sign() <= 0 || sum.MilliValue() > capacity.MilliValue()+3 { // of rounding
			t.Errorf("%s: the nodes have %s together, the machine %s", name, sum.String(), capacity.String())
		}
	}
	transcript.Contains(t, u.keelsonNode(t, "list"), "keelson-node   ", "keelson-node-2   On      True    10.", "keelson-node-3   ")
	transcript.Contains(t, u.Fails(t, 1, "keelson", "node", "stop", "nobody", "--data-dir", u.data),
		"no real node is named nobody: choose one of keelson-node, keelson-node-2, keelson-node-3")
}

// podOn returns the name and the address of the Pod web on a node.
func (u *user) podOn(t *testing.T, node string) (name, address string) {
	t.Helper()
	words := strings.Fields(u.kubectl(t, "get", "pods", "-l", "app=web", "--field-selector", "spec.nodeName="+node, "-o",
		"jsonpath={.items[0].metadata.name} {.items[0].status.podIP}"))
	if len(words) != 2 {
		t.Fatalf("the Pod on %s: %q", node, words)
	}
	return words[0], words[1]
}

func podOnEach(t *testing.T, u *user) {
	u.apply(t, web)
	u.kubectl(t, "rollout", "status", "daemonset/web", "--timeout", transcript.WaitTimeout.String())
	for index := range 3 {
		pod, address := u.podOn(t, node.Name(index))
		u.Until(t, "it logs", transcript.Is("serving v1"), "kubectl", "logs", pod)
		if got := u.kubectl(t, "exec", pod, "--", "/app", "say", "here"); got != "here\n" {
			t.Errorf("exec: %q", got)
		}
		want := "v1 on " + pod + "\n"
		if got := u.kubectl(t, "get", "--raw", proxied(pod)); got != want {
			t.Errorf("through kube-apiserver: %q", got)
		}
		if got := get(t, "http://"+address+":8080"); got != want {
			t.Errorf("from the machine: %q", got)
		}
		forward := u.Start(t, "kubectl", "port-forward", "pod/"+pod, ":8080")
		forward.Await(t, "Forwarding from 127.0.0.1:")
		port := strings.Fields(strings.SplitAfter(forward.Text(), "127.0.0.1:")[1])[0]
		if got := get(t, "http://127.0.0.1:"+port); got != want {
			t.Errorf("through port-forward: %q", got)
		}
		forward.Signal(t, os.Interrupt)
		forward.Wait(t)
	}
}

// reachAcross has the Pod on each node reach those on all nodes, the Service and the API.
func reachAcross(t *testing.T, u *user) {
	for from := range 3 {
		reachFrom(t, u, from)
	}
	transcript.Contains(t, get(t, "http://"+u.field(t, "service/web", "{.spec.clusterIP}")), "v1 on web-")
}

// reachFrom has the Pod on one node reach those on all nodes, the Service and the API.
func reachFrom(t *testing.T, u *user, from int) {
	service := u.field(t, "service/web", "{.spec.clusterIP}")
	pod, own := u.podOn(t, node.Name(from))
	var all []string
	for to := range 3 {
		other, address := u.podOn(t, node.Name(to))
		all = append(all, "v1 on "+other+"\n")
		u.Until(t, other+" answers "+pod, func(out string) bool { return strings.HasSuffix(out, "v1 on "+other+"\n") },
			"kubectl", "exec", pod, "--", "/app", "get", "http://"+address+":8080")
		if got := u.kubectl(t, "exec", pod, "--", "/app", "ask", address+":8080", "hello"); got != "hello\n" {
			t.Errorf("by UDP from %s to %s: %q", own, address, got)
		}
	}
	served := ""
	transcript.Eventually(t, "all Pods answer through the Service", func() bool {
		words := append([]string{"kubectl", "exec", pod, "--", "/app", "get"}, slices.Repeat([]string{"http://web"}, 10)...)
		served += u.Run(transcript.Quietly(t), words...).Stdout
		return !slices.ContainsFunc(all, func(answer string) bool { return !strings.Contains(served, answer) })
	})
	words := append([]string{"exec", pod, "--", "/app", "ask", service + ":80"}, slices.Repeat([]string{"hello"}, 6)...)
	if got := u.kubectl(t, words...); got != strings.Repeat("hello\n", 6) {
		t.Errorf("by UDP through the Service: %q", got)
	}
	transcript.Contains(t, u.kubectl(t, "exec", pod, "--", "/app", "secrets"), "403 Forbidden\n", "system:serviceaccount:default:default")
}

// keeperOn runs the Pod keeper on a node, and returns the name of its volume.
func (u *user) keeperOn(t *testing.T, name string) (volume string) {
	t.Helper()
	u.apply(t, strings.Replace(keeper, "spec:\n  securityContext", "spec:\n  nodeSelector: {kubernetes.io/hostname: "+name+"}\n  securityContext", 1))
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/keeper", "--timeout", transcript.WaitTimeout.String())
	return u.field(t, "pvc/kept", "{.spec.volumeName}")
}

// volumeOnNode has a Pod on the second node, and its volume.
func volumeOnNode(t *testing.T, u *user) {
	name := u.keeperOn(t, node.Name(1))
	if _, err := os.Stat(filepath.Join(node.Dir(u.data, 1), "volumes", name)); err != nil {
		t.Error(err)
	}
	u.kubectl(t, "delete", "pod", "keeper")
	// The next Pod has to run where the volume is.
	u.apply(t, keeper)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/keeper", "--timeout", transcript.WaitTimeout.String())
	if got := u.field(t, "pod/keeper", "{.spec.nodeName}"); got != node.Name(1) {
		t.Errorf("the Pod is on %s", got)
	}
	u.kubectl(t, "delete", "pod/keeper", "pvc/kept")
	u.kubectl(t, "wait", "--for=delete", "pv/"+name, "--timeout", transcript.WaitTimeout.String())
}

// nodeKilled kills the first node, by which this machine reaches Services. It is restarted.
func nodeKilled(t *testing.T, u *user) {
	service := "http://" + u.field(t, "service/web", "{.spec.clusterIP}")
	before := u.running(t)
	killed, _ := u.podOn(t, node.Name(0))
	other, _ := u.podOn(t, node.Name(1))
	pid := u.nodePID(t)
	signals.Send(t, pid, syscall.SIGKILL)
	transcript.Eventually(t, "Services are reached by another node", func() bool {
		answer, err := tryGet(service)
		return err == nil && strings.HasPrefix(answer, "v1 on web-")
	})
	if got := u.kubectl(t, "exec", other, "--", "/app", "say", "still here"); got != "still here\n" {
		t.Errorf("exec on another node: %q", got)
	}
	after := before[killed]
	after.Restarts++
	before[killed] = after
	eventuallyEqual(t, "only its Pod was restarted", before, func() map[string]life { return u.running(t) })
	reachFrom(t, u, 0)
	reachFrom(t, u, 2)
}

func drained(t *testing.T, u *user) {
	u.kubectl(t, "create", "deployment", "shop", "--image=app:v1", "--replicas=6")
	u.kubectl(t, "wait", "--for=condition=Available", "deployment/shop", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "drain", node.Name(1), "--ignore-daemonsets", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "wait", "--for=condition=Available", "deployment/shop", "--timeout", transcript.WaitTimeout.String())
	if got := u.kubectl(t, "get", "pods", "-l", "app=shop", "--field-selector", "spec.nodeName="+node.Name(1), "-o", "name"); got != "" {
		t.Errorf("on the drained node: %s", got)
	}
	u.kubectl(t, "uncordon", node.Name(1))
}

func stoppedAndStarted(t *testing.T, u *user) {
	pod, _ := u.podOn(t, node.Name(1))
	again := u.running(t)[pod]
	if got := u.keelsonNode(t, "stop", node.Name(1)); got != "node/keelson-node-2 stopped\n" {
		t.Errorf("got %q", got)
	}
	transcript.Contains(t, u.keelsonNode(t, "list"), "keelson-node-2   Off")
	if got := u.keelsonNode(t, "start", node.Name(1)); got != "node/keelson-node-2 started\n" {
		t.Errorf("got %q", got)
	}
	again.Restarts++
	eventuallyEqual(t, "its Pod runs again", again, func() life { return u.running(t)[pod] })
	reachFrom(t, u, 1)
}

// partitionedAndLost cuts the second node off the others, the machine and the API, and powers the third one off for good: Kubernetes takes
// most of a minute to notice either. From then on, no request to a Service goes there. The Pods of the node that was cut off run on, and it
// comes back. Kubernetes replaces those of the lost node once somebody says that it is off.
func partitionedAndLost(t *testing.T, u *user) {
	cut, lost := node.Name(1), node.Name(2)
	first, _ := u.podOn(t, node.Name(0))
	_, behind := u.podOn(t, cut)
	_, address := u.podOn(t, node.Name(3))
	client := u.knockFromPod(t, "http://web", "http://"+address+":8080")
	before := u.running(t)
	u.partition(t, 1, "--insert")
	u.keelsonNode(t, "kill", lost)
	transcript.Eventually(t, "its Pod is not reached", func() bool {
		return u.Run(t, "kubectl", "exec", first, "--", "/app", "ask", behind+":8080", "hello").Code != 0
	})
	u.kubectl(t, "wait", "--for=condition=Ready=Unknown", "node/"+cut, "node/"+lost, "--timeout", transcript.WaitTimeout.String())
	for _, name := range []string{cut, lost} {
		u.Until(t, "its Pod is not ready", transcript.Is("false"), "kubectl", "get", "endpointslices", "-l", "kubernetes.io/service-name=web",
			"-o", `jsonpath={.items[*].endpoints[?(@.nodeName=="`+name+`")].conditions.ready}`)
	}
	failed := client.settle(t)
	u.partition(t, 1, "--delete")
	u.kubectl(t, "wait", "--for=condition=Ready", "node/"+cut, "--timeout", transcript.WaitTimeout.String())
	eventuallyEqual(t, "the Pods are the same ones", before, func() map[string]life { return u.running(t) })
	u.outOfService(t, lost)
	client.hold(t, failed)
	u.kubectl(t, "delete", "pod/knocker")
}

// outOfService says that a node is off for good, and waits until its Pods are replaced.
func (u *user) outOfService(t *testing.T, lost string) {
	t.Helper()
	u.kubectl(t, "taint", "node", lost, "node.kubernetes.io/out-of-service=lost:NoExecute")
	u.Until(t, "no Pod is left on it", transcript.Is(""), "kubectl", "get", "pods", "-l", "app=shop", "--field-selector", "spec.nodeName="+lost, "-o", "name")
	u.kubectl(t, "wait", "--for=jsonpath={.status.readyReplicas}=6", "deployment/shop", "--timeout", transcript.WaitTimeout.String())
}

// keelsonKilledWithOneOff kills the main process while a node is off.
func keelsonKilledWithOneOff(t *testing.T, u *user) {
	before := u.running(t)
	signals.Send(t, u.status(t).ManagerPID, syscall.SIGKILL)
	transcript.Eventually(t, "it has ended", func() bool { return u.status(t).ManagerPID == 0 })
	u.OK(t, "keelson", "up", "--detach", "--vm-driver=fake", "--data-dir", u.data) // it knows the number of its nodes
	transcript.Contains(t, u.keelsonNode(t, "list"), "keelson-node     On", "keelson-node-2   On", "keelson-node-3   Off")
	eventuallyEqual(t, "the Pods are the same ones", before, func() map[string]life { return u.running(t) })
	u.kubectl(t, "taint", "node", node.Name(2), "node.kubernetes.io/out-of-service-")
	u.keelsonNode(t, "start", node.Name(2))
	u.kubectl(t, "rollout", "status", "daemonset/web", "--timeout", transcript.WaitTimeout.String())
	reachAcross(t, u)
}

func upWithTwo(t *testing.T, u *user) {
	u.OK(t, "keelson", "down", "--data-dir", u.data)
	u.isAsBefore(t)
	u.upWith(t, 2)
	if got := u.field(t, "nodes", "{.items[*].metadata.name}"); got != "keelson-node keelson-node-2" {
		t.Errorf("nodes: %q", got)
	}
	u.kubectl(t, "wait", "--for=condition=Available", "deployment/shop", "--timeout", transcript.WaitTimeout.String())
}

// partition inserts, or deletes, rules that drop everything that comes to a node.
func (u *user) partition(t *testing.T, index int, action string) {
	t.Helper()
	api, err := url.Parse(u.status(t).Server)
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []string{"-i eth0", "-i peer-+", "-i lo -p tcp --dport " + api.Port()} {
		words := append([]string{"--target", fmt.Sprint(u.inner(t, index)), "--net", "iptables", "-w", "-t", "raw", action, "PREROUTING"}, strings.Fields(rule)...)
		if out, err := exec.Command("nsenter", append(words, "-j", "DROP")...).CombinedOutput(); err != nil {
			t.Fatalf("nsenter %v: %v: %s", words, err, out)
		}
	}
}

// inner returns the first process inside a node.
func (u *user) inner(t *testing.T, index int) int {
	t.Helper()
	var record struct{ PID int }
	data, err := os.ReadFile(filepath.Join(u.data, "peers", strconv.Itoa(index)+".json"))
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err != nil {
		t.Fatal(err)
	}
	return record.PID
}
