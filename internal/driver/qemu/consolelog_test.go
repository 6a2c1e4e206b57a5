package qemu

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/keelson-dev/keelson/internal/controller/virtualmachine/backend"
)

func TestConsoleLogTail(t *testing.T) {
	for _, test := range []struct {
		name  string
		files map[string]string // by suffix
		tail  int
		want  string
	}{
		{"nothing", nil, -1, ""},
		{"all of all files", map[string]string{".2": "a\n", ".1": "b\nc", "": "d\ne\n"}, -1, "a\nb\ncd\ne\n"},
		{"no line", map[string]string{"": "a\nb\n"}, 0, ""},
		{"no line of a prompt", map[string]string{"": "a\nb"}, 0, ""},
		{"the last line", map[string]string{"": "a\nb\n"}, 1, "b\n"},
		{"the last line is a prompt", map[string]string{"": "a\nlogin: "}, 1, "login: "},
		{"more than there are", map[string]string{"": "a\nb\n"}, 9, "a\nb\n"},
		{"lines of an older file", map[string]string{".1": "a\nb\n", "": "c\n"}, 2, "b\nc\n"},
		{"a line in two files", map[string]string{".1": "a\nb", "": "c\nd\n"}, 2, "bc\nd\n"},
		{"after a rotation", map[string]string{".1": "a\nb\n", "": ""}, 1, "b\n"},
		{"no current file", map[string]string{".1": "a\nb\n"}, 1, "b\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), serialLog)
			for suffix, content := range test.files {
				write(t, path+suffix, content)
			}
			log, err := openLog(t.Context(), path, backend.LogOptions{Tail: test.tail})
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close() //nolint:errcheck // it was only read
			got, err := io.ReadAll(log)
			if err != nil || string(got) != test.want {
				t.Errorf("got %q, %v, want %q", got, err, test.want)
			}
		})
	}
}

// The lines of a log that is larger than a block are found.
func TestConsoleLogTailOfALargeLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), serialLog)
	long := make([]byte, 3*tailBlock)
	for i := range long {
		long[i] = 'x'
	}
	write(t, path, "first\n"+string(long)+"\nlast\n")
	log, err := openLog(t.Context(), path, backend.LogOptions{Tail: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // it was only read
	got, err := io.ReadAll(log)
	if err != nil || string(got) != string(long)+"\nlast\n" {
		t.Errorf("got %d bytes, %v, want %d", len(got), err, len(long)+6)
	}
}

// A follower sees everything, also what was written before a rotation that it has not read yet.
func TestConsoleLogIsFollowedAcrossARotation(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	path := filepath.Join(t.TempDir(), serialLog)
	log, err := openLog(ctx, path, backend.LogOptions{Tail: -1, Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() //nolint:errcheck // it was only read
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(log, got); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	write(t, path, "one\n")
	expect("one\n")
	write(t, rotated(path, 1), "one\ntwo\n")
	write(t, path, "3\n") // shorter than what was read
	expect("two\n3\n")
	cancel()
	if _, err := log.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}

// write replaces the content of a file, as a rotation does.
func write(t *testing.T, path, content string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		_, err = file.WriteString(content)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
