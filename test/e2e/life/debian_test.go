package life

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// debianTimeout limits each part of the boot of an emulated Debian on a busy host.
const debianTimeout = 15 * time.Minute

// The image of `keelson vm image build debian`, as make debian builds it, is a place to work: it has its own boot loader and
// kernel, cloud-init, which finds the seed, the guest agent of QEMU, and udev, which names disks. A user logs in by SSH.
func TestLongDebian(t *testing.T) {
	image, err := filepath.Abs(filepath.Join("..", "..", "..", "bin", "debian", "disk.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	if image, err = filepath.EvalSymlinks(image); err != nil {
		t.Skip("SKIP: no Debian image: run make debian")
	}
	for _, program := range []string{"qemu-system-x86_64", "ssh", "ssh-keygen"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
	m := newMachine(t)
	dir := m.path("work")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	output := m.Script(t, dir, "keelson up --detach --node=simulated\n"+
		"export KUBECONFIG=~/.local/share/keelson/kubeconfig\n"+
		"keelson vm image add debian-13 --wait --login-user debian --file "+image+`
ssh-keygen -q -t ed25519 -N '' -f key
kubectl apply -f - <<EOF
apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: work}
spec:
  resource: {cpu: 2, memory: 1Gi, rootDisk: 8G}
  image: {name: debian-13}
  cloudInit: {userData: "#cloud-config\nhostname: from-the-seed\nssh_authorized_keys: ['$(cat key.pub)']\n"}
  terminationGracePeriodSeconds: 480
  ports: [{name: ssh, port: 22}]
EOF
kubectl wait --for=condition=Ready vm/work --timeout=`+debianTimeout.String()+`
address=$(kubectl get vm work -o jsonpath='{.status.server.endpoints[0].address}')
in_machine() {
	ssh -i key -p "${address##*:}" -o StrictHostKeyChecking=no -o UserKnownHostsFile=known -o ConnectTimeout=120 -o LogLevel=ERROR debian@127.0.0.1 "$@"
}
# cloud-init adds the key and grows the file system after the agent has responded.
until in_machine "cloud-init status --wait >/dev/null"; do sleep 1; done
in_machine 'id -un; sudo id -un; . /etc/os-release; echo $VERSION_CODENAME; df --output=size --block-size=G / | tail -1'
in_machine 'command -v curl nano less ping; grep -c trixie /etc/apt/sources.list; ls /etc/ssh/ssh_host_ed25519_key'
in_machine 'echo "$(hostname) has $(hostname -I | cut -d " " -f 1), $(cat /sys/block/vda/size) sectors"'
echo "its address is $(kubectl get vm work -o jsonpath='{.status.server.addresses[0]}')"

disks() {
	kubectl patch vm work --type merge -p "{\"spec\": {\"disks\": [$1]}}"
	kubectl wait --for=condition=DisksReady vm/work --timeout=`+debianTimeout.String()+`
}
# eventually COMMAND: as root in the guest, until it succeeds.
eventually() { in_machine "sudo sh -c 'cd /dev/disk/by-id; until $1; do sleep 0.2; done'"; }
disks '{"name": "data", "size": "64Mi"}, {"name": "logs", "size": "32Mi"}'
eventually '[ $(blockdev --getsize64 virtio-data) = 67108864 ] && [ $(blockdev --getsize64 virtio-logs) = 33554432 ]'
in_machine 'cd /dev/disk/by-id; for name in data logs; do sudo sh -c "mkfs.ext4 -q virtio-$name; mkdir /mnt/$name; mount virtio-$name /mnt/$name; echo kept >/mnt/$name/file"; done'
disks '{"name": "data", "size": "128Mi"}, {"name": "logs", "size": "32Mi"}'
eventually '[ $(blockdev --getsize64 virtio-data) = 134217728 ]'
in_machine 'sudo resize2fs /dev/disk/by-id/virtio-data; [ $(df --output=size -k /mnt/data | tail -1) -gt 100000 ] && echo "grown: $(cat /mnt/data/file)"; sudo umount /mnt/logs'
disks '{"name": "data", "size": "128Mi"}'
eventually '[ ! -e virtio-logs ]'
# The same name is another disk.
disks '{"name": "data", "size": "128Mi"}, {"name": "logs", "size": "16Mi"}'
eventually '[ $(blockdev --getsize64 virtio-logs) = 16777216 ]'
in_machine 'sudo blkid /dev/disk/by-id/virtio-logs || echo "empty, and data is $(cat /mnt/data/file)"; sudo umount /mnt/data'
disks ''
eventually '[ ! -e virtio-data ] && [ ! -e virtio-logs ]'

kubectl patch vm work --type merge -p '{"spec": {"action": "stopped"}}'
kubectl wait --for=jsonpath='{.status.server.state}'=Stopped vm/work --timeout=`+debianTimeout.String()+`
keelson vm logs work | grep "reboot: Power down"
keelson vm image list
keelson vm image rm debian-13 || echo "in use"
kubectl delete vm work
keelson vm image rm debian-13
keelson down --delete-data
`)
	transcript.Contains(t, strings.Join(strings.Fields(output), " "), "debian root trixie 8G", "/usr/bin/curl /usr/bin/nano /usr/bin/less /usr/bin/ping ",
		", 15625000 sectors", "grown: kept", "empty, and data is kept", "reboot: Power down",
		"debian-13 Imported", "machines use the image debian-13: default/work. Delete them first", "in use", "virtualmachineimage/debian-13 deleted")
	guest := regexp.MustCompile(`from-the-seed has (\S+),`).FindStringSubmatch(output)
	if guest == nil || !strings.Contains(output, "its address is "+guest[1]+"\n") {
		t.Errorf("the guest reports %q, which is not the address in the status", guest)
	}
}
