package transcript

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Running is a command in the background.
type Running struct {
	words []string
	cmd   *exec.Cmd
	ended chan struct{} // closed after its end, when all output was read

	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed and replaced when there is more output, or the end
}

// Start starts a command. Text has its standard output and standard error. If it is still running
// at the end of the test, it is killed.
func (s Shell) Start(t testing.TB, words ...string) *Running {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.Command(context.WithoutCancel(t.Context()), t, words...)
	cmd.Stdout, cmd.Stderr = w, w
	return start(t, cmd, words, w, r)
}

// start starts a command that writes to w; its output is read from r.
func start(t testing.TB, cmd *exec.Cmd, words []string, w, r *os.File) *Running {
	t.Helper()
	running := &Running{words: words, cmd: cmd, ended: make(chan struct{}), more: make(chan struct{})}
	err := cmd.Start()
	_ = w.Close() // the command has its own copy
	if err != nil {
		t.Fatalf("$ %s &: %v", line(words), err)
	}
	t.Logf("$ %s & (pid %d)", line(words), cmd.Process.Pid)
	go func() {
		running.read(r)
		_ = cmd.Wait() // ProcessState has the result
		close(running.ended)
		running.wake("")
	}()
	t.Cleanup(func() {
		select {
		case <-running.ended:
		default:
			_ = cmd.Process.Kill()
			<-running.ended
		}
		t.Logf("$ %s & has written:\n%s", line(words), running.Text())
	})
	return running
}

// read collects the output of the command until its end. A terminal reports its end as an error.
func (r *Running) read(from *os.File) {
	defer from.Close()
	reader := bufio.NewReader(from)
	chunk := make([]byte, 4096)
	for {
		n, err := reader.Read(chunk)
		r.wake(string(chunk[:n]))
		if err != nil {
			return
		}
	}
}

func (r *Running) wake(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.WriteString(text)
	close(r.more)
	r.more = make(chan struct{})
}

// PID returns the process ID.
func (r *Running) PID() int { return r.cmd.Process.Pid }

// Text returns the output of the command so far.
func (r *Running) Text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// Await waits for a text in the output.
func (r *Running) Await(t testing.TB, part string) {
	t.Helper()
	timeout := time.After(WaitTimeout)
	for {
		r.mu.Lock()
		found, more := strings.Contains(r.text.String(), part), r.more
		r.mu.Unlock()
		if found {
			return
		}
		select {
		case <-r.ended:
			if !strings.Contains(r.Text(), part) {
				t.Fatalf("$ %s & has ended (%s) without %q:\n%s", line(r.words), r.cmd.ProcessState, part, r.Text())
			}
		case <-more:
		case <-timeout:
			t.Fatalf("$ %s & has not written %q within %s, but:\n%s", line(r.words), part, WaitTimeout, r.Text())
		}
	}
}

// Signal sends a signal to the command.
func (r *Running) Signal(t testing.TB, signal os.Signal) {
	t.Helper()
	t.Logf("$ kill -%s %d", signal, r.PID())
	if err := r.cmd.Process.Signal(signal); err != nil {
		t.Fatalf("Send %s to %s: %v", signal, line(r.words), err)
	}
}

// Wait waits for the end of the command and returns its result, with all output in Stdout.
func (r *Running) Wait(t testing.TB) Result {
	t.Helper()
	select {
	case <-r.ended:
		return Result{Stdout: r.Text(), Code: r.cmd.ProcessState.ExitCode()}
	case <-time.After(WaitTimeout):
		t.Fatalf("$ %s & has not ended within %s:\n%s", line(r.words), WaitTimeout, r.Text())
		return Result{}
	}
}

// Banner returns the first bytes that a server sends.
func Banner(t testing.TB, address string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // it was only read
	if err := conn.SetDeadline(time.Now().Add(WaitTimeout)); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, 64)
	n, err := conn.Read(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}
