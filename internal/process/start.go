package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/keelson-dev/keelson/internal/atomicfile"
	"github.com/keelson-dev/keelson/internal/self"
)

const (
	// startTimeout limits the time from the start of the shim until it reports the start of the child.
	startTimeout = 30 * time.Second

	defaultLogMaxBytes = 10 << 20
	defaultLogKeep     = 2
)

// logCheckInterval is the interval at which the shim checks the size of the log. Tests shorten it.
var logCheckInterval = 10 * time.Second

// request is sent from the manager to the shim through a pipe. A shim that does not receive all of it starts
// nothing.
type request struct {
	Env []byte `json:"env"` // separated by zero bytes; JSON strings would change what is not UTF-8
}

// reply is the response of the shim: the child runs and running.json is written, or that failed and nothing
// runs.
type reply struct {
	Running *running      `json:"running,omitempty"`
	Error   string        `json:"error,omitempty"`
	Errno   syscall.Errno `json:"errno,omitempty"`
}

// startError is the error of a shim: its text, and the error number for errors.Is.
type startError struct {
	text  string
	errno syscall.Errno
}

func (e *startError) Error() string { return e.text }

func (e *startError) Unwrap() error {
	if e.errno == 0 {
		return nil
	}
	return e.errno
}

// Start starts a process and returns when it runs and is recorded. The intent is durable before anything starts, so
// that after a crash at any point a later Open finds the process or knows that there is none. A record of that ID
// whose process has ended is replaced; its log is kept and appended to. The error is ErrExists if the process is
// alive. After an error, nothing of this start is running.
func (d *Dir) Start(spec Spec) (*Process, error) {
	previous, err := d.reserve(spec.ID)
	if err != nil {
		return nil, fmt.Errorf("start process %s: %w", spec.ID, err)
	}
	defer d.unreserve(spec.ID)
	p, err := d.start(spec, previous)
	if err != nil {
		return nil, fmt.Errorf("start process %s: %w", spec.ID, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		p.release()
		return nil, fmt.Errorf("start process %s: it runs, but is not watched: %w", spec.ID, ErrClosed)
	}
	d.processes[spec.ID] = p
	return p, nil
}

func (d *Dir) start(spec Spec, previous *Process) (*Process, error) {
	if !shimReady.Load() {
		return nil, errors.New("this program cannot be its own shim: import internal/process/shim, or call process.Shim first in main or TestMain")
	}
	folder := filepath.Join(d.path, spec.ID)
	rec, err := newRecord(spec, folder)
	if err != nil {
		return nil, err
	}
	if previous != nil {
		previous.endShim()
		previous.release()
	}
	step("start: begun")
	if err := d.writeIntent(folder, &rec); err != nil {
		return nil, err
	}
	env := spec.Env
	if env == nil {
		env = os.Environ()
	}
	run, err := launch(folder, rec, env)
	if err != nil {
		d.mu.Lock()
		delete(d.processes, spec.ID)
		d.mu.Unlock()
		removeRecord(folder)
		return nil, err
	}
	step("start: confirmed")
	return d.attach(folder, rec, run), nil
}

// newRecord checks the spec and fills in its defaults.
func newRecord(spec Spec, folder string) (record, error) {
	path, err := exec.LookPath(spec.Path)
	if err != nil {
		return record{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return record{}, err
	}
	rec := record{
		ID:          spec.ID,
		Nonce:       fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64()), // no secret; crypto/rand is heavy for a shim
		Path:        path,
		Argv:        append([]string{spec.Argv0}, spec.Args...),
		WorkDir:     spec.WorkDir,
		Log:         spec.Log,
		LogMaxBytes: spec.LogMaxBytes,
		LogKeep:     spec.LogKeep,
		LogCheck:    logCheckInterval,
		Created:     time.Now(),
		BootID:      bootID(),
	}
	if spec.Argv0 == "" {
		rec.Argv[0] = spec.Path
	}
	if rec.Log == "" {
		rec.Log = filepath.Join(folder, defaultLog)
	}
	if rec.LogMaxBytes <= 0 {
		rec.LogMaxBytes = defaultLogMaxBytes
	}
	if rec.LogKeep <= 0 {
		rec.LogKeep = defaultLogKeep
	}
	if rec.Log, err = filepath.Abs(rec.Log); err != nil {
		return record{}, err
	}
	if rec.WorkDir, err = filepath.Abs(rec.WorkDir); err != nil {
		return record{}, err
	}
	for _, text := range append([]string{rec.Path, rec.WorkDir, rec.Log}, rec.Argv...) {
		if !utf8.ValidString(text) {
			return record{}, fmt.Errorf("%q cannot be recorded: it is not UTF-8", text)
		}
	}
	return rec, nil
}

// writeIntent makes the record durable. It replaces an earlier one atomically, whose files are then ignored
// because of their nonce.
func (d *Dir) writeIntent(folder string, rec *record) error {
	if err := os.Mkdir(folder, 0o700); err == nil {
		if err := atomicfile.SyncDir(d.path); err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	rec.Inode = inode(folder)
	step("start: folder made")
	if err := os.MkdirAll(filepath.Dir(rec.Log), 0o700); err != nil {
		return err
	}
	if err := atomicfile.WriteJSON(filepath.Join(folder, recordFile), rec, atomicfile.Durable); err != nil {
		return err
	}
	step("start: intent written")
	for _, name := range []string{runningFile, exitFile, exitFile + atomicfile.Suffix} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	step("start: leftovers removed")
	return nil
}

// launch runs the shim, hands it the request and waits for its reply.
func launch(folder string, rec record, env []string) (*running, error) {
	shim, requests, replies, err := startShim(folder, rec)
	if err != nil {
		return nil, err
	}
	defer func() { _ = shim.Release() }() // the zombie is reaped through the handle
	defer closeQuietly(replies)
	step("start: shim started")
	sendErr := sendRequest(requests, childEnv(env, rec))
	step("start: request sent")
	answer, readErr := readReply(replies)
	step("start: reply read")
	switch {
	case readErr == nil && answer.Running != nil:
		return answer.Running, nil
	case readErr == nil:
		_, _ = shim.Wait() // it ends after this reply
		return nil, &startError{text: answer.Error, errno: answer.Errno}
	}
	// The shim was killed or hangs. End it, and adopt the child if it runs.
	_ = shim.Kill()
	_, _ = shim.Wait()
	if run := locate(folder, rec, time.Second); run != nil {
		return run, nil
	}
	return nil, fmt.Errorf("the shim ended before it could start the process: %w", errors.Join(sendErr, readErr))
}

// startShim starts this program again as the shim of one record.
func startShim(folder string, rec record) (shim *os.Process, requests, replies *os.File, err error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, nil, err
	}
	defer closeQuietly(null)
	requestRead, requestWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer closeQuietly(requestRead)
	replyRead, replyWrite, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, errors.Join(err, requestWrite.Close())
	}
	defer closeQuietly(replyWrite)
	shim, err = os.StartProcess(self.Path, []string{shimName, folder}, &os.ProcAttr{
		Env:   shimEnv(rec),
		Files: []*os.File{null, null, null, requestRead, replyWrite},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, nil, nil, errors.Join(err, requestWrite.Close(), replyRead.Close())
	}
	return shim, requestWrite, replyRead, nil
}

// sendRequest gives up on a shim that does not read.
func sendRequest(requests *os.File, env []string) error {
	err := requests.SetWriteDeadline(time.Now().Add(startTimeout))
	if err == nil {
		err = json.NewEncoder(requests).Encode(request{Env: []byte(strings.Join(env, "\x00"))})
	}
	return errors.Join(err, requests.Close())
}

// readReply returns io.ErrUnexpectedEOF or io.EOF if the shim died, os.ErrDeadlineExceeded if it hangs.
func readReply(replies *os.File) (reply, error) {
	var answer reply
	if err := replies.SetReadDeadline(time.Now().Add(startTimeout)); err != nil {
		return answer, err
	}
	data, err := io.ReadAll(replies)
	if err != nil {
		return answer, err
	}
	if len(data) == 0 {
		return answer, io.ErrUnexpectedEOF
	}
	return answer, json.Unmarshal(data, &answer)
}

// childEnv puts the marker in front and drops the markers of a process that we may be ourselves.
func childEnv(env []string, rec record) []string {
	marked := []string{rec.marker()}
	for _, entry := range env {
		if !strings.HasPrefix(entry, childMarker) && !strings.HasPrefix(entry, shimMarker) {
			marked = append(marked, entry)
		}
	}
	return marked
}
