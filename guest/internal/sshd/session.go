package sshd

import (
	"errors"
	"io"
	"os/exec"
	"syscall"

	"github.com/creack/pty"
	"github.com/gliderlabs/ssh"
)

// runPlain runs a program on three pipes.
func (s *Server) runPlain(session ssh.Session, cmd *exec.Cmd) error {
	cmd.Stdout, cmd.Stderr = session, session.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// Not cmd.Stdin: the program may end long before its input does.
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	wait, err := s.config.Start(cmd)
	if err != nil {
		return err
	}
	go func() {
		defer func() { _ = input.Close() }()
		_, _ = io.Copy(input, session) // the end of either side ends it
	}()
	defer hangUp(cmd, session.Context().Done(), nil)()
	if err := wait(); !errors.Is(err, syscall.EPIPE) {
		return err
	}
	return nil // it has succeeded, although the client did not take all of its output
}

// runOnTerminal runs a program on a terminal of its own.
func (s *Server) runOnTerminal(session ssh.Session, cmd *exec.Cmd) error {
	wanted, resized, _ := session.Pty()
	master, slave, err := pty.Open()
	if err != nil {
		return err
	}
	defer master.Close()
	cmd.Env = append(cmd.Env, "TERM="+wanted.Term)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	resize(master, wanted.Window)
	wait, err := s.config.Start(cmd)
	slave.Close()
	if err != nil {
		return err
	}
	go func() {
		for window := range resized {
			resize(master, window)
		}
	}()
	go func() { _, _ = io.Copy(master, session) }() // ends with the session
	printed, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(printed)
		_, err := io.Copy(session, master) // ends when nobody has the terminal any more
		if errors.Is(err, syscall.EPIPE) {
			close(gone)
		}
	}()
	defer hangUp(cmd, session.Context().Done(), gone)()
	err = wait()
	select {
	case <-printed:
	case <-session.Context().Done():
	}
	return err
}

// hangUp ends the program when the client goes away first, which closes one of the channels. What it returns says that the
// program has ended.
func hangUp(cmd *exec.Cmd, left <-chan struct{}, gone <-chan struct{}) (ended func()) {
	done := make(chan struct{})
	go func() {
		select {
		case <-done:
			return
		case <-left:
		case <-gone:
		}
		// The program leads a session, and so a group, of its own.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP)
	}()
	return func() { close(done) }
}
