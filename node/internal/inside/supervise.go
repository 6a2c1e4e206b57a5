package inside

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// component is a program that runs as long as the node does.
type component struct {
	name string
	path string
	args []string
	env  []string
	// files are open in the program, from descriptor 3 on.
	files []*os.File
}

// supervisor starts the components and takes care of every process of the node that has lost its parent. The first process
// of a namespace gets those, and the kernel keeps them until it asks how they have ended.
type supervisor struct {
	mu      sync.Mutex
	waiting map[int]chan unix.WaitStatus // by process ID: our own children
}

func newSupervisor() *supervisor {
	k := &supervisor{waiting: map[int]chan unix.WaitStatus{}}
	go k.reap()
	return k
}

// reap asks for the end of every child, as long as this process lives.
func (k *supervisor) reap() {
	for {
		// Wait before the lookup: a process that was just started must be in the map when its end is looked up.
		var info unix.Siginfo
		err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if errors.Is(err, unix.ECHILD) {
			time.Sleep(10 * time.Millisecond) // none yet
			continue
		}
		k.mu.Lock()
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil || pid == 0 {
				break
			}
			if ended := k.waiting[pid]; ended != nil {
				ended <- status
				delete(k.waiting, pid)
			}
		}
		k.mu.Unlock()
	}
}

// start starts a program. The channel has how it ended, once it has.
func (k *supervisor) start(c component) (*os.Process, <-chan unix.WaitStatus, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	process, err := os.StartProcess(c.path, append([]string{c.name}, c.args...), &os.ProcAttr{
		Env:   c.env,
		Files: append([]*os.File{nil, os.Stdout, os.Stderr}, c.files...),
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	ended := make(chan unix.WaitStatus, 1)
	k.waiting[process.Pid] = ended
	return process, ended, nil
}

// How long the pauses between starts of a component that keeps ending are, and how long it must have run for the next
// start to come at once.
const (
	firstPause = 200 * time.Millisecond
	lastPause  = 10 * time.Second
	goodRun    = time.Minute
)

// endTimeout is how long a component may take to end after SIGTERM before it is killed.
const endTimeout = 5 * time.Second

// keep runs a component, again whenever it ends, until the context does; then it stops it.
func (k *supervisor) keep(ctx context.Context, c component) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		process, ended, err := k.start(c)
		if err == nil {
			slog.Info("Started a component", "component", c.name, "pid", process.Pid)
			select {
			case status := <-ended:
				err = errors.New(describe(status))
			case <-ctx.Done():
				stop(process, ended)
				return
			}
		}
		if time.Since(began) >= goodRun {
			pause = firstPause
		}
		slog.Error("A component has ended and is started again", "component", c.name, "error", err.Error(), "pause", pause.String())
		select {
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		case <-ctx.Done():
		}
	}
}

// stop ends a process, politely first.
func stop(process *os.Process, ended <-chan unix.WaitStatus) {
	_ = process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-ended:
	case <-time.After(endTimeout):
		_ = process.Kill()
		<-ended
	}
}

func describe(status unix.WaitStatus) string {
	if status.Signaled() {
		return "killed by " + unix.SignalName(status.Signal())
	}
	return fmt.Sprintf("exit code %d", status.ExitStatus())
}
