package boot

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// waitTimeout bounds every wait. It is for machines without KVM on busy hosts.
const waitTimeout = 3 * time.Minute

const qemu = "qemu-system-x86_64"

// machine is a QEMU that runs the guest.
type machine struct {
	t       *testing.T
	dir     string
	sshPort int
	// control and agent answer one request at a time.
	control, agent *dialogue
	// console is the serial port.
	console *console
	// ended is closed when QEMU has ended, with err.
	ended chan struct{}
	err   error
}

// guestFolder returns where the built guest is; without one, or without QEMU, the
// test is skipped.
func guestFolder(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath(qemu); err != nil {
		t.Skipf("%s is not installed; on Debian: apt-get install qemu-system-x86", qemu)
	}
	folder := os.Getenv("KEELSON_GUEST")
	if folder == "" {
		folder = filepath.Join("..", "..", "..", "bin", "guest")
	}
	folder, err := filepath.Abs(folder)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "guest.json")); err != nil {
		t.Skipf("there is no guest in %s; run make guest", folder)
	}
	return folder
}

// accelerator is KVM if it can work. Some hosts show /dev/kvm without a processor
// that could serve it.
func accelerator() string {
	kvm, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return "tcg"
	}
	kvm.Close()
	cpus, err := os.ReadFile("/proc/cpuinfo")
	if err != nil || !regexp.MustCompile(`\b(vmx|svm)\b`).Match(cpus) {
		return "tcg"
	}
	return "kvm"
}

// start starts a machine with 128 MiB and one processor, to which another and more
// memory can be plugged.
func start(t *testing.T, arguments ...string) *machine {
	t.Helper()
	guest := guestFolder(t)
	var manifest struct {
		Cmdline string `json:"cmdline"`
		Kernel  struct{ File string }
		Initrd  struct{ File string } `json:"initramfs"`
	}
	text, err := os.ReadFile(filepath.Join(guest, "guest.json"))
	if err == nil {
		err = json.Unmarshal(text, &manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, sshPort: freePort(t), ended: make(chan struct{})}
	// Not t.TempDir, whose name can be too long for a socket.
	if m.dir, err = os.MkdirTemp("", "guest"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(m.dir) })
	socket := func(name string) string {
		return fmt.Sprintf("socket,id=%s,path=%s,server=on,wait=off", name, filepath.Join(m.dir, name))
	}
	cmd := exec.Command(qemu, append([]string{
		"-nodefaults", "-no-user-config", "-machine", "q35", "-accel", accelerator(), "-cpu", "max", "-display", "none",
		"-smp", "1,maxcpus=2", "-m", "128,slots=1,maxmem=512M",
		"-kernel", filepath.Join(guest, manifest.Kernel.File), "-initrd", filepath.Join(guest, manifest.Initrd.File),
		"-append", manifest.Cmdline,
		"-chardev", socket("console"), "-serial", "chardev:console",
		"-chardev", socket("control"), "-mon", "chardev=control,mode=control",
		"-device", "virtio-serial-pci", "-chardev", socket("agent"),
		"-device", "virtserialport,chardev=agent,name=org.qemu.guest_agent.0",
		"-netdev", fmt.Sprintf("user,id=net,hostfwd=tcp:127.0.0.1:%d-:22", m.sshPort),
		"-device", "virtio-net-pci,netdev=net,romfile=",
	}, arguments...)...)
	var complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &complaints, &complaints
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		if m.err = cmd.Wait(); m.err != nil {
			m.err = fmt.Errorf("%w: %s", m.err, complaints.String())
		}
		close(m.ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended if all went well
		<-m.ended
		if t.Failed() {
			t.Logf("the console:\n%s", m.console.text())
		}
	})
	m.console = newConsole(m.connect("console"))
	m.control = newDialogue(m.connect("control"))
	m.ask(m.control, "qmp_capabilities", nil)
	m.agent = newDialogue(m.connect("agent"))
	return m
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// connect waits for a socket of QEMU and connects to it.
func (m *machine) connect(name string) net.Conn {
	m.t.Helper()
	var connection net.Conn
	m.eventually("QEMU listens on "+name, func() error {
		var err error
		connection, err = net.Dial("unix", filepath.Join(m.dir, name))
		return err
	})
	m.t.Cleanup(func() { _ = connection.Close() })
	return connection
}

// eventually tries until there is no error any more.
func (m *machine) eventually(what string, try func() error) {
	m.t.Helper()
	deadline := time.After(waitTimeout)
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-ticker.C:
		case <-m.ended:
			m.t.Fatalf("waiting for: %s: QEMU has ended: %v", what, m.err)
		case <-deadline:
			m.t.Fatalf("waiting for: %s: %v", what, err)
		}
	}
}

// waitForEnd waits until the machine is off.
func (m *machine) waitForEnd() {
	m.t.Helper()
	select {
	case <-m.ended:
		if m.err != nil {
			m.t.Fatalf("QEMU: %v", m.err)
		}
	case <-time.After(waitTimeout):
		m.t.Fatal("the machine is not off")
	}
}

// ask sends a command and returns what it returned. An error fails the test.
func (m *machine) ask(to *dialogue, command string, arguments map[string]any) json.RawMessage {
	m.t.Helper()
	result, err := to.ask(command, arguments)
	if err != nil {
		m.t.Fatalf("%s: %v", command, err)
	}
	return result
}

// dialogue speaks the protocol that QEMU's monitor and the guest agent share.
type dialogue struct {
	connection net.Conn
	lines      *bufio.Reader
	// events are the names of what QEMU told unasked, in order, and the last word of
	// the reason, if any.
	events []string
}

func newDialogue(connection net.Conn) *dialogue {
	return &dialogue{connection: connection, lines: bufio.NewReader(connection)}
}

func (d *dialogue) send(command string, arguments map[string]any) error {
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	return json.NewEncoder(d.connection).Encode(request)
}

func (d *dialogue) ask(command string, arguments map[string]any) (json.RawMessage, error) {
	if err := d.send(command, arguments); err != nil {
		return nil, err
	}
	for {
		answer, err := d.read()
		if err != nil {
			return nil, err
		}
		if answer.Error != nil {
			return nil, errors.New(answer.Error.Desc)
		}
		if answer.Return != nil {
			return answer.Return, nil
		}
	}
}

type answer struct {
	Return json.RawMessage
	Error  *struct{ Desc string }
	Event  string
	Data   struct{ Reason string }
}

func (d *dialogue) read() (answer, error) {
	if err := d.connection.SetReadDeadline(time.Now().Add(waitTimeout)); err != nil {
		return answer{}, err
	}
	line, err := d.lines.ReadBytes('\n')
	if err != nil {
		return answer{}, err
	}
	var a answer
	err = json.Unmarshal(bytes.TrimPrefix(line, []byte{0xff}), &a)
	if a.Event != "" {
		d.events = append(d.events, strings.TrimSpace(a.Event+" "+a.Data.Reason))
	}
	return a, err
}

// readToEnd collects the events until QEMU hangs up.
func (d *dialogue) readToEnd() {
	for {
		if _, err := d.read(); err != nil {
			return
		}
	}
}

// console is the guest's serial port.
type console struct {
	connection net.Conn

	mu  sync.Mutex
	all bytes.Buffer
}

func newConsole(connection net.Conn) *console {
	c := &console{connection: connection}
	go func() {
		_, _ = io.Copy(c, connection) // until QEMU ends
	}()
	return c
}

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.Write(p)
}

func (c *console) text() string {
	if c == nil {
		return ""
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all.String()
}

// has returns an error unless the console shows the text.
func (c *console) has(text string) error {
	if !strings.Contains(c.text(), text) {
		return fmt.Errorf("the console does not show %s", strconv.Quote(text))
	}
	return nil
}
