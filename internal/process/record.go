package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	recordFile  = "record.json"
	runningFile = "running.json"
	exitFile    = "exit.json"
	defaultLog  = "output.log"

	childMarker = "KEELSON_PROCESS=" // in the environment of the child, followed by <id>:<nonce>
	shimMarker  = "KEELSON_SHIM="    // the same in the environment of the shim

	logTailBytes = 4 << 10
)

// record is the intent, durable before anything is started. It omits the environment, which may contain
// secrets.
type record struct {
	ID          string        `json:"id"`
	Nonce       string        `json:"nonce"` // distinguishes this start from earlier ones with the same ID
	Path        string        `json:"path"`
	Argv        []string      `json:"argv"`
	WorkDir     string        `json:"workDir"`
	Log         string        `json:"log"`
	LogMaxBytes int64         `json:"logMaxBytes"`
	LogKeep     int           `json:"logKeep"`
	LogCheck    time.Duration `json:"logCheckNanoseconds"`
	Created     time.Time     `json:"created"`
	BootID      string        `json:"bootID"`
	Inode       uint64        `json:"inode"` // of the folder of the record; a copy of the folder has another one
}

func (r record) marker() string     { return childMarker + r.ID + ":" + r.Nonce }
func (r record) shimMarker() string { return shimMarker + r.ID + ":" + r.Nonce }

// identity identifies a process within one boot.
type identity struct {
	PID   int    `json:"pid"`
	Start string `json:"startTime"` // Linux: clock ticks since boot; elsewhere as printed by ps
}

// running identifies the child and its shim. Files of an earlier start have another nonce and are ignored.
type running struct {
	identity
	Nonce     string    `json:"nonce"`
	Shim      identity  `json:"shim"`
	StartedAt time.Time `json:"startedAt"`
	LogFrom   int64     `json:"logFrom"` // size of the log before the first byte of this process
}

// exited describes the end of the child.
type exited struct {
	Nonce    string    `json:"nonce"`
	ExitCode int       `json:"exitCode"` // -1 if a signal ended it
	Signal   string    `json:"signal,omitempty"`
	EndedAt  time.Time `json:"endedAt"`
	LogTo    int64     `json:"logTo"` // size of the log after the last byte of this process
}

// liveness tells which processes of a record are alive.
type liveness struct {
	bootID     string
	childAlive bool
	shimAlive  bool
}

// deriveState derives the state of a record from its files and the liveness of its processes. A child that is gone without
// exit.json is Lost even while its shim is alive: the caller must first give the shim time to write it.
func deriveState(rec record, run *running, exit *exited, live liveness) State {
	if exit != nil && exit.Nonce == rec.Nonce {
		return Exited
	}
	if rec.BootID != live.bootID {
		return Lost
	}
	if live.childAlive {
		return Running
	}
	if (run == nil || run.Nonce != rec.Nonce) && live.shimAlive {
		return Starting
	}
	return Lost
}

// newStatus returns the status of a process in a known state, with the details from the files.
func newStatus(rec record, run *running, exit *exited, state State) Status {
	s := Status{ID: rec.ID, State: state}
	var from, to int64 = 0, -1
	if run != nil {
		s.PID, s.StartedAt, from = run.PID, run.StartedAt, run.LogFrom
	}
	if exit != nil {
		s.ExitCode, s.Signal, s.EndedAt, to = exit.ExitCode, exit.Signal, exit.EndedAt, exit.LogTo
	}
	if run != nil {
		s.LogTail = logTail(rec.Log, from, to)
	}
	return s
}

// readRecord returns the intent in folder. The error is fs.ErrNotExist if the folder holds none.
func readRecord(folder string) (record, error) {
	var rec record
	data, err := os.ReadFile(filepath.Join(folder, recordFile))
	if err != nil {
		return rec, err
	}
	if err := json.Unmarshal(data, &rec); err != nil {
		return rec, fmt.Errorf("read %s: %w", filepath.Join(folder, recordFile), err)
	}
	if rec.ID != filepath.Base(folder) || rec.Nonce == "" || rec.Path == "" {
		return rec, fmt.Errorf("%s is not the record of %s", filepath.Join(folder, recordFile), filepath.Base(folder))
	}
	if rec.Inode != 0 && rec.Inode != inode(folder) {
		// A copied folder counts as after a reboot: its process is not searched for. A moved folder keeps its
		// inode.
		rec.BootID = ""
	}
	return rec, nil
}

// inode returns the inode number of a folder, 0 if it is unknown.
func inode(folder string) uint64 {
	info, err := os.Stat(folder)
	if err != nil {
		return 0
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}

// readRunning returns nil if there is no running.json of this start. An unreadable file counts as missing: it is not
// fsynced, because it only matters in this boot, and the search by marker replaces it.
func readRunning(folder string, rec record) *running {
	var run running
	if !readJSON(filepath.Join(folder, runningFile), &run) || run.Nonce != rec.Nonce || run.PID <= 0 {
		return nil
	}
	return &run
}

// readExit returns nil if there is no exit.json of this start.
func readExit(folder string, rec record) *exited {
	var exit exited
	if !readJSON(filepath.Join(folder, exitFile), &exit) || exit.Nonce != rec.Nonce {
		return nil
	}
	return &exit
}

func readJSON(path string, v any) bool {
	data, err := os.ReadFile(path)
	return err == nil && json.Unmarshal(data, v) == nil
}

// logTail returns the last whole lines of the log between the offsets from and to (-1 is the end), at most
// logTailBytes. If the log was rotated since and is shorter, it returns the end of the file.
func logTail(path string, from, to int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer closeQuietly(f)
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return ""
	}
	if to < 0 || to > info.Size() {
		to = info.Size()
	}
	if from > to {
		from = 0
	}
	cut := to-from > logTailBytes
	if cut {
		from = to - logTailBytes
	}
	tail := make([]byte, to-from)
	n, err := f.ReadAt(tail, from)
	if err != nil && !errors.Is(err, io.EOF) {
		return ""
	}
	tail = tail[:n]
	if _, rest, ok := bytes.Cut(tail, []byte("\n")); cut && ok && len(rest) > 0 {
		tail = rest
	}
	return string(bytes.ToValidUTF8(tail, []byte("?")))
}

// isRecord reports whether the folder holds a record, readable or not.
func isRecord(folder string) bool {
	_, err := os.Lstat(filepath.Join(folder, recordFile))
	return !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotDir)
}
