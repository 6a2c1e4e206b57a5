//go:build linux

package node

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// ofFills selects the Pods of the driver pod that copy the disks of a snapshot.
const ofFills = "cloudnative.tw/virtualmachine-fill-uid"

// forkedInPod is a machine whose web server shows what its disks had when it booted.
const forkedInPod = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: vm}
spec:
  driver: pod
  resource: {cpu: 1, memory: 192Mi, rootDisk: 64Mi}
  disks: [{name: data, size: 4Mi}]
  cloudInit:
    userData: |
      #cloud-config
      write_files:
      - {path: /www/hello, content: it serves}
      bootcmd:
      - mkdir -p /www; cat /proc/sys/kernel/random/boot_id > /www/boot; cat /sys/class/dmi/id/product_uuid > /www/uuid
      - echo "$(cat /kept) $(head -c 6 /dev/disk/by-id/virtio-data)" > /www/disks
      - busybox httpd -p 8080 -h /www
  readinessProbe: {httpGet: {port: 8080, path: /hello}, periodSeconds: 1, timeoutSeconds: 30}
`

// TestLongForksInPods makes machines of a snapshot of a machine in a Pod, and restores machines, on a real node, in a namespace that
// enforces Pod Security "restricted".
func TestLongForksInPods(t *testing.T) {
	u := newPodsUser(t)
	u.steps(t, []step{
		{"the images are built and loaded", upWithPods},
		{"a snapshot is taken", snapshotInPod},
		{"two machines are made of it", forkInPod},
		{"the first machine is restored, and the restore is undone", restoreInPod},
		{"a machine that is asleep is restored, and boots", restoreAsleepInPod},
		{"the Pod evicted and the manager killed during a restore, it is done", faultsWhileRestoredInPod},
		{"it is restored with memory, and goes on", restoreMemoryInPod},
		{"a new machine goes on with the memory, as itself, and boots later", forkMemoryInPod},
		{"a machine that the memory does not fit boots", forkWithoutMemoryInPod},
		{"a fork takes its own snapshot", forkNowInPod},
		{"what a machine cannot be made of is refused", refusedForkInPod},
		{"without the machine and the snapshots, the others go on", forksAloneInPod},
	})
}

// keeps writes a word of six letters to both disks of a machine.
func (u *user) keeps(t *testing.T, machine, word string) {
	t.Helper()
	u.typesAt(t, machine, "echo "+word+" > /kept; printf "+word+" > /dev/disk/by-id/virtio-data; sync; echo kept-$((40+2))", "kept-42")
}

// kept checks what the disks of a machine had when it booted.
func (u *user) kept(t *testing.T, machine, word string) {
	t.Helper()
	if got := strings.TrimSpace(u.pageOf(t, machine, "disks")); got != word+" "+word {
		t.Errorf("the disks of %s have %q, want %q twice", machine, got, word)
	}
}

// vm runs a command of keelson vm.
func (u *user) vm(t *testing.T, words ...string) string {
	t.Helper()
	began := time.Now()
	out := u.OK(t, append([]string{"keelson", "vm", "--kubeconfig", u.Env["KUBECONFIG"]}, words...)...)
	t.Logf("%s took %.1f s", words[0], time.Since(began).Seconds())
	return out
}

func snapshotInPod(t *testing.T, u *user) {
	u.apply(t, forkedInPod)
	u.awaitMachine(t)
	u.keeps(t, "vm", "before")
	u.vm(t, "snapshot", "vm", "--name", "first", "--wait")
}

// forkInPod makes machines while the first one is off: the node may have room for two only.
func forkInPod(t *testing.T, u *user) {
	uuids := map[string]bool{u.page(t, "uuid"): true}
	u.vm(t, "stop", "vm", "--wait")
	u.vm(t, "fork", "vm", "--name", "fork", "--number", "2", "--snapshot", "first", "--wait")
	for _, name := range []string{"fork-1", "fork-2"} {
		u.kept(t, name, "before")
		uuids[u.pageOf(t, name, "uuid")] = true
	}
	if len(uuids) != 3 {
		t.Errorf("the machines have the UUIDs %v", uuids)
	}
	if left := u.kubectl(t, "get", "pods", "--selector", ofFills, "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
	u.vm(t, "stop", "fork-1", "--wait")
	u.vm(t, "stop", "fork-2", "--wait")
}

func restoreInPod(t *testing.T, u *user) {
	u.vm(t, "start", "vm", "--wait")
	u.keeps(t, "vm", "afters")
	uuid := u.page(t, "uuid")
	u.vm(t, "restore", "vm", "--snapshot", "first", "--wait")
	u.awaitMachine(t)
	u.kept(t, "vm", "before")
	if now := u.page(t, "uuid"); now != uuid {
		t.Errorf("its UUID was %s, and is %s", uuid, now)
	}
	previous := u.field(t, "virtualmachine/vm", "{.status.restore.previous}")
	u.vm(t, "restore", "vm", "--snapshot", previous, "--wait")
	u.awaitMachine(t)
	u.kept(t, "vm", "afters")
}

func restoreAsleepInPod(t *testing.T, u *user) {
	u.sleep(t)
	u.vm(t, "restore", "vm", "--snapshot", "first")
	u.kubectl(t, "wait", "--for=condition=Restored", "virtualmachine/vm", "--timeout", transcript.WaitTimeout.String())
	if got := u.field(t, "virtualmachine/vm", "{.status.restore.result}"); got != "Succeeded" {
		t.Errorf("the restore: %s", got)
	}
	u.request(t, "active")
	u.awaitMachine(t)
	u.kept(t, "vm", "before")
}

// faultsWhileRestoredInPod holds the lock of a volume, as an earlier run of the machine, so that the restore waits.
func faultsWhileRestoredInPod(t *testing.T, u *user) {
	u.keeps(t, "vm", "afters")
	u.vm(t, "stop", "vm", "--wait")
	volume := u.field(t, "pvc/keelson-"+u.field(t, "virtualmachine/vm", "{.metadata.uid}"), "{.spec.volumeName}")
	lock, err := os.Open(u.fileOf(t, volume, "lock"))
	if err == nil {
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	u.vm(t, "restore", "vm", "--snapshot", "first", "--keep-current=false")
	filling := func(other string) (pod string) {
		t.Helper()
		u.Until(t, "a Pod restores the machine", func(out string) bool {
			words := strings.Fields(out)
			if len(words) == 2 && words[0] != other && words[1] == "Running" {
				pod = words[0]
			}
			return pod != ""
		}, "kubectl", "get", "pods", "--selector", ofFills, "-o", "jsonpath={.items[*].metadata.uid} {.items[*].status.phase}")
		return pod
	}
	first := filling("")
	u.kubectl(t, "delete", "pod", "--selector", ofFills)
	filling(first)
	u.killManager(t)
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	u.startPods(t)
	u.kubectl(t, "wait", "--for=condition=Restored", "virtualmachine/vm", "--timeout", transcript.WaitTimeout.String())
	u.vm(t, "start", "vm", "--wait")
	u.kept(t, "vm", "before")
}

// restoreMemoryInPod restores the machine with its memory.
func restoreMemoryInPod(t *testing.T, u *user) {
	boot := u.page(t, "boot")
	u.vm(t, "snapshot", "vm", "--name", "running", "--memory", "--wait")
	u.vm(t, "restart", "vm", "--wait")
	if now := u.page(t, "boot"); now == boot {
		t.Error("it has not booted")
	}
	u.vm(t, "restore", "vm", "--snapshot", "running", "--wait")
	u.awaitMachine(t)
	if now := u.page(t, "boot"); now != boot {
		t.Errorf("its guest has booted: the boot %q was %q", now, boot)
	}
}

// forkMemoryInPod makes a new machine of the snapshot with memory, which goes on, and one of a snapshot of that.
func forkMemoryInPod(t *testing.T, u *user) {
	boot, uuid := u.page(t, "boot"), u.page(t, "uuid")
	u.vm(t, "stop", "vm", "--wait")
	of := "running"
	for _, name := range []string{"goes-on", "goes-on-too"} {
		u.vm(t, "fork", "vm", "--name", name, "--snapshot", of, "--wait")
		if now := u.pageOf(t, name, "boot"); now != boot {
			t.Errorf("%s has booted: the boot %q was %q", name, now, boot)
		}
		u.kept(t, name, "before")
		u.typesAt(t, name, "echo name-$(hostname)-$((40+2))", "name-"+name+"-42")
		of = "of-" + name
		u.vm(t, "snapshot", name, "--name", of, "--memory", "--wait")
		u.vm(t, "stop", name, "--wait")
	}
	u.vm(t, "start", "goes-on", "--wait")
	if nowBoot, nowUUID := u.pageOf(t, "goes-on", "boot"), u.pageOf(t, "goes-on", "uuid"); nowBoot == boot || nowUUID == uuid {
		t.Errorf("its boot %q was %q; its UUID %q was %q", nowBoot, boot, nowUUID, uuid)
	}
	u.kept(t, "goes-on", "before")
	if lost := u.kubectl(t, "get", "events", "--field-selector", "reason=MemoryLost", "-o", "name"); lost != "" {
		t.Errorf("memory was lost: %s", lost)
	}
	u.kubectl(t, "delete", "virtualmachine", "goes-on", "goes-on-too", "--timeout", transcript.WaitTimeout.String())
	u.vm(t, "start", "vm", "--wait")
}

func forkWithoutMemoryInPod(t *testing.T, u *user) {
	u.apply(t, strings.NewReplacer("name: vm}", "name: boots}", "memory: 192Mi", "memory: 160Mi", "  driver: pod", "  driver: pod\n  image: {snapshot: running}").Replace(forkedInPod))
	u.kubectl(t, "wait", "--for=condition=Ready", "virtualmachine/boots", "--timeout", transcript.WaitTimeout.String())
	u.kept(t, "boots", "before")
	u.Until(t, "an event says why it boots", transcript.Not(""), "kubectl", "get", "events", "--field-selector", "reason=MemoryLost,involvedObject.name=boots", "-o", "name")
	u.kubectl(t, "delete", "virtualmachine", "boots", "--timeout", transcript.WaitTimeout.String())
}

func forkNowInPod(t *testing.T, u *user) {
	u.vm(t, "fork", "vm", "--name", "third", "--wait")
	u.kept(t, "third", "before")
	u.vm(t, "stop", "third", "--wait")
}

func refusedForkInPod(t *testing.T, u *user) {
	u.apply(t, strings.NewReplacer("name: vm}", "name: small}", "rootDisk: 64Mi", "rootDisk: 32Mi", "  driver: pod", "  driver: pod\n  image: {snapshot: first}").Replace(forkedInPod))
	u.Until(t, "its root disk is too small", func(out string) bool {
		return strings.HasPrefix(out, "InvalidSpec") && strings.Contains(out, "spec.resource.rootDisk")
	}, "kubectl", "get", "virtualmachine/small", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}: {.status.conditions[?(@.type=="Ready")].message}`)
	u.kubectl(t, "delete", "virtualmachine", "small", "--timeout", transcript.WaitTimeout.String())
}

func forksAloneInPod(t *testing.T, u *user) {
	u.kubectl(t, "delete", "virtualmachine", "vm", "--timeout", transcript.WaitTimeout.String())
	u.kubectl(t, "delete", "vmsnap", "--all", "--timeout", transcript.WaitTimeout.String())
	if left := u.kubectl(t, "get", "pvc", "--selector", ofSnapshots, "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
	for _, name := range []string{"fork-1", "third"} {
		u.vm(t, "start", name, "--wait")
		u.kept(t, name, "before")
	}
	deletedForksInPod(t, u)
}

func deletedForksInPod(t *testing.T, u *user) {
	u.kubectl(t, "delete", "virtualmachine,vmsnap", "--all", "--timeout", transcript.WaitTimeout.String())
	if left := u.kubectl(t, "get", "pods,secrets,pvc,poddisruptionbudgets", "--all-namespaces", "--selector", "cloudnative.tw/cluster-uid", "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
