package e2e

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// A snapshot is taken of a running machine, and machines are made of it that have its data and their own names, by manifest and by
// command, also when the machine and the snapshot are gone.
func TestLongAccessMachineSnapshotAndFork(t *testing.T) {
	needQEMU(t)
	t.Parallel()
	s := newSession(t)
	vm := func(verb, name string, args ...string) []string {
		return append([]string{"keelson", "vm", verb, name, "--kubeconfig", kubeconfig, "--namespace", s.namespace}, args...)
	}
	s.OK(t, vm("create", "web", "--memory", "256Mi", "--disk", "64Mi", "--wait")...)
	s.OK(t, vm("ssh", "web", "--", "echo kept-42 > /dev/vda; sync")...)
	transcript.Contains(t, s.Fails(t, 1, vm("snapshot", "missing")...), `there is no VirtualMachine "missing"`)
	s.OK(t, vm("snapshot", "web", "--name", "before", "--wait")...)
	transcript.Contains(t, s.Fails(t, 1, vm("snapshot", "web", "--name", "before")...), "before exists already")
	transcript.Contains(t, s.kubectl(t, "get", "vmsnap/before", "-o", "wide"), "MACHINE", "SIZE", "TAKEN", "DISKS", "web", "True", "root", "SnapshotTaken")
	s.OK(t, vm("ssh", "web", "--", "echo later-7 > /dev/vda; sync")...)

	s.OK(t, vm("fork", "web", "--name", "web-2", "--snapshot", "before", "--wait")...)
	// What is in memory goes on in the copies.
	s.OK(t, vm("ssh", "web", "--", "echo remembered >/tmp/word")...)
	s.OK(t, vm("fork", "web", "--name", "copy", "--number", "2", "--memory", "--wait")...)
	if left := strings.Fields(s.kubectl(t, "get", "vmsnap", "-o", "name")); len(left) != 1 {
		t.Errorf("a fork has left its snapshot: %v", left)
	}
	// The machine itself gets its data back, and again what it had before.
	transcript.Contains(t, s.Fails(t, 1, vm("restore", "web", "--snapshot", "missing", "--wait", "--timeout", "20s")...), `there is no VirtualMachineSnapshot "missing"`)
	address := s.field(t, "vm/web", "{.status.server.addresses[0]}")
	began := time.Now()
	s.OK(t, vm("restore", "web", "--snapshot", "before", "--wait")...)
	t.Logf("restored after %v", time.Since(began).Round(time.Millisecond))
	transcript.Contains(t, s.OK(t, vm("ssh", "web", "--", "echo on-$(hostname) $(head -c 7 /dev/vda)")...), "on-web kept-42")
	if now := s.field(t, "vm/web", "{.status.server.addresses[0]}"); now != address {
		t.Errorf("the address is %s, was %s", now, address)
	}
	previous := s.field(t, "vm/web", "{.status.restore.previous}")
	s.OK(t, vm("restore", "web", "--snapshot", previous, "--keep-current=false", "--wait")...)
	transcript.Contains(t, s.OK(t, vm("ssh", "web", "--", "head -c 7 /dev/vda")...), "later-7")
	s.kubectl(t, "delete", "vmsnap/before", "vmsnap/"+previous)
	transcript.Contains(t, s.OK(t, vm("ssh", "web-2", "--", "echo on-$(hostname) $(head -c 7 /dev/vda)")...), "on-web-2 kept-42")
	transcript.Contains(t, s.OK(t, vm("ssh", "copy-2", "--", "echo on-$(hostname) $(cat /tmp/word) $(head -c 7 /dev/vda)")...), "on-copy-2 remembered later-7")
	own := map[string]bool{}
	for _, name := range []string{"web", "web-2", "copy-1", "copy-2"} {
		own[s.field(t, "vm/"+name, "{.status.server.addresses[0]}")] = true
	}
	if len(own) != 4 {
		t.Errorf("the machines have the addresses %v", own)
	}
	s.kubectl(t, "delete", "vm/web")

	// One that names no snapshot waits for it.
	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachine\nmetadata: {name: late}\nspec: {resource: {memory: 256Mi}, image: {snapshot: soon}}\n"
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.untilField(t, "vm/late", `{.status.conditions[?(@.type=="Ready")].reason}`, "ImageMissing")
	s.OK(t, vm("snapshot", "web-2", "--name", "soon")...)
	s.wait(t, "condition=Ready", "vm/late")
	s.kubectl(t, "delete", "vm/late", "vm/web-2", "vm/copy-1", "vm/copy-2", "vmsnap/soon")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}

// A user of one namespace makes a machine of a snapshot of another one, in which they may do nothing, as soon as that allows it.
func TestLongMachineOfASnapshotOfAnotherNamespace(t *testing.T) {
	needQEMU(t)
	t.Parallel()
	s := newSession(t)
	team := s
	team.namespace += "-b"
	s.OK(t, "kubectl", "create", "namespace", team.namespace)
	t.Cleanup(func() { s.OK(t, "kubectl", "delete", "namespace", team.namespace, "--wait=false") })
	vm := func(s session, args ...string) []string {
		return append([]string{"keelson", "vm", "--kubeconfig", kubeconfig, "--namespace", s.namespace}, args...)
	}
	team.kubectl(t, "create", "role", "machines", "--verb=create,get", "--resource=virtualmachines.cloudnative.tw")
	team.kubectl(t, "create", "rolebinding", "machines", "--role=machines", "--user=dev")
	s.OK(t, vm(s, "create", "golden", "--memory", "128Mi", "--disk", "64Mi", "--wait")...)
	s.OK(t, vm(s, "ssh", "golden", "--", "echo shared-42 > /dev/vda; sync")...)
	s.OK(t, vm(s, "snapshot", "golden", "--name", "gold", "--wait")...)

	transcript.Contains(t, s.Fails(t, 1, s.words([]string{"get", "vmsnap/gold", "--as=dev"})...), "Forbidden")
	team.Stdin = s.OK(t, vm(team, "create", "web", "--memory", "128Mi", "--snapshot", s.namespace+"/gold", "--dry-run=client", "-o", "yaml")...)
	team.kubectl(t, "create", "--as=dev", "-f", "-")
	team.Stdin = ""
	team.untilField(t, "vm/web", `{.status.conditions[?(@.type=="Ready")].reason}`, "ImageMissing")
	transcript.Contains(t, team.field(t, "vm/web", "{.status.reason}"), "add "+team.namespace+" to its spec.allowedNamespaces")
	s.kubectl(t, "patch", "vmsnap/gold", "--type", "merge", "-p", `{"spec": {"allowedNamespaces": ["`+team.namespace+`"]}}`)
	team.wait(t, "condition=Ready", "vm/web")
	s.kubectl(t, "delete", "vmsnap/gold", "vm/golden")
	transcript.Contains(t, s.OK(t, vm(team, "ssh", "web", "--", "echo on-$(hostname) $(head -c 9 /dev/vda)")...), "on-web shared-42")
	team.kubectl(t, "delete", "vm/web")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}

// A schedule with memory has the memory of a machine that runs, and the disks of one that is off.
func TestLongScheduledSnapshotsWithMemory(t *testing.T) {
	needQEMU(t)
	t.Parallel()
	s := newSession(t)
	vm := func(verb string, args ...string) []string {
		return append([]string{"keelson", "vm", verb, "web", "--kubeconfig", kubeconfig, "--namespace", s.namespace, "--wait"}, args...)
	}
	s.OK(t, vm("create", "--memory", "128Mi", "--disk", "64Mi", "--snapshot-schedule", "*/5 * * * * *", "--snapshot-keep", "1", "--snapshot-memory")...)
	sizes := []string{"get", "vmsnap", "-o", "jsonpath={range .items[*]}taken {.status.takenAt} with {.status.memorySize};{end}"}
	has := func(memory string) func(string) bool {
		taken := regexp.MustCompile("taken [-:0-9TZ]+ with " + memory + ";")
		return taken.MatchString
	}
	s.until(t, "a snapshot has memory", has("[0-9]+"), sizes...)
	s.OK(t, vm("stop")...)
	s.until(t, "a snapshot has the disks only", has(""), sizes...)
	s.kubectl(t, "patch", "vm/web", "--type", "merge", "-p", `{"spec": {"snapshots": {"suspend": true}}}`)
	s.kubectl(t, "delete", "vm/web")
	s.kubectl(t, "delete", "vmsnap", "--all")
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}
