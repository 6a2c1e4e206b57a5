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

// initDir is the environment variable with the directory of the engine that runInit supervises.
const initDir = "KEELSON_TEST_INIT"

// Requests to runInit, one per line.
const (
	requestStart  = "start"
	requestKill   = "kill"
	requestFreeze = "freeze"
	requestThaw   = "thaw"
	requestStop   = "stop"
)

// engineStop is the deadline for the engine's stop; it stops its containers first.
const engineStop = 30 * time.Second

// initAttributes start a process in its own namespaces.
func initAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET,
		Setsid:     true, // Ctrl-C is for the tests; they end this process
	}
}

// supervisor starts and ends the engine, and reaps orphans.
type supervisor struct {
	dir   string
	pid   int
	ended chan int // pids
}

// runInit is the init of the engine's namespaces. It serves requests until their stream ends.
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
	c := &supervisor{dir: dir, ended: make(chan int, 100)}
	requests := bufio.NewScanner(os.Stdin)
	for requests.Scan() {
		answer := "done"
		if err := c.handle(requests.Text()); err != nil {
			answer = err.Error()
		}
		fmt.Println(answer)
	}
	return nil // with this process the kernel ends all others
}

// loopback brings up the loopback interface of the namespace.
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

func (c *supervisor) handle(request string) error {
	switch request {
	case requestStart:
		return c.start()
	case requestKill:
		return c.end(syscall.SIGKILL)
	case requestStop:
		return c.end(syscall.SIGTERM)
	case requestFreeze:
		return c.signal(syscall.SIGSTOP)
	case requestThaw:
		return c.signal(syscall.SIGCONT)
	}
	return fmt.Errorf("unknown request %q", request)
}

func (c *supervisor) start() error {
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
	go c.reap()
	return nil
}

// reap waits for all children and orphans as they end.
func (c *supervisor) reap() {
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

func (c *supervisor) signal(signal syscall.Signal) error {
	return syscall.Kill(c.pid, signal) //nolint:forbidigo // a child of this process, in its own namespace
}

// end ends the engine.
func (c *supervisor) end(signal syscall.Signal) error {
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
			return fmt.Errorf("the engine did not end within %v", engineStop)
		}
	}
}
