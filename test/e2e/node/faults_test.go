//go:build linux

package node

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/testing/signals"
	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// containerdKilled kills containerd only. The shims keep the containers running.
func containerdKilled(t *testing.T, u *user) { survive(t, u, "containerd") }

// kubeletKilled kills the kubelet only.
func kubeletKilled(t *testing.T, u *user) { survive(t, u, "kubelet") }

// kubeProxyKilled kills kube-proxy only. Its rules stay, and new Services become reachable.
func kubeProxyKilled(t *testing.T, u *user) {
	survive(t, u, "kube-proxy")
	u.kubectl(t, "expose", "pod", "web", "--name=late", "--port=80", "--target-port=8080", "--selector=run=web")
	for _, service := range []string{"shop", "late"} {
		address := "http://" + u.field(t, "service/"+service, "{.spec.clusterIP}")
		u.Until(t, "the Service "+service+" answers", answersOK, "kubectl", "exec", "web", "--", "/app", "get", address)
	}
}

// keelsonKilled kills the main process.
func keelsonKilled(t *testing.T, u *user) {
	pods, apps, node := u.running(t), u.apps(t), u.nodePID(t)
	signals.Send(t, u.status(t).ManagerPID, syscall.SIGKILL)
	transcript.Eventually(t, "it has ended", func() bool { return u.status(t).ManagerPID == 0 })
	if got := u.kubectl(t, "exec", "web", "--", "/app", "say", "still", "here"); got != "still here\n" {
		t.Errorf("exec: %q", got)
	}
	u.up(t)
	if now := u.nodePID(t); now != node {
		t.Errorf("the node was process %d and is now %d", node, now)
	}
	eventuallyEqual(t, "the Pods are the same ones", pods, func() map[string]life { return u.running(t) })
	eventuallyEqual(t, "their processes are the same ones", apps, func() map[string][]int { return u.apps(t) })
}

// survive kills a component of the node. Containers must keep running, and everything must recover.
func survive(t *testing.T, u *user, component string) {
	pods, apps := u.running(t), u.apps(t)
	pid := u.component(t, component)
	signals.Send(t, pid, syscall.SIGKILL)
	transcript.Eventually(t, component+" is started again", func() bool {
		now := u.components(t)[component]
		return len(now) == 1 && now[0] != pid
	})
	u.Until(t, "exec works", transcript.Is("still here"), "kubectl", "exec", "web", "--", "/app", "say", "still", "here")
	transcript.Contains(t, u.kubectl(t, "logs", "web"), "serving v1")
	// New Pods run as well.
	name := "after-" + component
	u.kubectl(t, "run", name, "--image=app:v1", "--restart=Never", "--", "say", "a new one")
	u.Until(t, "a new Pod runs", transcript.Is("Succeeded"), "kubectl", "get", "pod", name, "-o", "jsonpath={.status.phase}")
	u.Until(t, "its log is available", transcript.Is("a new one"), "kubectl", "logs", name)
	u.kubectl(t, "delete", "pod", name)
	eventuallyEqual(t, "the Pods are the same ones", pods, func() map[string]life { return u.running(t) })
	eventuallyEqual(t, "their processes are the same ones", apps, func() map[string][]int { return u.apps(t) })
}

// killed kills the whole node: when its init process ends, the kernel ends the rest.
func killed(t *testing.T, u *user) {
	before := u.running(t)
	pid := u.nodePID(t)
	signals.Send(t, pid, syscall.SIGKILL)
	u.restartedOnce(t, before)
	if now := u.nodePID(t); now == pid {
		t.Errorf("the node is process %d as before", pid)
	}
	answers(t, u, "web", "v1 on web\n")
}

// everythingKilled kills every process of Keelson and of the node at once. The next up does not
// wait until all have ended, and must adopt the Pods.
func everythingKilled(t *testing.T, u *user) {
	u.kubectl(t, "create", "job", "long", "--image=app:v1")
	u.Until(t, "the Job runs", transcript.Is("1"), "kubectl", "get", "job", "long", "-o", "jsonpath={.status.ready}")
	ended := []string{"kubectl", "get", "pods", "-o", `jsonpath={range .items[?(@.status.phase!="Running")]}{.metadata.name} {.metadata.uid} {end}`}
	finished := strings.TrimSpace(u.OK(t, ended...))
	before := u.running(t)
	u.killEverything(t)
	u.up(t)

	// A Pod that must not be restarted has failed, and its Job creates exactly one replacement.
	u.Until(t, "the Job runs again", transcript.Is("1 1 1"), "kubectl", "get", "job", "long", "-o",
		"jsonpath={.status.active} {.status.ready} {.status.failed}")
	u.kubectl(t, "delete", "job", "long")
	maps.DeleteFunc(before, func(pod string, _ life) bool { return strings.HasPrefix(pod, "long-") })
	u.restartedOnce(t, before)
	u.Until(t, "completed Pods are unchanged", transcript.Is(finished), ended...)
	answers(t, u, "web", "v1 on web\n")
}

func downAndUp(t *testing.T, u *user) {
	before := u.running(t)
	u.OK(t, "keelson", "down", "--data-dir", u.data)
	u.isAsBefore(t)
	u.up(t)
	u.restartedOnce(t, before)
	// Each minute the kubelet keeps one dead container only. Just before a start, which is long on
	// an emulated machine, that is the new one.
	if last := u.kubectl(t, "logs", "web", "--previous"); !strings.HasPrefix(last, "unable to retrieve container logs") {
		transcript.Contains(t, last, "ending politely")
	}
	answers(t, u, "web", "v1 on web\n")
}

// everythingKilledThenDown kills every process; down alone cleans up.
func everythingKilledThenDown(t *testing.T, u *user) {
	u.awaitGone(t, u.killEverything(t))
	u.isAsBefore(t, "cgroups")
	if left := traces(t, u.data)["cgroups"]; len(left) == 0 && !rootless { // systemd removes them from a scope
		t.Error("no leftover cgroup: down has nothing to remove")
	}
	u.OK(t, "keelson", "down", "--data-dir", u.data)
	u.isAsBefore(t)
}

// life identifies a Pod and its container.
type life struct {
	UID      string
	Restarts int
}

// running returns the running Pods with their only container.
func (u *user) running(t *testing.T) map[string]life {
	t.Helper()
	all := map[string]life{}
	const template = `{range .items[?(@.status.phase=="Running")]}{.metadata.name} {.metadata.uid} {.status.containerStatuses[0].restartCount} ` +
		`{.status.containerStatuses[0].ready}{"\n"}{end}`
	result := u.Run(transcript.Quietly(t), "kubectl", "get", "pods", "-o", "jsonpath="+template)
	for line := range strings.Lines(result.Stdout) {
		words := strings.Fields(line)
		if len(words) != 4 || words[3] != "true" {
			continue
		}
		restarts, err := strconv.Atoi(words[2])
		if err != nil {
			t.Fatal(err)
		}
		all[words[0]] = life{words[1], restarts}
	}
	return all
}

// restartedOnce waits until the previous Pods run again: with the same identities, each container
// restarted once, and no other processes.
func (u *user) restartedOnce(t *testing.T, before map[string]life) {
	t.Helper()
	want, processes := map[string]life{}, map[string]int{}
	for pod, was := range before {
		want[pod] = life{was.UID, was.Restarts + 1}
		processes[pod] = 1
	}
	eventuallyEqual(t, "the Pods run again, their containers started once", want, func() map[string]life { return u.running(t) })
	eventuallyEqual(t, "each Pod has one process", processes, func() map[string]int {
		counts := map[string]int{}
		for pod, pids := range u.apps(t) {
			counts[pod] = len(pids)
		}
		return counts
	})
}

// eventuallyEqual waits until get returns want; what describes it.
func eventuallyEqual[T any](t *testing.T, what string, want T, get func() T) {
	t.Helper()
	var difference string
	defer func() {
		if t.Failed() {
			t.Logf("%s (-want +got):\n%s", what, difference)
		}
	}()
	transcript.Eventually(t, what, func() bool {
		difference = cmp.Diff(want, get())
		return difference == ""
	})
}

// up starts Keelson, or its missing parts.
func (u *user) up(t *testing.T) string {
	t.Helper()
	words := []string{"keelson", "up", "--detach", "--node=real", "--vm-driver=fake", "--data-dir", u.data}
	if len(u.without) > 0 {
		return u.okWithout(t, words)
	}
	return u.OK(t, words...)
}

// nodePID returns the PID of the node on the machine.
func (u *user) nodePID(t *testing.T) int {
	t.Helper()
	return u.pidOf(t, "node")
}

// pidOf returns the PID of a component.
func (u *user) pidOf(t *testing.T, name string) int {
	t.Helper()
	for _, c := range u.status(t).Components {
		if c.Name == name {
			return c.PID
		}
	}
	t.Fatalf("no %s among the components", name)
	return 0
}

// components returns the processes of the node by program name.
func (u *user) components(t *testing.T) map[string][]int {
	t.Helper()
	found := map[string][]int{}
	for _, pid := range descendants(t, u.nodePID(t)) {
		if words := commandLine(pid); len(words) > 0 {
			name := filepath.Base(words[0])
			found[name] = append(found[name], pid)
		}
	}
	return found
}

// component returns the only process of the node with a name.
func (u *user) component(t *testing.T, name string) int {
	t.Helper()
	var pids []int
	transcript.Eventually(t, "there is one process "+name, func() bool {
		pids = u.components(t)[name] // a child between fork and exec may have the same name
		return len(pids) == 1
	})
	return pids[0]
}

// apps returns the processes of the program app in each Pod.
func (u *user) apps(t *testing.T) map[string][]int {
	t.Helper()
	found := map[string][]int{}
	for _, pid := range u.components(t)["app"] {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			continue // it has just ended
		}
		for entry := range strings.SplitSeq(string(environment), "\x00") {
			if pod, ok := strings.CutPrefix(entry, "HOSTNAME="); ok {
				found[pod] = append(found[pod], pid)
			}
		}
	}
	for _, pids := range found {
		slices.Sort(pids)
	}
	return found
}

// killEverything kills every process of Keelson and its node before any can react: it suspends all
// of them first, including new children. It returns their names.
func (u *user) killEverything(t *testing.T) (all map[int]string) {
	t.Helper()
	all = stopAll(t, func() map[int]string { return u.processes(t) })
	for _, pid := range slices.Sorted(maps.Keys(all)) {
		t.Logf("$ kill -9 %d  # %s", pid, all[pid])
		signals.Try(t, pid, syscall.SIGKILL)
	}
	return all
}

// stopAll stops the processes that list returns with their command lines, until it returns no others: they may start more.
func stopAll(t *testing.T, list func() map[int]string) (all map[int]string) {
	t.Helper()
	all = map[int]string{}
	for more := true; more; {
		more = false
		for pid, line := range list() {
			if _, known := all[pid]; !known {
				all[pid], more = line, true
				signals.Try(t, pid, syscall.SIGSTOP)
			}
		}
	}
	return all
}

// withDescendants returns a process and its descendants, with their command lines.
func withDescendants(t *testing.T, root int) map[int]string {
	t.Helper()
	found := map[int]string{}
	for _, pid := range append(descendants(t, root), root) {
		found[pid] = "-" // a kernel thread, or an exiting process
		if words := commandLine(pid); len(words) > 0 {
			found[pid] = words[0]
		}
	}
	return found
}

// awaitGone waits for the end of these killed processes.
func (u *user) awaitGone(t *testing.T, all map[int]string) {
	t.Helper()
	transcript.Eventually(t, "all processes have ended", func() bool {
		for pid := range all {
			// An exiting process has no command line for a while, but still has its files and
			// locks.
			open, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/fd/*", pid))
			if err != nil {
				t.Fatal(err)
			}
			if len(open) > 0 || len(commandLine(pid)) > 0 {
				return false
			}
		}
		return len(transcript.Left(u.data)) == 0 && u.status(t).ManagerPID == 0
	})
}

// processes returns the command lines of all processes of the data directory, and of the node with
// its containers.
func (u *user) processes(t *testing.T) map[int]string {
	t.Helper()
	found := map[int]string{}
	for _, line := range transcript.Left(u.data) {
		number, _, _ := strings.Cut(line, " ")
		root, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(found, withDescendants(t, root))
	}
	delete(found, os.Getpid())
	return found
}

// commandLine returns the command line of a process; nothing if it has ended.
func commandLine(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
}

// descendants returns all descendants of a process.
func descendants(t *testing.T, root int) (found []int) {
	t.Helper()
	if root <= 0 {
		return nil // a process that is not running has none; PID 0 is the parent of all
	}
	children := map[int][]int{}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has just ended
		}
		// proc_pid_stat(5): the name in parentheses may contain any character; the state and the
		// parent follow.
		after := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || len(after) < 2 {
			t.Fatalf("%s: %q", path, text)
		}
		parent, err := strconv.Atoi(after[1])
		if err != nil {
			t.Fatalf("%s: %q", path, text)
		}
		children[parent] = append(children[parent], pid)
	}
	for next := children[root]; len(next) > 0; {
		found = append(found, next...)
		var more []int
		for _, pid := range next {
			more = append(more, children[pid]...)
		}
		next = more
	}
	return found
}
