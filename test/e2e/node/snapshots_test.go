//go:build linux

package node

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// ofSnapshots selects the objects of snapshots of the driver pod.
const ofSnapshots = "cloudnative.tw/virtualmachinesnapshot-uid"

// TestLongSnapshotsInPods takes snapshots of a machine in a Pod on a real node, in a namespace that enforces Pod Security "restricted".
func TestLongSnapshotsInPods(t *testing.T) {
	u := newPodsUser(t)
	u.steps(t, []step{
		{"the instance starts, with the images", upWithPods},
		{"a machine has data", dataInPod},
		{"it is taken while the machine runs", takenRunningInPod},
		{"its Pod is lost while the machine runs, and it is taken", takenAfterAFaultInPod},
		{"it is taken while the machine sleeps", takenAsleepInPod},
		{"it is taken while the machine is off", takenOffInPod},
		{"it is taken with memory while the machine runs", takenWithMemoryInPod},
		{"it is taken on a schedule", scheduledInPod},
		{"deleted, they leave nothing", deletedSnapshotsInPod},
	})
}

// dataInPod creates a machine with a disk data that the guest has written to, and a file in its root file system.
func dataInPod(t *testing.T, u *user) {
	u.apply(t, strings.Replace(machineInPod, "  resource:", "  disks: [{name: data, size: 32Mi}]\n  resource:", 1))
	u.awaitMachine(t)
	u.types(t, "until [ -e /run/disk/upper ]; do sleep 0.1; done; echo precious-1 >/root/file; echo written-$((40+2))", "written-42")
}

// takeSnapshot takes a snapshot of the machine, and returns the file of a disk in it on the volume of the node.
func (u *user) takeSnapshot(t *testing.T, name string) (file func(disk string) string) {
	t.Helper()
	began := time.Now()
	u.applySnapshot(t, name, "virtualMachineName: vm")
	return u.awaitSnapshot(t, name, began)
}

func (u *user) applySnapshot(t *testing.T, name, spec string) {
	t.Helper()
	u.apply(t, "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualMachineSnapshot\nmetadata: {name: "+name+"}\nspec: {"+spec+"}\n")
}

func (u *user) awaitSnapshot(t *testing.T, name string, began time.Time) (file func(disk string) string) {
	t.Helper()
	u.kubectl(t, "wait", "--for=condition=Ready", "vmsnap/"+name, "--timeout", transcript.WaitTimeout.String())
	t.Logf("%s is ready after %.1f s, of %s", name, time.Since(began).Seconds(), u.field(t, "vmsnap/"+name, "{.status.size}"))
	if got := u.field(t, "vmsnap/"+name, "{.status.disks[*].name}"); got != "root data" {
		t.Errorf("it has the disks %q", got)
	}
	u.Until(t, "the Pod that has taken it is gone", transcript.Is(""), "kubectl", "get", "pods", "--selector", ofSnapshots, "-o", "name")
	volume := u.field(t, "pvc/keelson-snapshot-"+u.field(t, "vmsnap/"+name, "{.metadata.uid}"), "{.spec.volumeName}")
	return func(disk string) string { return u.fileOf(t, volume, disk+".qcow2") }
}

// fileOf returns a file on a volume of the node.
func (u *user) fileOf(t *testing.T, volume, name string) (found string) {
	t.Helper()
	err := filepath.WalkDir(u.data, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Name() == name && filepath.Base(filepath.Dir(path)) == volume {
			found = path
			return filepath.SkipAll
		}
		return nil // other files come and go
	})
	if err != nil || found == "" {
		t.Fatalf("the volume %s has no file %s: %v", volume, name, err)
	}
	return found
}

// checkDisk checks a disk in a snapshot, and that the guest had written to it.
func checkDisk(t *testing.T, path, want string) {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "raw")
	for _, words := range [][]string{{"check", "-q", path}, {"convert", "-O", "raw", path, raw}} {
		if out, err := exec.Command("qemu-img", words...).CombinedOutput(); err != nil {
			t.Fatalf("qemu-img %s: %v: %s", strings.Join(words, " "), err, out)
		}
	}
	content, err := os.ReadFile(raw)
	if err != nil || !strings.Contains(string(content), want) {
		t.Errorf("%s does not have %q: %v", path, want, err)
	}
}

// takenRunningInPod checks that the snapshot has what the guest has written without sync, and not what it writes later.
func takenRunningInPod(t *testing.T, u *user) {
	run := u.run(t)
	file := u.takeSnapshot(t, "running")
	if got := u.field(t, "vmsnap/running", "{.status.quiesced}"); got != "true" {
		t.Errorf("quiesced is %q", got)
	}
	u.types(t, "echo later-1 >/root/file; sync; echo changed-$((40+2))", "changed-42")
	checkDisk(t, file("root"), "precious-1")
	checkDisk(t, file("disk-data"), "kept")
	u.awaitMachine(t)
	if now := u.run(t); now != run || u.page(t, "hello") != "it serves" {
		t.Errorf("after the snapshot, the run is %q, and was %q", now, run)
	}
}

// takenAfterAFaultInPod deletes the first Pod that takes a snapshot by force, and kills the manager.
func takenAfterAFaultInPod(t *testing.T, u *user) {
	run, began := u.run(t), time.Now()
	u.applySnapshot(t, "faults", "virtualMachineName: vm")
	u.Until(t, "its Pod is there", transcript.Not(""), "kubectl", "get", "pods", "--selector", ofSnapshots, "-o", "name")
	u.kubectl(t, "delete", "pods", "--selector", ofSnapshots, "--force", "--grace-period=0", "--wait=false")
	u.killManager(t)
	u.startPods(t)
	checkDisk(t, u.awaitSnapshot(t, "faults", began)("root"), "later-1")
	if now := u.run(t); now != run {
		t.Errorf("after the snapshot, the run is %q, and was %q", now, run)
	}
}

func takenAsleepInPod(t *testing.T, u *user) {
	boot := u.page(t, "boot")
	u.sleep(t)
	checkDisk(t, u.takeSnapshot(t, "asleep")("root"), "later-1")
	if now := u.wake(t); now != boot || boot == "" {
		t.Errorf("its guest has booted: the boot %q was %q", now, boot)
	}
}

func takenOffInPod(t *testing.T, u *user) {
	u.request(t, "stopped")
	u.kubectl(t, "wait", "--for=jsonpath={.status.server.state}=Stopped", "virtualmachine/vm", "--timeout", transcript.WaitTimeout.String())
	checkDisk(t, u.takeSnapshot(t, "stopped")("root"), "later-1")
	u.request(t, "active")
	u.awaitMachine(t)
}

func takenWithMemoryInPod(t *testing.T, u *user) {
	run, boot, began := u.run(t), u.page(t, "boot"), time.Now()
	u.applySnapshot(t, "memory", "virtualMachineName: vm, memory: true")
	file := u.awaitSnapshot(t, "memory", began)
	checkDisk(t, file("root"), "later-1")
	if size := u.field(t, "vmsnap/memory", "{.status.memorySize}"); size == "" || size == "0" {
		t.Errorf("its memory has %q", size)
	}
	u.awaitMachine(t)
	if nowRun, nowBoot := u.run(t), u.page(t, "boot"); nowRun != run || nowBoot != boot {
		t.Errorf("after the snapshot, the run is %q, and was %q; the boot is %q, and was %q", nowRun, run, nowBoot, boot)
	}
}

func scheduledInPod(t *testing.T, u *user) {
	u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"snapshots":{"schedule":"*/10 * * * * *","keep":1}}}`)
	u.Until(t, "one is taken", func(out string) bool { return strings.Contains(out, "True") }, "kubectl", "get", "vmsnap", "--selector", "cloudnative.tw/scheduled-by",
		"-o", `jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}`)
	u.kubectl(t, "patch", "virtualmachine/vm", "--type=merge", "-p", `{"spec":{"snapshots":null}}`)
}

// deletedSnapshotsInPod deletes the machine first: the snapshots stay.
func deletedSnapshotsInPod(t *testing.T, u *user) {
	deleteInPod(t, u)
	if got := u.field(t, "vmsnap/running", `{.status.conditions[?(@.type=="Ready")].reason}`); got != "SnapshotTaken" {
		t.Errorf("without its machine, the snapshot has the reason %s", got)
	}
	u.kubectl(t, "delete", "vmsnap", "--all", "--timeout", transcript.WaitTimeout.String())
	if left := u.kubectl(t, "get", "pods,pvc", "-o", "name"); left != "" {
		t.Errorf("left behind: %s", left)
	}
}
