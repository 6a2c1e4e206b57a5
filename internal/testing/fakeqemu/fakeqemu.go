// Package fakeqemu is a QEMU without a processor: the test binary poses as qemu-system, and speaks as much of QMP and of the guest agent as
// the drivers use. It starts and answers at once, so that a test can kill its owner, or it, at every step.
//
// It rejects what QEMU rejects, with the same errors: a command that does not exist, an argument that is missing, wrong or unknown, a state
// in which a command cannot run. TestContract runs the same commands against it and QEMU. It does not model what a guest does with its
// processors, disks and network: a machine with a kernel has a guest whose agent answers, any other one stays in its firmware. It does not
// lock images, and copies a disk at once.
package fakeqemu

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Program is the name under which the fake is installed and found.
const Program = "qemu-system-x86_64"

// Importing this package is enough for a test binary to pose as QEMU. Like package shim, this one comes before the packages of
// Kubernetes, so that a machine does not pay for their initialisation: nothing that depends on them may be imported here.
func init() {
	if filepath.Base(os.Args[0]) != Program {
		return
	}
	m, err := parse(os.Args[1:])
	if err == nil {
		err = m.run()
	}
	if err != nil {
		m.exit(err)
	}
}

// Install makes this test find the fake instead of QEMU, until it ends.
func Install(t testing.TB) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "bin", Program)
	self, err := os.Executable()
	if err == nil {
		err = os.MkdirAll(filepath.Dir(program), 0o755) //nolint:gosec // the users of machines run it
	}
	if err == nil {
		err = place(self, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(program)+string(os.PathListSeparator)+os.Getenv("PATH"))
}

// place makes a program for all users.
func place(from, to string) error {
	if os.Link(from, to) == nil {
		return os.Chmod(to, 0o755) //nolint:gosec // the users of machines run it
	}
	raw, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, raw, 0o755) //nolint:gosec // the users of machines run it
}

// passed is a descriptor that a command has passed; nil if none was.
type passed struct{ file *os.File }

// take returns the descriptor for a command, which owns it.
func (p *passed) take() (*os.File, error) {
	file := p.file
	if p.file = nil; file == nil {
		return nil, generic("No file descriptor supplied via SCM_RIGHTS")
	}
	return file, nil
}

// add keeps the last descriptor in control messages.
func (p *passed) add(controls []byte) {
	messages, err := unix.ParseSocketControlMessage(controls)
	if err != nil || len(messages) == 0 {
		return
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return
	}
	_ = unix.SetNonblock(fds[0], true) // a pipe; files ignore it
	p.file = os.NewFile(uintptr(fds[0]), "passed")
}

// cutLine cuts the first line from what was received.
func cutLine(received []byte) (line, rest []byte, found bool) {
	line, rest, found = bytes.Cut(received, []byte("\n"))
	if i := bytes.LastIndexByte(line, agentMark); i >= 0 {
		line = line[i+1:]
	}
	return line, rest, found && len(strings.TrimSpace(string(line))) > 0
}
