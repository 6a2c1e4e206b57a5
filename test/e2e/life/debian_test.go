package life

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/test/e2e/transcript"
)

// debianTimeout limits each part of the boot of an emulated Debian on a busy host.
const debianTimeout = 8 * time.Minute

// The image of `keelson vm image build debian`, as make debian builds it, is a place to work: a user
// logs in by SSH.
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
		"keelson vm image add debian-13 --wait --file "+image+`
ssh-keygen -q -t ed25519 -N '' -f key
kubectl apply -f - <<EOF
apiVersion: cloudnative.tw/v1alpha1
kind: VirtualMachine
metadata: {name: work}
spec:
  resource: {cpu: 2, memory: 1Gi, rootDisk: 8G}
  image: {name: debian-13}
  cloudInit: {userData: "#cloud-config\nssh_authorized_keys: ['$(cat key.pub)']\n"}
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
keelson vm image list
keelson vm image rm debian-13 || echo "in use"
kubectl delete vm work
keelson vm image rm debian-13
keelson down --delete-data
`)
	transcript.Contains(t, strings.Join(strings.Fields(output), " "), "debian root trixie 8G", "/usr/bin/curl /usr/bin/nano /usr/bin/less /usr/bin/ping ",
		"debian-13 Imported", "machines use the image debian-13: default/work. Delete them first", "in use", "image debian-13 removed")
}
