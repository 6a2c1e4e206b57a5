package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

const (
	shimName = "keelson-shim"

	requestFD = 3
	replyFD   = 4

	// exitReserve is what exit.json may need; that much is set aside before the child starts.
	exitReserve = 4 << 10
)

// shimEnv is the whole environment of a shim. One processor and an eager garbage collector keep it small: there is one
// shim for each machine and component. Tests add to it.
var shimEnv = func(rec record) []string {
	return []string{rec.shimMarker(), "GOMAXPROCS=1", "GOGC=10"}
}

// Shim does nothing and returns at once, unless this program was started as the shim of a process. Then it does the
// shim's work and ends the program. It must run before anything else: package shim does that.
func Shim() {
	if len(os.Args) == 0 || os.Args[0] != shimName {
		return
	}
	if len(os.Args) != 2 || os.Getenv(strings.TrimSuffix(shimMarker, "=")) == "" {
		fmt.Fprintln(os.Stderr, "keelson-shim is started by keelson, not by hand")
		os.Exit(2)
	}
	// Not os.Exit: that would run the hooks of packages that were never initialised, and under the race detector it
	// takes a second.
	syscall.Exit(runShim(os.Args[1]))
}

// runShim returns the exit code of the shim, which nobody looks at.
func runShim(folder string) int {
	// Caught, not ignored: ignored signals would stay ignored in the child.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	syscall.CloseOnExec(requestFD)
	syscall.CloseOnExec(replyFD)
	closeInherited(replyFD + 1)
	_ = os.Chdir("/") // keep no file system busy
	setName(shimName)
	step("shim: begun")

	replies := os.NewFile(replyFD, "replies")
	rec, child, err := startChild(folder)
	if err != nil {
		sendReply(replies, reply{Error: err.Error(), Errno: errnoOf(err)})
		return 1
	}
	sendReply(replies, reply{Running: child.run})
	step("shim: replied")

	rec.Argv = nil
	debug.FreeOSMemory()
	go rotateLog(child.log, rec)
	state, err := child.process.Wait()
	step("shim: child ended")
	if err != nil {
		return 1
	}
	return noteExit(folder, rec, child.log, state)
}

// started is the child as its shim knows it.
type started struct {
	process *os.Process
	run     *running
	log     *os.File
}

// startChild starts the child and records it. At an error nothing runs.
func startChild(folder string) (record, *started, error) {
	requests := os.NewFile(requestFD, "requests")
	var req request
	if err := json.NewDecoder(requests).Decode(&req); err != nil {
		return record{}, nil, fmt.Errorf("read request: %w", err)
	}
	_ = requests.Close() // all was read
	step("shim: request read")
	rec, err := readRecord(folder)
	if err != nil {
		return rec, nil, err
	}
	if os.Getenv(strings.TrimSuffix(shimMarker, "=")) != rec.ID+":"+rec.Nonce {
		return rec, nil, errors.New("the record was replaced meanwhile")
	}
	log, err := os.OpenFile(rec.Log, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return rec, nil, err
	}
	info, err := log.Stat()
	if err != nil {
		return rec, nil, err
	}
	if err := writeTemp(filepath.Join(folder, exitFile+".tmp"), make([]byte, exitReserve), true); err != nil {
		return rec, nil, fmt.Errorf("set aside space for the exit status: %w", err)
	}
	step("shim: space reserved")
	null, err := os.Open(os.DevNull)
	if err != nil {
		return rec, nil, err
	}
	defer null.Close()
	run := &running{Nonce: rec.Nonce, StartedAt: time.Now(), LogFrom: info.Size()}
	process, err := os.StartProcess(rec.Path, rec.Argv, &os.ProcAttr{
		Dir:   rec.WorkDir,
		Env:   req.Env,
		Files: []*os.File{null, log, log},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return rec, nil, err
	}
	step("shim: child started")
	if err := noteRunning(folder, run, process.Pid); err != nil {
		_ = process.Kill()
		_, _ = process.Wait()
		return rec, nil, fmt.Errorf("the process was ended because it could not be recorded: %w", err)
	}
	step("shim: running written")
	return rec, &started{process: process, run: run, log: log}, nil
}

// noteRunning writes running.json. It is not fsynced: after a power cut there is nothing to find.
func noteRunning(folder string, run *running, pid int) error {
	var err error
	if run.identity, err = identify(pid); err != nil {
		return err
	}
	if run.Shim, err = identify(os.Getpid()); err != nil {
		return err
	}
	return writeFile(filepath.Join(folder, runningFile), run, false)
}

// noteExit writes exit.json into the space that was set aside for it.
func noteExit(folder string, rec record, log *os.File, state *os.ProcessState) int {
	exit := exited{Nonce: rec.Nonce, ExitCode: state.ExitCode(), EndedAt: time.Now()}
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = signalName(status.Signal())
	}
	if info, err := log.Stat(); err == nil {
		exit.LogTo = info.Size()
	}
	// A write can fail where space cannot be set aside (copy on write); somebody may make room.
	for range 30 {
		err := writeFile(filepath.Join(folder, exitFile), exit, true)
		if err == nil {
			step("shim: exit written")
			return 0
		}
		if errors.Is(err, os.ErrNotExist) {
			return 1 // the record was removed
		}
		time.Sleep(time.Second)
	}
	return 1
}

// sendReply ends the conversation. A manager that is gone does not get it and finds running.json later.
func sendReply(replies *os.File, answer reply) {
	_ = json.NewEncoder(replies).Encode(answer)
	_ = replies.Close()
}

func errnoOf(err error) syscall.Errno {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return 0
}

// closeInherited closes what the manager got from its own parent and nobody meant to pass on: the jobserver of a
// make, the lock of a shell script. Files of our own are marked close-on-exec by the Go runtime and stay.
func closeInherited(from int) {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd := 0
		if _, err := fmt.Sscan(entry.Name(), &fd); err != nil || fd < from {
			continue
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			_ = syscall.Close(fd)
		}
	}
}
