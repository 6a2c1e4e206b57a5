package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// storeMachine waits at each boot for the disk data, formats it if it is new, and counts the boots on it.
const storeMachine = `apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: store}
spec:
  resource: {cpu: 1, memory: 256Mi}
  cloudInit:
    userData: |
      #cloud-config
      write_files:
      - path: /count
        permissions: "0755"
        content: |
          #!/bin/sh
          disk=/dev/disk/by-id/virtio-data
          until [ -b $disk ]; do sleep 0.2; done
          mkdir -p /data
          mount $disk /data || { mkfs.ext4 -q $disk && mount $disk /data; }
          echo boot >> /data/boots
          sync
          echo "boots on the disk: $(grep -c boot /data/boots)" > /dev/console
          while mountpoint -q /data && ! [ -e /data/leave ]; do sleep 0.2; done
      bootcmd: ["sh /count &"]
`

// A disk is plugged into a running machine and written, and has its content after a restart. Removed with the policy Retain,
// it is kept.
func TestSmokeDisksOfMachine(t *testing.T) {
	needQEMU(t)
	t.Parallel()
	s := newSession(t)
	s.Stdin = storeMachine
	s.kubectl(t, "apply", "-f", "-")
	s.Stdin = ""
	s.wait(t, "condition=Ready", "vm/store")
	uid := s.field(t, "vm/store", "{.metadata.uid}")
	run := s.field(t, "vm/store", "{.status.server.run}")
	folder := qemuOf(t, uid).place
	says := func(text string) {
		t.Helper()
		s.until(t, "the console shows "+text, func(string) bool {
			console, err := os.ReadFile(filepath.Join(folder, "serial.log"))
			return err == nil && strings.Contains(string(console), text)
		}, "get", "vm/store")
	}

	s.kubectl(t, "patch", "vm/store", "--type", "merge", "-p", `{"spec":{"disks":[{"name":"data","size":"64Mi","deletePolicy":"Retain"}]}}`)
	s.wait(t, "condition=DisksReady", "vm/store")
	says("boots on the disk: 1")
	if now := s.field(t, "vm/store", "{.status.server.run}"); now != run {
		t.Errorf("the machine was restarted: run %s, then %s", run, now)
	}
	if out := s.Fails(t, 1, s.words([]string{"patch", "vm/store", "--type", "json", "-p", `[{"op":"replace","path":"/spec/disks/0/size","value":"32Mi"}]`})...); !strings.Contains(out, "a disk can only grow") {
		t.Errorf("a smaller disk: %s", out)
	}

	s.kubectl(t, "patch", "vm/store", "--type", "merge", "-p", `{"spec":{"action":"stopped"}}`)
	s.untilField(t, "vm/store", "{.status.server.state}", "Stopped")
	s.kubectl(t, "patch", "vm/store", "--type", "merge", "-p", `{"spec":{"action":"active"}}`)
	s.wait(t, "condition=Ready", "vm/store")
	says("boots on the disk: 2")

	s.kubectl(t, "patch", "vm/store", "--type", "merge", "-p", `{"spec":{"action":"stopped","disks":null}}`)
	s.untilField(t, "vm/store", "{.status.server.state}", "Stopped")
	s.wait(t, "condition=DisksReady", "vm/store")
	kept := filepath.Join(filepath.Dir(filepath.Dir(folder)), "retained", s.namespace, "store", uid+".data.qcow2")
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the retained disk: %v", err)
	}
}
