package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/keelson-dev/keelson/internal/atomicfile"
)

const (
	shimName = "keelson-shim"

	requestFD = 3
	replyFD   = 4

	// exitReserve is the space for exit.json that is reserved before the child starts.
	exitReserve = 4 << 10
)

// shimEnv is the whole environment of a shim. Each machine and component has one, so it is kept small: a single
// processor and no garbage collector, whose structures would be a fifth of its memory, although it hardly allocates
// once its child runs. The memory limit is a safety net. Tests add to it.
var shimEnv = func(rec record) []string {
	return []string{rec.shimMarker(), "GOMAXPROCS=1", "GOGC=off", "GOMEMLIMIT=16MiB"}
}

// shimReady is set when Shim was called in a process that is not a shim. Without that call, the program started as a
// shim would run as a second copy of itself, which would start a third.
var shimReady atomic.Bool

// Shim does nothing and returns at once, unless this program was started as the shim of a process. Then it does the
// shim's work and ends the program. It must run before anything else: package shim does that.
func Shim() {
	if len(os.Args) == 0 || os.Args[0] != shimName {
		shimReady.Store(true)
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

// runShim returns the exit code of the shim, which is not used.
func runShim(folder string) int {
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

	go rotateLog(child.log, rec)
	status, err := waitChild(child.run.PID)
	step("shim: child ended")
	if err != nil {
		return 1
	}
	return recordExit(folder, rec, child.log, status)
}

// started is the child as its shim knows it.
type started struct {
	run *running
	log *os.File
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
	if err := atomicfile.Reserve(filepath.Join(folder, exitFile), exitReserve); err != nil {
		return rec, nil, fmt.Errorf("set aside space for the exit status: %w", err)
	}
	step("shim: space reserved")
	null, err := os.Open(os.DevNull)
	if err != nil {
		return rec, nil, err
	}
	defer closeQuietly(null)
	run := &running{Nonce: rec.Nonce, StartedAt: time.Now(), LogFrom: info.Size()}
	pid, err := syscall.ForkExec(rec.Path, rec.Argv, &syscall.ProcAttr{
		Dir:   rec.WorkDir,
		Env:   strings.Split(string(req.Env), "\x00"),
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return rec, nil, fmt.Errorf("execute %s: %w", rec.Path, err)
	}
	// Not before the child started: it would inherit this.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	step("shim: child started")
	if err := recordRunning(folder, run, pid); err != nil {
		_ = syscall.Kill(pid, killSignal) // not reaped yet, so the pid is still the child's
		_, _ = waitChild(pid)
		return rec, nil, fmt.Errorf("the process was ended because it could not be recorded: %w", err)
	}
	step("shim: running written")
	return rec, &started{run: run, log: log}, nil
}

// recordRunning writes running.json. It is not fsynced: after a power cut there is nothing to find.
func recordRunning(folder string, run *running, pid int) error {
	var err error
	if run.identity, err = identify(pid); err != nil {
		return err
	}
	if run.Shim, err = identify(os.Getpid()); err != nil {
		return err
	}
	return atomicfile.WriteJSON(filepath.Join(folder, runningFile), run, atomicfile.Volatile)
}

// waitChild waits for the end of the child. It and the start go around os.Process, which costs memory that a shim
// does not need to spend.
func waitChild(pid int) (syscall.WaitStatus, error) {
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(pid, &status, 0, nil)
		if !errors.Is(err, syscall.EINTR) {
			return status, err
		}
	}
}

// recordExit writes exit.json into the space reserved for it.
func recordExit(folder string, rec record, log *os.File, status syscall.WaitStatus) int {
	exit := exited{Nonce: rec.Nonce, ExitCode: status.ExitStatus(), EndedAt: time.Now()}
	if status.Signaled() {
		exit.Signal = signalName(status.Signal())
	}
	if info, err := log.Stat(); err == nil {
		exit.LogTo = info.Size()
	}
	// A write can fail where space cannot be set aside (copy on write); the disk may get free space.
	for range 300 {
		err := atomicfile.WriteJSON(filepath.Join(folder, exitFile), exit, atomicfile.Durable)
		if err == nil {
			step("shim: exit written")
			return 0
		}
		if errors.Is(err, os.ErrNotExist) {
			return 1 // the record was removed
		}
		time.Sleep(100 * time.Millisecond)
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

// closeInherited closes files that the manager inherited by accident from its own parent: the jobserver of a make, the
// lock of a shell script. Files of our own are marked close-on-exec by the Go runtime and stay.
func closeInherited(from int) {
	entries, err := os.ReadDir("/dev/fd")
	if err != nil {
		return
	}
	for _, entry := range entries {
		fd, err := strconv.Atoi(entry.Name())
		if err != nil || fd < from {
			continue
		}
		flags, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0)
		if errno == 0 && flags&syscall.FD_CLOEXEC == 0 {
			_ = syscall.Close(fd)
		}
	}
}
