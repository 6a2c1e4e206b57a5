package qemu

import (
	"fmt"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// debianShell is the line of runcmd that makes a guest with Python execute commands at shellPort.
const debianShell = `- [systemd-run, python3, -c, "import socketserver,subprocess as s\nclass H(socketserver.BaseRequestHandler):\n def handle(self): s.run(['sh'],stdin=self.request,stdout=self.request)\nsocketserver.ForkingTCPServer(('',%d),H).serve_forever()"]` + "\n"

// testDisksOfDebian plugs disks into a running Debian, whose udev gives them their names, grows one below a mounted file system,
// and removes them.
func testDisksOfDebian(t *testing.T, w *fixture, machine *backend.Machine) {
	g := &testGuest{w, *machine}
	eventually := func(what, command, want string) {
		t.Helper()
		got := ""
		defer func() {
			if t.Failed() {
				t.Logf("%s: %s", command, got)
			}
		}()
		harness.EventuallyWithin(t, debianTimeout, what, func() bool {
			out, err := g.try(command)
			got = fmt.Sprintf("%q, %v", out, err)
			return err == nil && out == want
		})
	}
	change := func(disks ...backend.Disk) {
		t.Helper()
		machine.Hash, machine.Disks = machine.Hash+"+", disks
		w.do(w.driver.Reconfigure(t.Context(), *machine))
	}
	const byID = "/dev/disk/by-id/virtio-"
	eventually("the guest executes commands", "echo $((40+2))", "42")
	eventually("it has no other disks", "ls /dev/disk/by-id | grep -E 'data|logs'", "")

	data, logs := backend.Disk{Name: "data", SizeBytes: 64 << 20}, backend.Disk{Name: "logs", SizeBytes: 32 << 20}
	change(data, logs)
	eventually("it has the disks", "cat /sys/class/block/$(basename $(readlink "+byID+"data))/size /sys/class/block/$(basename $(readlink "+byID+"logs))/size", "131072\n65536")
	w.hasFiles("data", "logs")
	for _, name := range []string{"data", "logs"} {
		eventually("it has a file system on "+name,
			fmt.Sprintf("mkdir -p /mnt/%[2]s; mountpoint -q /mnt/%[2]s || { mkfs.ext4 -q -F %[1]s%[2]s && mount %[1]s%[2]s /mnt/%[2]s; } && echo kept > /mnt/%[2]s/a && sync && echo written", byID, name), "written")
	}

	data.SizeBytes = 128 << 20
	change(data, logs)
	eventually("the disk has grown", "blockdev --getsize64 "+byID+"data", fmt.Sprint(128<<20))
	eventually("its file system has grown", "resize2fs "+byID+"data >/dev/null 2>&1; [ $(df --output=size -k /mnt/data | tail -1) -gt 100000 ] && cat /mnt/data/a", "kept")

	eventually("it is unmounted", "umount /mnt/logs; mountpoint -q /mnt/logs || echo done", "done")
	change(data)
	w.hasFiles("data")
	eventually("the name of the removed disk is gone", "ls "+byID+"logs 2>/dev/null; cat /mnt/data/a", "kept")

	// The same name is another disk.
	logs.SizeBytes = 16 << 20
	change(data, logs)
	eventually("the disk of the same name is new", "blkid "+byID+"logs; blockdev --getsize64 "+byID+"logs", fmt.Sprint(16<<20))
	eventually("it is unmounted", "umount /mnt/data; mountpoint -q /mnt/data || echo done", "done")
	w.checkDisks()
	change()
	w.hasFiles()
	eventually("it has no other disks again", "ls /dev/disk/by-id | grep -E 'data|logs'", "")
}
