// Package boot boots the guest that make guest has built, under QEMU, and uses it as
// a person and a host would.
package boot

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// newKey returns a key, and the line of authorized_keys for it.
func newKey(t *testing.T) (ssh.Signer, string) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
}

// login logs in as whom the guest has never heard of.
func (m *machine) login(key ssh.Signer) (*ssh.Client, error) {
	return ssh.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", m.sshPort), &ssh.ClientConfig{
		User: "somebody", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), Timeout: waitTimeout,
	})
}

// run runs a line over SSH and returns what it prints.
func run(t *testing.T, client *ssh.Client, line string) string {
	t.Helper()
	session, err := client.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	output, err := session.CombinedOutput(line)
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, output)
	}
	return strings.TrimSpace(string(output))
}

// The guest does what its seed says, answers the host, lets in who has the key and
// nobody else, takes a processor and memory that come later, and powers off at the
// press of the button.
func TestMachine(t *testing.T) {
	key, authorized := newKey(t)
	seed := filepath.Join(t.TempDir(), "seed.iso")
	content := seedISO(map[string]string{
		"meta-data": "instance-id: one\nlocal-hostname: one\n",
		"user-data": `#cloud-config
hostname: tester
ssh_authorized_keys: ["` + authorized + `"]
write_files: [{path: /etc/motto/text, content: "steady\n", permissions: '0600'}]
runcmd: ["cat /etc/motto/text > /run/copied; echo $((6*7)) >> /run/copied"]
packages: [vim]
`,
	})
	if err := os.WriteFile(seed, content, 0o600); err != nil {
		t.Fatal(err)
	}
	m := start(t, "-drive", "if=none,id=seed,format=raw,readonly=on,file="+seed, "-device", "virtio-blk-pci,drive=seed")

	m.ask(m.agent, "guest-ping", nil)
	var client *ssh.Client
	m.eventually("a login with the key", func() (err error) {
		client, err = m.login(key)
		return err
	})
	defer func() { _ = client.Close() }()
	t.Run("the host learns name and address", func(t *testing.T) {
		if got := string(m.ask(m.agent, "guest-get-host-name", nil)); got != `{"host-name":"tester"}` {
			t.Errorf("the host name is %s", got)
		}
		m.eventually("an address", func() error {
			got := m.ask(m.agent, "guest-network-get-interfaces", nil)
			if !bytes.Contains(got, []byte(`"ip-address":"10.0.2.15","ip-address-type":"ipv4","prefix":24`)) {
				return fmt.Errorf("the interfaces are %s", got)
			}
			return nil
		})
	})
	t.Run("the seed is done", func(t *testing.T) {
		m.eventually("the command of the seed", func() error { return m.console.has("Commands of the seed: 1 ran, 0 failed") })
		if got := run(t, client, "cat /run/copied; hostname; ls -l /etc/motto/text"); !strings.HasPrefix(got, "steady\n42\ntester\n-rw-------") {
			t.Errorf("got %q", got)
		}
		if err := m.console.has("the seed's packages is not supported here"); err != nil {
			t.Error(err)
		}
	})
	t.Run("the status of a command", func(t *testing.T) {
		session, err := client.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()
		var exit *ssh.ExitError
		if err := session.Run("exit 3"); !errors.As(err, &exit) || exit.ExitStatus() != 3 {
			t.Errorf("exit 3 gave %v", err)
		}
	})
	t.Run("another key does not open", func(t *testing.T) {
		other, _ := newKey(t)
		if client, err := m.login(other); err == nil {
			_ = client.Close()
			t.Error("it did")
		}
	})
	t.Run("a shell on the console", func(t *testing.T) {
		if _, err := m.console.connection.Write([]byte("echo $((40+2))-$(hostname)\r")); err != nil {
			t.Fatal(err)
		}
		m.eventually("the answer", func() error { return m.console.has("42-tester") })
	})
	t.Run("nobody is left unburied", func(t *testing.T) {
		// The inner shell ends first, so its child is an orphan when it ends.
		run(t, client, "sh -c 'sleep 0.2 &'; sleep 0.5")
		m.eventually("no zombies", func() error {
			if got := run(t, client, "cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z' || true"); got != "0" {
				return fmt.Errorf("%s of them", got)
			}
			return nil
		})
	})
	t.Run("another processor", func(t *testing.T) { m.plugProcessor(t, client) })
	t.Run("more memory", func(t *testing.T) { m.plugMemory(t, client) })

	m.ask(m.control, "system_powerdown", nil)
	m.control.readToEnd()
	m.waitForEnd()
	if !slices.Contains(m.control.events, "SHUTDOWN guest-shutdown") {
		t.Errorf("QEMU told %q", m.control.events)
	}
	for _, text := range []string{"The power button was pressed", "The guest is powering off"} {
		if err := m.console.has(text); err != nil {
			t.Error(err)
		}
	}
}

func (m *machine) plugProcessor(t *testing.T, client *ssh.Client) {
	var slots []struct {
		Type  string
		Props map[string]any
		Path  string `json:"qom-path"`
	}
	if err := json.Unmarshal(m.ask(m.control, "query-hotpluggable-cpus", nil), &slots); err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots {
		if slot.Path != "" {
			continue // in use
		}
		arguments := map[string]any{"driver": slot.Type, "id": "second"}
		for name, value := range slot.Props {
			arguments[name] = value
		}
		m.ask(m.control, "device_add", arguments)
		m.eventually("the processor is used", func() error {
			if got := run(t, client, "cat /sys/devices/system/cpu/online"); got != "0-1" {
				return fmt.Errorf("the processors %s are", got)
			}
			return nil
		})
		return
	}
	t.Error("QEMU has no place for a processor")
}

func (m *machine) plugMemory(t *testing.T, client *ssh.Client) {
	const total = "grep MemTotal /proc/meminfo"
	before := run(t, client, total)
	m.ask(m.control, "object-add", map[string]any{"qom-type": "memory-backend-ram", "id": "more", "size": 128 << 20})
	m.ask(m.control, "device_add", map[string]any{"driver": "pc-dimm", "id": "dimm", "memdev": "more"})
	m.eventually("the memory is used", func() error {
		if got := run(t, client, total); got == before {
			return fmt.Errorf("it is still %s", got)
		}
		return nil
	})
}

// What is written to the root file system outlasts a restart if there is a root disk: it is formatted once, keeps the host
// key, and grows with the disk. The commands of the seed run once.
func TestRootDisk(t *testing.T) {
	key, authorized := newKey(t)
	dir := t.TempDir()
	seed, disk := filepath.Join(dir, "seed.iso"), filepath.Join(dir, "disk.raw")
	content := seedISO(map[string]string{
		"meta-data": "instance-id: one\nlocal-hostname: one\n",
		"user-data": "#cloud-config\nssh_authorized_keys: [\"" + authorized + "\"]\nruncmd: [\"echo ran >> /root/runs\"]\n",
	})
	if err := errors.Join(os.WriteFile(seed, content, 0o600), os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 1<<30)); err != nil {
		t.Fatal(err)
	}
	var hostKeys []string
	boot := func() (*machine, *ssh.Client) {
		m := start(t, "-drive", "if=none,id=seed,format=raw,readonly=on,file="+seed, "-device", "virtio-blk-pci,drive=seed,serial=seed",
			"-drive", "if=none,id=disk,format=raw,file="+disk, "-device", "virtio-blk-pci,drive=disk,serial=root")
		var client *ssh.Client
		m.eventually("a login with the key", func() (err error) {
			client, err = ssh.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", m.sshPort), &ssh.ClientConfig{
				User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(key)}, Timeout: waitTimeout,
				HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
					hostKeys = append(hostKeys, ssh.FingerprintSHA256(key))
					return nil
				},
			})
			return err
		})
		return m, client
	}
	powerOff := func(m *machine, client *ssh.Client) {
		_ = client.Close()
		m.ask(m.control, "system_powerdown", nil)
		m.control.readToEnd()
		m.waitForEnd()
	}

	m, client := boot()
	m.eventually("the commands of the seed", func() error { return m.console.has("Commands of the seed: 1 ran, 0 failed") })
	run(t, client, "echo kept > /root/file; echo setting > /etc/setting; sync")
	files, err := sftp.NewClient(client)
	if err != nil {
		t.Fatal(err)
	}
	uploaded, err := files.Create("/root/uploaded")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := uploaded.Write([]byte("by SFTP")); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(uploaded.Close(), files.Close()); err != nil {
		t.Fatal(err)
	}
	if got := run(t, client, "df -h / | tail -n 1; ping -c 1 127.0.0.1 | grep -c '1 packets received'; which vi mkfs.ext4"); !strings.HasPrefix(got, "overlay") || !strings.Contains(got, "\n1\n") {
		t.Errorf("in the guest: %s", got)
	}
	powerOff(m, client)

	if err := os.Truncate(disk, 2<<30); err != nil {
		t.Fatal(err)
	}
	m, client = boot()
	const want = "kept\nsetting\nby SFTP\nran"
	if got := run(t, client, "cat /root/file /etc/setting /root/uploaded; echo; cat /root/runs"); got != want {
		t.Errorf("after the restart: %q, want %q", got, want)
	}
	if got := run(t, client, "df -m /run/disk | tail -n 1 | awk '{print ($2 > 1500)}'"); got != "1" {
		t.Errorf("the file system has not grown: %s", run(t, client, "df -m /run/disk"))
	}
	if len(hostKeys) != 2 || hostKeys[0] != hostKeys[1] {
		t.Errorf("the host keys are %q", hostKeys)
	}
	powerOff(m, client)
}

// A root disk with other content is left alone.
func TestForeignRootDisk(t *testing.T) {
	key, authorized := newKey(t)
	dir := t.TempDir()
	seed, disk := filepath.Join(dir, "seed.iso"), filepath.Join(dir, "disk.raw")
	foreign := bytes.Repeat([]byte("data"), 1<<18)
	content := seedISO(map[string]string{"user-data": "#cloud-config\nssh_authorized_keys: [\"" + authorized + "\"]\n"})
	if err := errors.Join(os.WriteFile(seed, content, 0o600), os.WriteFile(disk, foreign, 0o600)); err != nil {
		t.Fatal(err)
	}
	m := start(t, "-drive", "if=none,id=seed,format=raw,readonly=on,file="+seed, "-device", "virtio-blk-pci,drive=seed",
		"-drive", "if=none,id=disk,format=raw,file="+disk, "-device", "virtio-blk-pci,drive=disk,serial=root")
	m.eventually("a login with the key", func() error {
		client, err := m.login(key)
		if err == nil {
			_ = client.Close()
		}
		return err
	})
	if err := m.console.has("the root disk has other content and is left alone"); err != nil {
		t.Error(err)
	}
	if after, err := os.ReadFile(disk); err != nil || !bytes.Equal(after, foreign) {
		t.Errorf("the disk was changed, %v", err)
	}
}

// A seed may also be VFAT, in a partition; and the host can restart the guest, or a
// new host take over the agent from one that has hung up in the middle of a request.
func TestRestart(t *testing.T) {
	key, authorized := newKey(t)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "user-data"), []byte("#cloud-config\nssh_authorized_keys: [\""+authorized+"\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m := start(t, "-no-reboot",
		"-drive", "if=none,id=seed,format=vvfat,read-only=on,label=cidata,dir="+folder, "-device", "virtio-blk-pci,drive=seed")
	m.eventually("a login with the key", func() error {
		client, err := m.login(key)
		if err == nil {
			_ = client.Close()
		}
		return err
	})
	if _, err := m.agent.connection.Write([]byte(`{"execute":"guest-`)); err != nil {
		t.Fatal(err)
	}
	_ = m.agent.connection.Close()
	m.agent = newDialogue(m.connect("agent"))
	if _, err := m.agent.connection.Write([]byte{0xff}); err != nil {
		t.Fatal(err)
	}
	if got := string(m.ask(m.agent, "guest-sync-delimited", map[string]any{"id": 17})); got != "17" {
		t.Errorf("guest-sync-delimited returned %s", got)
	}
	if err := m.agent.send("guest-shutdown", map[string]any{"mode": "reboot"}); err != nil {
		t.Fatal(err)
	}
	m.control.readToEnd()
	m.waitForEnd()
	if !slices.Contains(m.control.events, "SHUTDOWN guest-reset") {
		t.Errorf("QEMU told %q", m.control.events)
	}
}
