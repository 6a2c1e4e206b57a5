//go:build linux

package node

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/node"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// counter is a Pod on the second node that writes numbers to a volume, each of them to the disk before it shows it.
const counter = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: numbers}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
---
apiVersion: v1
kind: Pod
metadata: {name: counter}
spec:
  nodeSelector: {kubernetes.io/hostname: %s}
  containers:
  - {name: app, image: "app:v1", args: [count, /numbers], volumeMounts: [{name: numbers, mountPath: /numbers}]}
  volumes:
  - {name: numbers, persistentVolumeClaim: {claimName: numbers}}
`

// rebooted shuts down and starts the second node under load, and then powers it off and starts it.
func rebooted(t *testing.T, u *user) {
	service := u.field(t, "service/web", "{.spec.clusterIP}")
	_, first := u.podOn(t, node.Name(0))
	pod, address := u.podOn(t, node.Name(1))
	bystander, third := u.podOn(t, node.Name(2))
	u.apply(t, fmt.Sprintf(counter, node.Name(1)))
	inside := u.knockFromPod(t, "http://web", "http://"+third+":8080")
	outside := u.knockFromHost(t, "http://"+service, "http://"+first+":8080", "http://"+third+":8080")
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/counter", "--timeout", transcript.WaitTimeout.String())

	before := u.running(t)
	var things map[string]int
	transcript.Eventually(t, "nothing is about to start or end", func() bool {
		last := things
		things = u.things(t)
		return maps.Equal(last, things)
	})
	var lostInside, lostOutside int // requests to the Service while the node was off
	for round, end := range []string{"stop", "kill"} {
		inside.hold(t, lostInside)
		outside.hold(t, lostOutside)
		acknowledged := u.counted(t)
		u.keelsonNode(t, end, node.Name(1))
		transcript.Contains(t, u.Run(t, "kubectl", "exec", bystander, "--", "/app", "get", "http://"+address+":8080").Stdout, "no route to host")
		u.keelsonNode(t, "start", node.Name(1))
		transcript.Contains(t, u.keelsonNode(t, "list"), "keelson-node-2   On      True")
		want := maps.Clone(before)
		for _, name := range []string{pod, "counter"} {
			want[name] = life{before[name].UID, before[name].Restarts + round + 1}
		}
		eventuallyEqual(t, "its Pods run again, and the others are the same ones", want, func() map[string]life { return u.running(t) })
		if now := u.counted(t); now < acknowledged {
			t.Errorf("after %s, the last number on the disk is %d, and was %d", end, now, acknowledged)
		}
		lostInside, lostOutside = inside.settle(t), outside.settle(t)
		eventuallyEqual(t, "there is as much as before", things, func() map[string]int { return u.things(t) })
	}
	inside.hold(t, lostInside)
	outside.hold(t, lostOutside)
	u.kubectl(t, "delete", "pod/counter", "pvc/numbers", "pod/knocker")
}

// counted returns the last number that the Pod counter says is on the disk.
func (u *user) counted(t *testing.T) int {
	t.Helper()
	number, err := strconv.Atoi(strings.TrimSpace(u.kubectl(t, "get", "--raw", proxied("counter"))))
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// knocker reads the reports of the program app that requests URLs all the time, a Service first and then Pods.
type knocker struct{ read func(t testing.TB) string }

// knocks is the report for one URL.
type knocks struct {
	url                        string
	answered, lost, inSequence int
	last                       string
}

// knockFromPod starts a client on the first node.
func (u *user) knockFromPod(t *testing.T, urls ...string) knocker {
	t.Helper()
	u.kubectl(t, append([]string{"run", "knocker", "--image=app:v1", "--overrides", `{"spec":{"nodeName":"` + node.Name(0) + `"}}`, "--", "knock", ":8080"}, urls...)...)
	u.kubectl(t, "wait", "--for=condition=Ready", "pod/knocker", "--timeout", transcript.WaitTimeout.String())
	return knocker{func(t testing.TB) string { return u.OK(t, "kubectl", "get", "--raw", proxied("knocker")) }}
}

// knockFromHost starts a client outside of the nodes.
func (u *user) knockFromHost(t *testing.T, urls ...string) knocker {
	t.Helper()
	folder := t.TempDir()
	buildApp(t, folder, "v1")
	address := u.nodeAddress(t).Prev().String() + ":8089"
	cmd := exec.Command(filepath.Join(folder, "app"), append([]string{"knock", address}, urls...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	transcript.Eventually(t, "the client runs", func() bool {
		_, err := tryGet("http://" + address)
		return err == nil
	})
	return knocker{func(t testing.TB) string {
		answer, err := tryGet("http://" + address)
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}}
}

func (k knocker) reports(t testing.TB) (all []knocks) {
	t.Helper()
	for line := range strings.Lines(k.read(t)) {
		var r knocks
		if _, err := fmt.Sscanf(line, "%s %d %d %d %q", &r.url, &r.answered, &r.lost, &r.inSequence, &r.last); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, r)
	}
	return all
}

// settle waits until every URL is answered so often in sequence that each Pod of the Service was asked. It returns how many requests to the
// Service have failed.
func (k knocker) settle(t *testing.T) (lost int) {
	t.Helper()
	transcript.Eventually(t, "every request is answered", func() bool {
		all := k.reports(transcript.Quietly(t))
		lost = all[0].lost
		return !slices.ContainsFunc(all, func(r knocks) bool { return r.inSequence < 40 })
	})
	return lost
}

// hold checks that no more requests to the Service have failed than before, and none to a Pod.
func (k knocker) hold(t *testing.T, lost int) {
	t.Helper()
	for _, r := range k.reports(t) {
		t.Logf("%s: %d answers, %d failures, the last one %s", r.url, r.answered, r.lost, r.last)
		if r.lost != lost {
			t.Errorf("%d requests to %s failed, want %d", r.lost, r.url, lost)
		}
		lost = 0
	}
}

// things counts what a node that was started again could have twice, or not have removed.
func (u *user) things(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for index, id := range nodeIDs(t, u.data) {
		count := func(what string, number int) { counts[fmt.Sprintf("%s of node %d", what, index)] += number }
		links, err := filepath.Glob("/sys/class/net/kn-" + id)
		if err != nil {
			t.Fatal(err)
		}
		count("links on the host", len(links))
		for depth := range 6 { // the cgroup of the node, kubepods, the class of Pods, the Pod, the container, and below it
			paths, err := filepath.Glob("/sys/fs/cgroup/*/keelson-" + id + "/" + strings.Repeat("*/", depth))
			if err != nil {
				t.Fatal(err)
			}
			count("cgroups", len(paths))
		}
		pid := u.inner(t, index)
		for _, child := range descendants(t, pid) {
			if words := commandLine(child); len(words) > 0 {
				count("processes "+filepath.Base(words[0]), 1)
			}
		}
		for what, command := range map[string]string{
			// Not those of IPv6: the kernel adds them late, when a link has settled.
			"links": "ip -o link", "addresses": "ip -4 -o address", "routes": "ip -4 route show table all", "routing rules": "ip -4 rule",
			"rules of iptables": "iptables-save", "rules of nft": "nft list ruleset",
			"mounts": fmt.Sprintf("cat /proc/%d/mountinfo", pid), "leases of addresses": fmt.Sprintf("ls /proc/%d/root/run/keelson/cni-state/keelson", pid),
		} {
			words := append([]string{"--target", strconv.Itoa(pid), "--net"}, strings.Fields(command)...)
			out, err := exec.Command("nsenter", words...).Output()
			if err != nil {
				t.Logf("nsenter %v: %v", words, err) // nft has no rules of its own, or the node is about to start
			}
			count(what, strings.Count(string(out), "\n"))
		}
	}
	return counts
}
