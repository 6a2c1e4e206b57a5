package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// template is the machine of keelson that bare ones are copied from.
type template struct {
	arguments []string // QEMU and what it was started with
	seed      []byte
}

// seedFile is a file in the folder of a bare machine.
const seedFile = "seed.img"

// newTemplate takes the template from the process of a machine.
func newTemplate(pid int) (*template, error) {
	files, err := openFiles(pid)
	if err != nil {
		return nil, err
	}
	arguments, err := harness.CommandLine(pid)
	if err != nil {
		return nil, err
	}
	t := &template{arguments: unconfined(arguments, files)}
	for _, path := range files {
		if filepath.Base(path) == seedFile {
			t.seed, err = os.ReadFile(path)
		}
	}
	if err == nil && t.seed == nil {
		err = fmt.Errorf("QEMU has no %s open", seedFile)
	}
	return t, err
}

// openFiles returns the names of the files that a process has open, by their descriptors.
func openFiles(pid int) (map[string]string, error) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for _, entry := range entries {
		path, err := os.Readlink(filepath.Join(dir, entry.Name()))
		if err == nil && filepath.IsAbs(path) { // else it was closed just now, or is no file
			files[entry.Name()] = path
		}
	}
	return files, nil
}

var (
	socketHandle = regexp.MustCompile(`^socket,id=(\w+),fd=\d+,`)
	fileHandle   = regexp.MustCompile(`/proc/self/fd/\d+`)
	fileSet      = regexp.MustCompile(`/dev/fdset/\d+`)
)

// unconfined returns the arguments of a QEMU that opens files by name which keelson's gets as descriptors: the kernel where
// it is, the seed and the log of the console in its working directory. Its network is QEMU's own. QEMU renumbers the descriptors of those two.
func unconfined(arguments []string, files map[string]string) []string {
	var all []string
	for at, argument := range arguments {
		if argument == "-add-fd" || at > 0 && arguments[at-1] == "-add-fd" {
			continue
		}
		if strings.HasPrefix(argument, "stream,id=net,") {
			argument = "user,id=net" // nobody would connect to it
		}
		name := seedFile
		if socketHandle.MatchString(argument) {
			argument, name = socketHandle.ReplaceAllString(argument, "socket,id=$1,path=$1.sock,"), "serial.log"
		}
		argument = fileSet.ReplaceAllString(argument, name)
		all = append(all, fileHandle.ReplaceAllStringFunc(argument, func(handle string) string { return files[filepath.Base(handle)] }))
	}
	return all
}

// argumentsOf returns the arguments of the i-th machine, which has a name and addresses of its own.
func (t *template) argumentsOf(i int) []string {
	arguments := slices.Clone(t.arguments)
	for at, argument := range arguments {
		switch {
		case at > 0 && arguments[at-1] == "-uuid":
			arguments[at] = fmt.Sprintf("00000000-0000-4000-8000-%012x", i)
		case at > 0 && arguments[at-1] == "-name":
			arguments[at] = fmt.Sprintf("guest=bare-%d,debug-threads=on", i)
		case strings.Contains(argument, ",mac="):
			before, _, _ := strings.Cut(argument, ",mac=")
			arguments[at] = before + fmt.Sprintf(",mac=52:54:00:00:00:%02x", i)
		}
	}
	return arguments
}

// script returns a shell script that starts n machines in folders of their own, each with a copy of the seed.
func (t *template) script(dir string, n int) *harness.Script {
	script := &harness.Script{Dir: dir}
	for i := range n {
		folder := strconv.Itoa(i)
		script.Process("mkdir "+folder+" && cp "+seedFile+" "+folder+" &&", folder, t.argumentsOf(i), "qemu.log")
	}
	return script
}

// burstOfBare has a script start machines and waits until their guests answer.
func (b *bench) burstOfBare(ctx context.Context, s *harness.Sample) (err error) {
	dir, err := os.MkdirTemp("", "keelson-bare-") // short, for the names of sockets
	if err != nil {
		return err
	}
	script := b.template.script(dir, s.Size)
	defer func() { err = errors.Join(err, script.Stop()) }()
	if err := os.WriteFile(filepath.Join(dir, seedFile), b.template.seed, 0o600); err != nil {
		return err
	}
	began := time.Now()
	if err := script.Start(); err != nil {
		return err
	}
	err = s.AtOnce(ctx, "ready", began, func(ctx context.Context, i int) error {
		folder := filepath.Join(dir, strconv.Itoa(i))
		err := awaitAgent(ctx, filepath.Join(folder, "agent.sock"))
		if err != nil {
			log, _ := os.ReadFile(filepath.Join(folder, "qemu.log")) // there may be none
			err = fmt.Errorf("the agent of machine %d: %w; QEMU says %q", i, err, log)
		}
		return err
	})
	if err != nil {
		return err
	}
	pids, err := script.PIDs(ctx)
	if err != nil {
		return err
	}
	return setMemory(s, pids)
}

// askAgain is when an unanswered request is repeated: one that comes before the guest has opened its end may be lost.
const askAgain = time.Second

// awaitAgent waits for a socket, and asks the agent in the guest until it answers.
func awaitAgent(ctx context.Context, socket string) error {
	var conn net.Conn
	err := harness.Until(ctx, 2*time.Millisecond, func() (err error) {
		conn, err = net.Dial("unix", socket)
		return err
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }() // nothing more is wanted
	for {
		if _, err := io.WriteString(conn, `{"execute":"guest-ping"}`+"\n"); err != nil {
			return err
		}
		if err := conn.SetReadDeadline(time.Now().Add(askAgain)); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
}
