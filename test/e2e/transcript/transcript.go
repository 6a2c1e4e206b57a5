// Package transcript runs the commands of a user: bin/keelson and bin/kubectl. It logs each command
// with its output, so that the log of a test reads as a session in a terminal.
package transcript

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/internal/testing/await"
	"github.com/keelson-dev/keelson/internal/testing/env"
)

// TimeoutVariable is the environment variable for WaitTimeout, for slow machines.
const TimeoutVariable = "KEELSON_TEST_TIMEOUT"

// WaitTimeout is the timeout of a command and of Until. It is generous, because the machine may be
// busy with other tests.
var WaitTimeout = waitTimeout(os.Getenv(TimeoutVariable))

func waitTimeout(value string) time.Duration {
	if value == "" {
		return 3 * time.Minute
	}
	d, err := time.ParseDuration(value)
	if err != nil {
		panic(TimeoutVariable + ": " + err.Error())
	}
	return d
}

// Shell is an environment to run commands in.
type Shell struct {
	// Env replaces the environment of the tests. PATH is added.
	Env map[string]string
	// Stdin, if set, is the standard input of a command.
	Stdin string
}

// Result is the result of a command.
type Result struct {
	Stdout, Stderr string
	// Code is the exit code; -1 if a signal ended it.
	Code int
}

// Command prepares a command that does not fit Run and Start. The programs keelson and kubectl are
// those in bin/.
func (s Shell) Command(ctx context.Context, t testing.TB, words ...string) *exec.Cmd {
	t.Helper()
	path, err := env.Binary(words[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, path, words[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		cmd.Env = append(cmd.Env, name+"="+s.Env[name])
	}
	if s.Stdin != "" {
		cmd.Stdin = strings.NewReader(s.Stdin)
	}
	return cmd
}

// Run runs a command, whatever its result.
func (s Shell) Run(t testing.TB, words ...string) Result {
	t.Helper()
	// Not the test's context: cleanups run commands, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), WaitTimeout)
	defer cancel()
	cmd := s.Command(ctx, t, words...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	err := cmd.Run()
	result := Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("$ %s: %v", line(words), err)
	}
	if ctx.Err() != nil {
		t.Fatalf("$ %s\n%s%sTimeout after %s", line(words), result.Stdout, result.Stderr, WaitTimeout)
	}
	t.Logf("$ %s (%.2f s, exit code %d)\n%s%s", line(words), time.Since(began).Seconds(), result.Code, result.Stdout, result.Stderr)
	return result
}

// OK runs a command that must succeed, and returns its standard output.
func (s Shell) OK(t testing.TB, words ...string) string {
	t.Helper()
	result := s.Run(t, words...)
	if result.Code != 0 {
		t.Fatalf("$ %s: exit code %d, want 0\n%s", line(words), result.Code, result.Stderr)
	}
	return result.Stdout
}

// Fails runs a command that must fail with this exit code, and returns all its output.
func (s Shell) Fails(t testing.TB, code int, words ...string) string {
	t.Helper()
	result := s.Run(t, words...)
	if result.Code != code {
		t.Fatalf("$ %s: exit code %d, want %d", line(words), result.Code, code)
	}
	return result.Stdout + result.Stderr
}

// Until repeats a command until it succeeds and done accepts its standard output, which it returns.
// what describes the condition.
func (s Shell) Until(t testing.TB, what string, done func(stdout string) bool, words ...string) string {
	t.Helper()
	began := time.Now()
	var last Result
	defer func() {
		if t.Failed() {
			t.Logf("$ %s (until %s) prints\n%s%s", line(words), what, last.Stdout, last.Stderr)
		}
	}()
	Eventually(t, what, func() bool {
		last = s.Run(Quietly(t), words...)
		return last.Code == 0 && done(last.Stdout)
	})
	t.Logf("$ %s (until %s: %.2f s)\n%s", line(words), what, time.Since(began).Seconds(), last.Stdout)
	return last.Stdout
}

// Eventually waits until done returns true; what describes the condition.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	await.Until(t, WaitTimeout, what, done)
}

// Is returns a condition for Until: the output is want, ignoring surrounding white space.
func Is(want string) func(string) bool {
	return func(stdout string) bool { return strings.TrimSpace(stdout) == want }
}

// Not returns a condition for Until: the output is neither empty nor old.
func Not(old string) func(string) bool {
	return func(stdout string) bool {
		now := strings.TrimSpace(stdout)
		return now != "" && now != strings.TrimSpace(old)
	}
}

// Contains fails the test unless text contains all parts.
func Contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
}

// Quietly returns a test that logs nothing, to keep commands out of the transcript.
func Quietly(t testing.TB) testing.TB { return quietly{t} }

type quietly struct{ testing.TB }

func (quietly) Logf(string, ...any) {}

func line(words []string) string {
	quoted := make([]string, len(words))
	for i, word := range words {
		quoted[i] = word
		if strings.ContainsAny(word, " '\"{}$*") {
			quoted[i] = fmt.Sprintf("'%s'", word)
		}
	}
	return strings.Join(quoted, " ")
}
