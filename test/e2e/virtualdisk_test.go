package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// moverMachine returns a machine that waits for the disk data, formats it if it is new, says what is on it, adds its own name,
// and unmounts it, so that the disk can be removed.
func moverMachine(name, disks string) string {
	return strings.NewReplacer("NAME", name, "DISKS", disks).Replace(`---
apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: NAME}
spec:
  resource: {cpu: 1, memory: 256Mi}
  disks: DISKS
  cloudInit:
    userData: |
      #cloud-config
      write_files:
      - path: /visit
        permissions: "0755"
        content: |
          #!/bin/sh
          disk=/dev/disk/by-id/virtio-data
          until [ -b $disk ]; do sleep 0.2; done
          mkdir -p /data
          mount $disk /data || { mkfs.ext4 -q $disk && mount $disk /data; }
          echo NAME >> /data/visitors
          sync
          visitors=$(echo $(cat /data/visitors))
          umount /data
          echo "visitors of the disk: $visitors." > /dev/console
      bootcmd: ["sh /visit &"]
`)
}

// A VirtualDisk is plugged into a running machine and written, moves to another one, which waits for it, and is read there. It
// is cloned, kept when its machine goes, and deleted when nobody has it.
func TestLongVirtualDiskMovesBetweenMachines(t *testing.T) {
	needQEMU(t)
	t.Parallel()
	s := newSession(t)
	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualDisk\nmetadata: {name: shared}\nspec: {size: 64Mi}\n" +
		moverMachine("writer", "[]") + moverMachine("reader", "[{name: data, virtualDisk: shared}]")
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Ready", "vdisk/shared")
	console := func(machine string) string {
		return filepath.Join(qemuOf(t, s.field(t, "vm/"+machine, "{.metadata.uid}")).place, "serial.log")
	}
	says := func(machine, text string) {
		t.Helper()
		path := console(machine)
		s.until(t, "the console of "+machine+" shows "+text, func(string) bool {
			log, err := os.ReadFile(path)
			return err == nil && strings.Contains(string(log), text)
		}, "get", "vm/"+machine)
	}
	disksReady := `{.status.conditions[?(@.type=="DisksReady")].reason}`

	// The reader has it first; then the writer waits for it, and says for which machine.
	s.untilField(t, "vdisk/shared", "{.status.attachedTo}", "reader")
	s.wait(t, "condition=Ready", "vm/reader")
	s.wait(t, "condition=Ready", "vm/writer")
	says("reader", "visitors of the disk: reader.")
	s.kubectl(t, "patch", "vm/writer", "--type", "merge", "-p", `{"spec":{"disks":[{"name":"data","virtualDisk":"shared"}]}}`)
	s.untilField(t, "vm/writer", disksReady, "DiskInUse")
	if message := s.field(t, "vm/writer", `{.status.conditions[?(@.type=="DisksReady")].message}`); !strings.Contains(message, "the machine reader has") {
		t.Errorf("the message does not name the machine that has the disk: %s", message)
	}

	// It is grown while it is in use, and moves.
	s.kubectl(t, "patch", "vdisk/shared", "--type", "merge", "-p", `{"spec":{"size":"128Mi"}}`)
	s.untilField(t, "vdisk/shared", "{.status.size}", "128Mi")
	s.kubectl(t, "patch", "vm/reader", "--type", "merge", "-p", `{"spec":{"disks":null}}`)
	s.wait(t, "condition=DisksReady", "vm/writer")
	s.untilField(t, "vdisk/shared", "{.status.attachedTo}", "writer")
	says("writer", "visitors of the disk: reader writer.")

	// A clone waits for the running machine, and the deletion of the disk for any.
	s.Stdin = "apiVersion: cloudnative.tw/v1alpha1\nkind: VirtualDisk\nmetadata: {name: clone}\nspec: {from: {virtualDisk: shared}}\n"
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.untilField(t, "vdisk/clone", `{.status.conditions[?(@.type=="Ready")].reason}`, "SourceInUse")
	s.kubectl(t, "delete", "vm/writer")
	s.wait(t, "condition=Ready", "vdisk/clone")
	s.untilField(t, "vdisk/shared", "{.status.attachedTo}", "")
	s.kubectl(t, "patch", "vm/reader", "--type", "merge", "-p", `{"spec":{"disks":[{"name":"copy","virtualDisk":"clone"}]}}`)
	s.untilField(t, "vdisk/clone", "{.status.attachedTo}", "reader")
	s.kubectl(t, "delete", "vdisk/clone", "--wait=false")
	s.untilField(t, "vdisk/clone", `{.status.conditions[?(@.type=="Deleting")].reason}`, "InUse")
	s.kubectl(t, "delete", "vdisk/shared")
	s.kubectl(t, "delete", "vm/reader")
	s.kubectl(t, "wait", "--for=delete", "vdisk/clone", "--timeout", transcript.WaitTimeout.String())
	s.kubectl(t, "apply", "-f", manifest("foo.yaml")) // newSession needs an object at the end
}
