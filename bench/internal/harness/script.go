package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Script is a shell script that starts processes, the least work that makes them run. It kills them when its input ends, even if
// this program is killed.
type Script struct {
	// Dir is its working directory, which is removed at the end.
	Dir string

	text  strings.Builder
	size  int
	cmd   *exec.Cmd
	input io.WriteCloser
}

// Printf adds commands.
func (s *Script) Printf(format string, args ...any) { fmt.Fprintf(&s.text, format+"\n", args...) }

// Process adds a process: a program that is executed in a folder with its output in a file there, after commands that end with &&.
func (s *Script) Process(before, folder string, words []string, log string) {
	s.Printf("{ %s cd %s && exec %s >%s 2>&1 </dev/null; } &\npids=\"$pids $!\"", before, Quoted(folder), Quoted(words...), log)
	s.size++
}

// Quoted returns words for a shell.
func Quoted(words ...string) string {
	var all []string
	for _, word := range words {
		all = append(all, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	return strings.Join(all, " ")
}

// Start starts the shell.
func (s *Script) Start() (err error) {
	s.Printf("echo $pids >pids\nread -r _\nkill -KILL $pids\nwait")
	if err := os.WriteFile(filepath.Join(s.Dir, "start.sh"), []byte(s.text.String()), 0o600); err != nil {
		return err
	}
	cmd := exec.Command("/bin/sh", "start.sh") // it ends with its input, whatever happens here
	cmd.Dir = s.Dir
	if s.input, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

// Go has a script go on that reads a line.
func (s *Script) Go() error {
	_, err := io.WriteString(s.input, "\n")
	return err
}

// PIDs returns all processes, once they have been started.
func (s *Script) PIDs(ctx context.Context) (pids []int, err error) {
	err = Until(ctx, PollInterval, func() error {
		text, err := os.ReadFile(filepath.Join(s.Dir, "pids"))
		words := strings.Fields(string(text))
		if err == nil && len(words) < s.size {
			err = fmt.Errorf("%d of %d processes were started", len(words), s.size)
		}
		pids = nil
		for _, word := range words {
			pid, parseErr := strconv.Atoi(word)
			pids, err = append(pids, pid), errors.Join(err, parseErr)
		}
		return err
	})
	return pids, err
}

// Stop kills all processes, waits until they are gone, and removes the working directory. It may be called at any time.
func (s *Script) Stop() error {
	if s.cmd != nil {
		_ = s.input.Close() // tells the script, which may have ended
		_ = s.cmd.Wait()    // the status of what was killed
	}
	return os.RemoveAll(s.Dir)
}
