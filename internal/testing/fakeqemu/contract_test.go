package fakeqemu

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/keelson-dev/keelson/internal/machine/qemu/qmp"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

type arguments = map[string]any

// script are commands that the fake answers as QEMU does.
var script = []struct {
	command   string
	arguments arguments
}{
	{"nonsense", nil},
	{"query-status", arguments{"x": 1}},
	{"query-status", nil},
	{"migrate", arguments{}},
	{"migrate", arguments{"uri": 5}},
	{"migrate", arguments{"uri": "fd:none"}},
	{"migrate-incoming", arguments{"uri": "fd:none"}},
	{"getfd", arguments{"fdname": "x"}},
	{"closefd", arguments{"fdname": "x"}},
	{"add-fd", arguments{"opaque": "x"}},
	{"query-fdsets", nil},
	{"query-jobs", nil},
	{"query-memory-devices", nil},
	{"query-balloon", nil},
	{"cont", nil},
	{"query-status", nil},
	{"stop", nil},
	{"stop", nil},
	{"query-status", nil},
	{"blockdev-add", arguments{"driver": "qcow2", "node-name": "root", "file": "root-file", "backing": nil}},
	{"blockdev-add", arguments{"driver": "qcow2", "node-name": "other", "file": "none", "backing": nil}},
	{"blockdev-del", arguments{"node-name": "root-file"}},
	{"blockdev-del", arguments{"node-name": "none"}},
	{"block-dirty-bitmap-remove", arguments{"node": "root", "name": "snapshot"}},
	{"transaction", arguments{"actions": []any{arguments{"type": "blockdev-backup", "data": arguments{"job-id": "j", "device": "root", "target": "none", "sync": "top"}}}}},
	{"job-dismiss", arguments{"id": "none"}},
	{"job-cancel", arguments{"id": "none"}},
	{"set_link", arguments{"name": "net", "up": false}},
	{"qom-get", arguments{"path": "/machine/peripheral/disk", "property": "addr"}},
	{"qom-get", arguments{"path": "/machine/peripheral/disk", "property": "serial"}},
	{"qom-get", arguments{"path": "/machine/peripheral/disk", "property": "nonsense"}},
	{"qom-get", arguments{"path": "/machine/peripheral/none", "property": "addr"}},
	{"device_del", arguments{"id": "none"}},
	{"object-del", arguments{"id": "none"}},
	{"migrate-set-capabilities", arguments{"capabilities": []any{arguments{"capability": "nonsense", "state": true}}}},
	{"human-monitor-command", arguments{"command-line": "nonsense"}},
}

// The fake answers as QEMU does, and rejects what it rejects.
func TestContract(t *testing.T) {
	if _, err := exec.LookPath(Program); err != nil {
		t.Skipf("%s is not installed: apt-get install qemu-system-x86 qemu-utils", Program)
	}
	want := play(t)
	Install(t)
	if diff := cmp.Diff(want, play(t)); diff != "" {
		t.Errorf("-QEMU +fake:\n%s", diff)
	}
}

// play starts a machine, runs the script, and returns the answers.
func play(t *testing.T) (answers []string) {
	t.Helper()
	dir := t.TempDir()
	disk, socket := filepath.Join(dir, "disk"), filepath.Join(dir, "qmp")
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", disk, "8M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	machine := exec.Command(Program, "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-accel", "tcg", "-cpu", "max",
		"-smp", "cpus=1", "-m", "size=65536k", "-S", "-action", "shutdown=pause,panic=pause,reboot=reset",
		"-chardev", "socket,id=qmp,path="+socket+",server=on,wait=off", "-mon", "chardev=qmp,mode=control",
		"-device", "virtio-serial-pci,id=serial", "-device", "virtio-balloon-pci,id=balloon,deflate-on-oom=on",
		"-blockdev", fmt.Sprintf(`{"driver":"file","node-name":"root-file","filename":%q,"read-only":false,"discard":"unmap"}`, disk),
		"-blockdev", `{"driver":"qcow2","node-name":"root","file":"root-file","discard":"unmap","backing":null}`,
		"-device", "virtio-blk-pci,id=disk,drive=root,serial=root")
	machine.Stderr = os.Stderr
	if err := machine.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = machine.Wait() }()
	defer func() { _ = machine.Process.Kill() }() // it may have ended
	var conn *qmp.Client
	harness.Eventually(t, "the monitor answers", func() (up bool) {
		var err error
		conn, err = qmp.Dial(t.Context(), socket)
		return err == nil
	})
	defer conn.Close()
	for _, line := range script {
		var result any
		var given any
		if line.arguments != nil {
			given = line.arguments
		}
		err := conn.Run(t.Context(), line.command, given, &result)
		raw, _ := json.Marshal(result) // it was JSON
		said := string(raw)
		if refused := (*qmp.Error)(nil); errors.As(err, &refused) {
			said = refused.Class + ": " + refused.Description
		} else if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, fmt.Sprintf("%s %v: %s", line.command, line.arguments, said))
	}
	return answers
}
