package sandbox

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/keelson-dev/keelson/internal/testing/harness"
)

// The tests look at a program in the sandbox from the inside: a copy of this test binary that tries what it is told to.
const probeEnv = "KEELSON_TEST_PROBE"

func TestMain(m *testing.M) {
	if attempts := os.Getenv(probeEnv); attempts != "" {
		probe(attempts)
		return
	}
	os.Exit(m.Run())
}

// probe makes attempts, prints what came of them as JSON, and stays until its standard input ends.
func probe(attempts string) {
	outcome := map[string]string{}
	for _, attempt := range strings.Split(attempts, "\n") {
		outcome[attempt] = "ok"
		if err := try(attempt); err != nil {
			var errno syscall.Errno
			if outcome[attempt] = err.Error(); errors.As(err, &errno) {
				outcome[attempt] = unix.ErrnoName(errno)
			}
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(outcome) // a parent that is gone does not look
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

func try(attempt string) error {
	what, with, _ := strings.Cut(attempt, " ")
	number, _ := strconv.Atoi(with)
	open := func(flags int) error {
		file, err := os.OpenFile(with, flags, 0o600)
		if err == nil {
			_ = file.Close() // nothing was written
		}
		return err
	}
	dial := func(network, address string) error {
		conn, err := net.Dial(network, address)
		if err == nil {
			_ = conn.Close() // nothing was written
		}
		return err
	}
	switch what {
	case "read":
		return open(os.O_RDONLY)
	case "write":
		return open(os.O_RDWR)
	case "create":
		return open(os.O_RDWR | os.O_CREATE)
	case "list":
		_, err := os.ReadDir(with)
		return err
	case "append":
		_, err := unix.Write(number, []byte("appended"))
		return err
	case "accept":
		fd, _, err := unix.Accept(number)
		return errors.Join(err, unix.Close(fd))
	case "unix":
		return dial("unix", with)
	case "tcp":
		return dial("tcp", with)
	case "bind":
		listener, err := net.Listen("tcp", with)
		if err == nil {
			_ = listener.Close() // nobody has connected
		}
		return err
	case "signal":
		return syscall.Kill(number, 0) //nolint:forbidigo // signal 0 only asks whether the sandbox lets a signal pass
	case "become":
		return syscall.Setuid(number)
	case "uring":
		_, _, errno := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0)
		return errno
	case "deny":
		return DenyPrograms()
	case "exec":
		return exec.Command(with).Run()
	case "socket":
		fd, err := unix.Socket(number, unix.SOCK_DGRAM, 0)
		if err == nil {
			_ = unix.Close(fd)
		}
		return err
	case "listen":
		listener, err := net.Listen("unix", with)
		if err == nil {
			_ = listener.Close()
		}
		return err
	case "addresses":
		_, err := net.InterfaceAddrs()
		return err
	case "mount":
		return unix.Mount("none", with, "tmpfs", 0, "")
	}
	return fmt.Errorf("nobody knows how to %s", what)
}

// world is a place for the programs of a test.
type world struct {
	*testing.T
	dir    string
	binary string
}

// newWorld returns one whose program every user may execute.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandbox")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	content, err := os.ReadFile("/proc/self/exe")
	w := &world{T: t, dir: dir, binary: filepath.Join(dir, "probe")}
	w.do(err)
	w.do(os.WriteFile(w.binary, content, 0o700))
	w.do(os.Chmod(w.binary, 0o755))
	w.do(os.Chmod(dir, 0o755))
	return w
}

func (w *world) do(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// file makes a file.
func (w *world) file(name string) string {
	w.Helper()
	path := filepath.Join(w.dir, name)
	w.do(os.WriteFile(path, []byte("secret"), 0o600))
	return path
}

// run starts a program in the sandbox that makes attempts. It returns what came of them, and the pid of the program, which
// lives until the end of the test.
func (w *world) run(spec *Spec, attempts ...string) (outcome map[string]string, pid int) {
	w.Helper()
	path, argv := spec.Command(w.binary)
	cmd := exec.Command(path)
	cmd.Args, cmd.Dir, cmd.Env = argv, w.dir, []string{probeEnv + "=" + strings.Join(attempts, "\n")}
	cmd.Stderr = w.Output()
	stdin, err := cmd.StdinPipe()
	w.do(err)
	stdout, err := cmd.StdoutPipe()
	w.do(err)
	w.do(cmd.Start())
	w.Cleanup(func() {
		_ = stdin.Close() // which ends it
		_ = cmd.Wait()
	})
	if err := json.NewDecoder(stdout).Decode(&outcome); err != nil {
		w.Fatalf("the program said nothing: %v", err)
	}
	return outcome, cmd.Process.Pid
}

// users are those that the programs of a test run as: without root, only that of the test.
func users() map[string]*User {
	all := map[string]*User{"the same user": nil}
	if os.Geteuid() == 0 {
		all["another user"] = &User{UID: 2100000001, GID: 2100000002, Groups: []int{2100000003}}
	}
	return all
}

func needLandlock(t *testing.T, version int) {
	t.Helper()
	if got := Landlock(); got < version {
		t.Skipf("SKIP: the kernel has Landlock %d, and this needs %d", got, version)
	}
}

func TestRights(t *testing.T) {
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			id, group, groups := os.Getuid(), os.Getgid(), harness.ProcessStatus(w, os.Getpid(), "Groups")["Groups"]
			if user != nil {
				id, group, groups = user.UID, user.GID, "2100000003"
			}
			outcome, pid := w.run(&Spec{User: user}, "become 0", "mount "+w.dir, "uring")
			want := map[string]string{
				"Uid":    fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", id),
				"Gid":    fmt.Sprintf("%[1]d %[1]d %[1]d %[1]d", group),
				"Groups": groups, "NoNewPrivs": "1", "Seccomp": "2",
				"CapInh": "0000000000000000", "CapPrm": "0000000000000000", "CapEff": "0000000000000000", "CapAmb": "0000000000000000",
			}
			if os.Geteuid() == 0 { // nobody else may, and nobody else has any
				want["CapBnd"] = "0000000000000000"
			}
			got := harness.ProcessStatus(w, pid, "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp", "CapInh", "CapPrm", "CapEff", "CapAmb")
			if os.Geteuid() == 0 {
				got["CapBnd"] = harness.ProcessStatus(w, pid, "CapBnd")["CapBnd"]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rights of the program (-want +got):\n%s", diff)
			}
			denied := map[string]string{"become 0": "EPERM", "mount " + w.dir: "EPERM", "uring": "ENOSYS"}
			if id == 0 {
				denied["become 0"] = "ok"
			}
			if diff := cmp.Diff(denied, outcome); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFiles(t *testing.T) {
	needLandlock(t, 3)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			disk, kernel, image, secret := w.file("disk"), w.file("kernel"), w.file("image"), w.file("secret")
			w.do(os.Chmod(secret, 0o666)) // so that it is not its mode that protects it
			w.do(os.Chmod(kernel, 0o644))
			if user != nil {
				w.do(os.Chown(disk, user.UID, user.GID))
			}
			spec := &Spec{User: user, Devices: []string{"/dev/zero"}}
			d, k, i, l := spec.Open("disk", ReadWrite), spec.Open(kernel, ReadOnly), spec.Open(image, ReadOnly), spec.Open("log", AppendOnly)
			again := "ok"
			if user != nil {
				again = "EACCES" // it is not readable for the user, but by its descriptor
			}
			want := map[string]string{
				"write " + FDPath(d): "ok", "read " + FDPath(k): "ok", "write " + FDPath(k): "EACCES",
				"read " + FDPath(i): again, fmt.Sprintf("append %d", l): "ok",
				"write /dev/zero": "ok", "write /dev/null": "ok", "read /dev/urandom": "ok", "read /usr/bin/env": "ok",
				"write /dev/full": "EACCES", "read " + secret: "EACCES", "write " + secret: "EACCES", "list " + w.dir: "EACCES",
				"create " + filepath.Join(w.dir, "new"): "EACCES", "create /tmp/keelson-sandbox-test": "EACCES",
				"read /etc/shadow": "EACCES", "read /etc/passwd": "EACCES", "read /proc/self/environ": "EACCES", "read /proc/1/environ": "EACCES",
			}
			var attempts []string
			for attempt := range want {
				attempts = append(attempts, attempt)
			}
			outcome, _ := w.run(spec, attempts...)
			if diff := cmp.Diff(want, outcome); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			if log, err := os.ReadFile(filepath.Join(w.dir, "log")); err != nil || string(log) != "appended" {
				t.Errorf("the log has %q, %v", log, err)
			}
		})
	}
}

func TestSockets(t *testing.T) {
	needLandlock(t, 6)
	for name, user := range users() {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			others := []string{filepath.Join(w.dir, "others.sock"), "@keelson-sandbox-test"}
			for _, address := range others {
				listener, err := net.Listen("unix", address)
				w.do(err)
				t.Cleanup(func() { _ = listener.Close() })
				if address[0] != '@' {
					w.do(os.Chmod(address, 0o777))
				}
			}
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			w.do(err)
			defer func() { _ = tcp.Close() }() // nobody has connected

			spec := &Spec{User: user}
			own := filepath.Join(w.dir, "own.sock")
			fd := spec.Listen("own.sock")
			go func() {
				for {
					if conn, err := net.Dial("unix", own); err == nil {
						_ = conn.Close()
						return
					}
					if t.Context().Err() != nil {
						return
					}
				}
			}()
			want := map[string]string{
				fmt.Sprintf("accept %d", fd): "ok", "unix " + others[0]: "EACCES", "unix " + others[1]: "EACCES", "unix " + own: "EACCES",
				fmt.Sprintf("signal %d", os.Getpid()): "EPERM", "tcp " + tcp.Addr().String(): "ok",
				"bind 127.0.0.1:0": "EACCES",
			}
			var attempts []string
			for attempt := range want {
				attempts = append(attempts, attempt)
			}
			outcome, _ := w.run(spec, attempts...)
			if diff := cmp.Diff(want, outcome); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
			info, err := os.Stat(own)
			w.do(err)
			if stat := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != 0o700 || int(stat.Uid) != os.Getuid() {
				t.Errorf("the socket has mode %v and the owner %d", info.Mode(), stat.Uid)
			}
			outcome, _ = w.run(&Spec{User: user, NoConnect: true}, "tcp "+tcp.Addr().String())
			if diff := cmp.Diff(map[string]string{"tcp " + tcp.Addr().String(): "EACCES"}, outcome); diff != "" {
				t.Errorf("without permission to connect (-want +got):\n%s", diff)
			}
		})
	}
}

// A program with a network, such as a switch, has its directory, sockets of IP and Unix sockets, and nothing else.
func TestNetwork(t *testing.T) {
	needLandlock(t, 6)
	w := newWorld(t)
	secret := w.file("secret")
	w.do(os.Chmod(secret, 0o666))
	own := filepath.Join(w.dir, "own")
	w.do(os.Mkdir(own, 0o700))
	w.do(os.WriteFile(filepath.Join(own, "old"), nil, 0o600))
	machine, err := net.Listen("unix", filepath.Join(w.dir, "machine.sock"))
	w.do(err)
	defer func() { _ = machine.Close() }() // nobody has connected
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	w.do(err)
	defer func() { _ = tcp.Close() }() // nobody has connected
	want := map[string]string{
		"deny": "ok", "create " + own + "/new": "ok", "write " + own + "/old": "ok", "list " + own: "ok", "listen " + own + "/sock": "ok",
		"unix " + machine.Addr().String(): "ok", "tcp " + tcp.Addr().String(): "ok", "bind 127.0.0.1:0": "ok", "addresses": "ok",
		"read /proc/self/maps": "ok", "exec /bin/true": "EPERM", "exec " + w.binary: "EPERM", "uring": "ENOSYS",
		fmt.Sprintf("socket %d", unix.AF_PACKET): "EACCES", fmt.Sprintf("socket %d", unix.AF_VSOCK): "EACCES", fmt.Sprintf("socket %d", unix.AF_ALG): "EACCES",
		"read " + secret: "EACCES", "create " + w.dir + "/new": "EACCES", "list " + w.dir: "EACCES", "read /etc/shadow": "EACCES", "read /proc/1/environ": "EACCES",
		"unix @keelson-sandbox-test": "ECONNREFUSED", "mount " + own: "EPERM", fmt.Sprintf("signal %d", os.Getpid()): "EPERM",
	}
	attempts := []string{"deny"} // first
	for attempt := range want {
		if attempt != "deny" {
			attempts = append(attempts, attempt)
		}
	}
	spec := &Spec{Network: true, Own: []string{own}, Connect: []string{w.dir}, Read: []string{"/proc/self"}}
	outcome, pid := w.run(spec, attempts...)
	if diff := cmp.Diff(want, outcome); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	got := harness.ProcessStatus(w, pid, "NoNewPrivs", "Seccomp", "CapEff", "CapPrm")
	if diff := cmp.Diff(map[string]string{"NoNewPrivs": "1", "Seccomp": "2", "CapEff": "0000000000000000", "CapPrm": "0000000000000000"}, got); diff != "" {
		t.Errorf("rights of the program (-want +got):\n%s", diff)
	}
}

// A limit that is below what the Go runtime takes holds for the program only.
func TestLimits(t *testing.T) {
	spec := &Spec{Limits: []Limit{{unix.RLIMIT_AS, 64 << 20}, {unix.RLIMIT_CPU, 7}, {unix.RLIMIT_FSIZE, 4096}}}
	path, argv := spec.Command("/bin/sh", "-c", "ulimit -v; ulimit -t; ulimit -f")
	cmd := exec.Command(path)
	cmd.Args = argv
	out, err := cmd.CombinedOutput()
	if want := "65536\n7\n8\n"; err != nil || string(out) != want {
		t.Errorf("the limits are %q, %v; want %q", out, err, want)
	}
}

func TestWhatCannotBeDone(t *testing.T) {
	for name, spec := range map[string]*Spec{
		"open /none/file: no such file or directory": {Files: []File{{"/none/file", ReadOnly}}},
		"listen at /none/socket":                     {Sockets: []string{"/none/socket"}},
		"chdir /none":                                {WorkDir: "/none"},
	} {
		path, argv := spec.Command("/bin/true")
		cmd := exec.Command(path)
		cmd.Args = argv
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), Name+": "+name) {
			t.Errorf("%s: got %q, %v", name, out, err)
		}
	}
}
