package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/keelson-dev/keelson/bench/internal/harness"
)

// template is the machine of keelson that bare ones are copied from.
type template struct {
	arguments []string // QEMU and what it was started with
	seed      []byte
	// card returns the network of the i-th machine; nil is QEMU's user network.
	card func(i int) string
	// beside is a command that runs as long as the machines do; its program is in their directory.
	beside []string
}

// The files of a bare machine, in its folder.
const (
	seedFile      = "seed.img"
	agentSocket   = "agent.sock"
	consoleSocket = "console.sock"
	pidFile       = "pids"   // in the folder above, with the processes of all machines
	besideFile    = "beside" // there, too, with the process beside them
)

// userCard is the argument of a network card on QEMU's user network.
const userCard = "user,id=net"

// learn creates a machine with this user data and takes its arguments from its process.
func (b *bench) learn(ctx context.Context, userData string) (*template, error) {
	b.Say("Starting a machine to learn the arguments of QEMU")
	ctx, cancel := context.WithTimeoutCause(ctx, waitTimeout, errTimeout)
	defer cancel()
	s := &harness.Sample{Size: 1}
	machines, err := b.create(ctx, s, userData)
	if err != nil {
		return nil, err
	}
	files, err := openFiles(machines.pids[0])
	if err != nil {
		return nil, err
	}
	arguments, err := commandLine(machines.pids[0])
	if err != nil {
		return nil, err
	}
	learned := &template{arguments: unconfined(arguments, files)}
	for _, path := range files {
		if filepath.Base(path) == seedFile {
			learned.seed, err = os.ReadFile(path)
		}
	}
	if err != nil {
		return nil, err
	}
	if learned.seed == nil {
		return nil, fmt.Errorf("QEMU has no %s open", seedFile)
	}
	return learned, b.remove(ctx, s, machines.namespace)
}

// isEmulated reports whether the CPUs of the machines are emulated.
func (t *template) isEmulated() bool {
	return slices.ContainsFunc(t.arguments, func(a string) bool { return strings.HasPrefix(a, "tcg") })
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
			argument = userCard // nobody would connect to it
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

// macOf returns the MAC address of the i-th machine.
func macOf(i int) string { return fmt.Sprintf("52:54:00:00:00:%02x", i) }

// argumentsOf returns the arguments of the i-th machine, which has a name and addresses of its own.
func (t *template) argumentsOf(i int) []string {
	arguments := slices.Clone(t.arguments)
	for at, argument := range arguments {
		switch {
		case at > 0 && arguments[at-1] == "-uuid":
			arguments[at] = fmt.Sprintf("00000000-0000-4000-8000-%012x", i)
		case at > 0 && arguments[at-1] == "-name":
			arguments[at] = fmt.Sprintf("guest=bare-%d,debug-threads=on", i)
		case argument == userCard && t.card != nil:
			arguments[at] = t.card(i)
		case strings.Contains(argument, ",mac="):
			before, _, _ := strings.Cut(argument, ",mac=")
			arguments[at] = before + ",mac=" + macOf(i)
		}
	}
	return arguments
}

// script returns a shell script that starts n machines in folders below the working directory, each with a copy of the
// seed. It kills them when its standard input ends, even if this program is killed.
func (t *template) script(n int) string {
	var text strings.Builder
	text.WriteString("pids= beside=\n")
	if len(t.beside) > 0 {
		fmt.Fprintf(&text, "PATH=\"$PWD:$PATH\"\n%s >beside.log 2>&1 </dev/null &\nbeside=$!\necho $beside >%s\n", quoted(t.beside), besideFile)
	}
	for i := range n {
		fmt.Fprintf(&text, "{ mkdir %d && cp %s %d && cd %d && exec %s >qemu.log 2>&1 </dev/null; } &\npids=\"$pids $!\"\n",
			i, seedFile, i, i, quoted(t.argumentsOf(i)))
	}
	text.WriteString("echo $pids >" + pidFile + "\nread -r _\nkill -KILL $pids $beside\nwait\n")
	return text.String()
}

// quoted returns words for a shell.
func quoted(words []string) string {
	var all []string
	for _, word := range words {
		all = append(all, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return strings.Join(all, " ")
}

// fleet are bare machines that a script has started.
type fleet struct {
	dir   string
	began time.Time // just before the script was started
	size  int

	script *exec.Cmd
	input  io.Closer // its end ends the script, and that its machines
}

// folder is that of the i-th machine.
func (f *fleet) folder(i int) string { return filepath.Join(f.dir, strconv.Itoa(i)) }

// start starts n machines in folders below a new directory, which prepare may fill first.
func (t *template) start(n int, prepare func(dir string) error) (_ *fleet, err error) {
	dir, err := os.MkdirTemp("", "keelson-bare-") // short, for the names of sockets
	if err != nil {
		return nil, err
	}
	f := &fleet{dir: dir, size: n}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.stop())
		}
	}()
	if prepare != nil {
		if err := prepare(dir); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, seedFile), t.seed, 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(dir, "start"), []byte(t.script(n)), 0o600); err != nil {
		return nil, err
	}
	script := exec.Command("/bin/sh", "start") // it ends with its input, whatever happens here
	script.Dir = dir
	input, err := script.StdinPipe()
	if err != nil {
		return nil, err
	}
	f.began = time.Now()
	if err := script.Start(); err != nil {
		return nil, err
	}
	f.script, f.input = script, input
	return f, nil
}

// stop ends the machines and removes their files.
func (f *fleet) stop() error {
	if f.script != nil {
		_ = f.input.Close() // this ends it
		_ = f.script.Wait() // by a signal that it sends to its machines
	}
	return os.RemoveAll(f.dir)
}

// burstOfBare has the script start machines and waits until their guests answer.
func (b *bench) burstOfBare(ctx context.Context, s *harness.Sample) (err error) {
	n := s.Size
	machines, err := b.template.start(n, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, machines.stop()) }()
	ready, console := make([]time.Duration, n), make([]time.Duration, n)
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		folder := machines.folder(i)
		booted, boot := context.WithCancel(ctx)
		group.Go(func() error {
			err := firstAnswer(booted, filepath.Join(folder, consoleSocket), "")
			console[i] = time.Since(machines.began)
			if booted.Err() != nil && ctx.Err() == nil {
				return nil // the line was lost, but a guest whose agent answers has a user space
			}
			return explain("the console", err, folder)
		})
		group.Go(func() error {
			defer boot()
			err := firstAnswer(ctx, filepath.Join(folder, agentSocket), `{"execute":"guest-ping"}`+"\n")
			ready[i] = time.Since(machines.began)
			return explain("the agent", err, folder)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.SetTimes("ready", ready...)
	s.SetTimes("user space", console...)
	pids, err := readPIDs(filepath.Join(machines.dir, pidFile))
	if err != nil {
		return err
	}
	return setMachines(s, pids)
}

func readPIDs(path string) (pids []int, err error) {
	text, err := os.ReadFile(path)
	for word := range strings.FieldsSeq(string(text)) {
		pid, parseErr := strconv.Atoi(word)
		pids, err = append(pids, pid), errors.Join(err, parseErr)
	}
	return pids, err
}

// askAgain is when an unanswered request is repeated: one that comes before the guest has opened its end may be lost.
const askAgain = time.Second

// firstAnswer waits for a socket, writes a request until it is answered, if there is one, and waits for the first byte.
func firstAnswer(ctx context.Context, socket, request string) error {
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
		if _, err := io.WriteString(conn, request); err != nil {
			return err
		}
		if request != "" {
			if err := conn.SetReadDeadline(time.Now().Add(askAgain)); err != nil {
				return err
			}
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

// explain adds to an error which part of which machine did not answer, and the output of its QEMU.
func explain(who string, err error, folder string) error {
	if err == nil {
		return nil
	}
	log, _ := os.ReadFile(filepath.Join(folder, "qemu.log")) // there may be none
	return fmt.Errorf("%s of machine %s: %w; QEMU says %q", who, filepath.Base(folder), err, log)
}
