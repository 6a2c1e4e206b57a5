package docker

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// initDir is the variable with the directory of the engine that runInit looks after.
const initDir = "KEELSON_TEST_INIT"

// What runInit is told to do, a line each.
const (
	orderStart  = "start"
	orderKill   = "kill"
	orderFreeze = "freeze"
	orderThaw   = "thaw"
	orderStop   = "stop"
)

// engineStop is how long an engine may take to stop; it stops its containers first.
const engineStop = 30 * time.Second

// initAttributes start a process with namespaces of its own.
func initAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Setsid:     true, // Ctrl-C is for the tests; they end this one
	}
}

// caretaker starts and ends the engine, and buries what others have left behind.
type caretaker struct {
	dir   string
	pid   int
	ended chan int // pids
}

// runInit is the first process of the namespaces of an engine. It does as it is told, until
// nobody tells it anything any more.
func runInit(dir string) error {
	err := errors.Join(
		unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
		unix.Mount("proc", "/proc", "proc", 0, ""),
		loopback(),
	)
	if err != nil {
		return fmt.Errorf("prepare namespaces: %w", err)
	}
	images, err := newRegistry()
	if err != nil {
		return fmt.Errorf("make a registry: %w", err)
	}
	listener, err := net.Listen("tcp", registryAddress)
	if err != nil {
		return fmt.Errorf("make a registry: %w", err)
	}
	server := http.Server{Handler: images, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // until this process ends
	c := &caretaker{dir: dir, ended: make(chan int, 100)}
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		answer := "done"
		if err := c.obey(orders.Text()); err != nil {
			answer = err.Error()
		}
		fmt.Println(answer)
	}
	return nil // with this process the kernel ends all others
}

// loopback brings up the network inside the namespace.
func loopback() (err error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(socket)) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request)
}

func (c *caretaker) obey(order string) error {
	switch order {
	case orderStart:
		return c.start()
	case orderKill:
		return c.end(syscall.SIGKILL)
	case orderStop:
		return c.end(syscall.SIGTERM)
	case orderFreeze:
		return c.signal(syscall.SIGSTOP)
	case orderThaw:
		return c.signal(syscall.SIGCONT)
	}
	return fmt.Errorf("unknown order %q", order)
}

func (c *caretaker) start() error {
	path, err := exec.LookPath("dockerd")
	if err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	settings := filepath.Join(c.dir, "daemon.json")
	if err := os.WriteFile(settings, []byte("{}\n"), 0o600); err != nil {
		return err
	}
	arguments := []string{path, "--config-file", settings, "--host", "unix://" + filepath.Join(c.dir, "docker.sock"),
		"--data-root", filepath.Join(c.dir, "data"), "--exec-root", filepath.Join(c.dir, "exec"), "--pidfile", filepath.Join(c.dir, "pid"),
		"--ip6tables=false", "--shutdown-timeout", "5"}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	c.pid, err = syscall.ForkExec(path, arguments, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{null.Fd(), log.Fd(), log.Fd()}})
	if err != nil {
		return err
	}
	go c.bury()
	return nil
}

// bury waits for every process that ends, its own and those that were left to it, as long
// as there are any.
func (c *caretaker) bury() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return
		}
		select {
		case c.ended <- pid:
		default:
		}
	}
}

func (c *caretaker) signal(signal syscall.Signal) error {
	return syscall.Kill(c.pid, signal) //nolint:forbidigo // a child of this process, in a namespace of its own
}

// end ends the engine.
func (c *caretaker) end(signal syscall.Signal) error {
	if c.pid == 0 {
		return nil
	}
	if err := c.signal(signal); err != nil {
		return err
	}
	late := time.After(engineStop)
	for {
		select {
		case pid := <-c.ended:
			if pid == c.pid {
				c.pid = 0
				return nil
			}
		case <-late:
			return fmt.Errorf("it does not end within %v", engineStop)
		}
	}
}
