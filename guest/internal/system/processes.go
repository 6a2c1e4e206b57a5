package system

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Processes starts programs and buries the orphans that the first process of a system
// inherits. A child of Start belongs to its caller alone, who waits for it.
type Processes struct {
	mu  sync.Mutex
	own map[int]bool
}

// NewProcesses returns one without children.
func NewProcesses() *Processes {
	return &Processes{own: map[int]bool{}}
}

// Run starts a program and waits until it ends.
func (p *Processes) Run(cmd *exec.Cmd) error {
	wait, err := p.Start(cmd)
	if err != nil {
		return err
	}
	return wait()
}

// Start starts a program. The caller has to call wait, once; it returns what
// exec.Cmd.Wait does.
func (p *Processes) Start(cmd *exec.Cmd) (wait func() error, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	pid := cmd.Process.Pid
	p.own[pid] = true
	return func() error {
		err := cmd.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.own, pid)
		return err
	}, nil
}

// Reap buries orphans until ctx ends.
func (p *Processes) Reap(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			p.bury("/proc")
		}
	}
}

// bury waits for the dead children that nobody else waits for.
func (p *Processes) bury(proc string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, found := range list(proc) {
		if found.state == 'Z' && found.parent == os.Getpid() && !p.own[found.pid] {
			// An error means that it is buried already.
			_, _ = unix.Wait4(found.pid, nil, unix.WNOHANG, nil)
		}
	}
}

type process struct {
	pid, parent int
	state       byte
	// kernel tells a thread of the kernel, which nobody can stop.
	kernel bool
}

// list reads the processes that there are; one that ends meanwhile is left out.
func list(proc string) []process {
	files, _ := filepath.Glob(filepath.Join(proc, "[0-9]*", "stat")) // the pattern is ours, so it is not malformed
	var all []process
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if found, err := parseStat(string(content)); err == nil {
			all = append(all, found)
		}
	}
	return all
}

// parseStat reads /proc/PID/stat, see proc_pid_stat(5). The name is in parentheses
// and may have any character, so what follows counts from the last parenthesis.
func parseStat(line string) (process, error) {
	const parent, flags, kernelThread = 1, 6, 0x00200000
	pid, _, _ := strings.Cut(line, " ")
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) <= flags {
		return process{}, fmt.Errorf("too few fields in %q", line)
	}
	var found process
	var err error
	if found.pid, err = strconv.Atoi(pid); err != nil {
		return process{}, err
	}
	if found.parent, err = strconv.Atoi(fields[parent]); err != nil {
		return process{}, err
	}
	bits, err := strconv.ParseUint(fields[flags], 10, 64)
	found.kernel = bits&kernelThread != 0
	found.state = fields[0][0]
	return found, err
}

// StopAll asks every process but the first and the kernel's own to end, and kills
// those that are still there after grace.
func (p *Processes) StopAll(grace time.Duration) {
	deadline := time.Now().Add(grace)
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGCONT, unix.SIGHUP} {
		p.signalAll(signal)
	}
	for time.Now().Before(deadline) {
		if p.signalAll(0) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	p.signalAll(unix.SIGKILL)
}

// signalAll returns how many processes there were to signal.
func (p *Processes) signalAll(signal unix.Signal) int {
	alive := 0
	for _, found := range list("/proc") {
		if found.pid == os.Getpid() || found.kernel || found.state == 'Z' {
			continue
		}
		if unix.Kill(found.pid, signal) == nil {
			alive++
		}
	}
	return alive
}
