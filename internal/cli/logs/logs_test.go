package logs

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/internal/cli/usage"
)

// write writes a log file and returns its path.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, "logs", name+".log")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if _, err := find(dir, "etcd"); err == nil || !strings.Contains(err.Error(), "there are no logs in "+dir) {
		t.Errorf("in an empty directory: %v", err)
	}
	want := write(t, dir, "etcd", "")
	write(t, dir, "keelson", "")
	if got, err := find(dir, "etcd"); got != want || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	var wrong *usage.Error
	_, err := find(dir, "../etcd")
	if !errors.As(err, &wrong) || err.Error() != `there is no log of "../etcd"; there are those of etcd, keelson` {
		t.Errorf("another component: %v", err)
	}
}

func TestTail(t *testing.T) {
	long := strings.Repeat(strings.Repeat("x", 99)+"\n", 1000)
	for _, test := range []struct {
		name, text string
		tail       int
		want       string
	}{
		{"all", "a\nb\n", -1, "a\nb\n"},
		{"none", "a\nb\n", 0, ""},
		{"the last", "a\nb\n", 1, "b\n"},
		{"an unfinished line counts", "a\nb", 1, "b"},
		{"more than there are", "a\nb\n", 5, "a\nb\n"},
		{"an empty file", "", 3, ""},
		{"across blocks", long, 700, long[:700*100]},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got strings.Builder
			if err := show(t.Context(), &got, write(t, t.TempDir(), "a", test.text), test.tail, false); err != nil {
				t.Fatal(err)
			}
			if got.String() != test.want {
				t.Errorf("got %d bytes, want %d: %.40q", got.Len(), len(test.want), got.String())
			}
		})
	}
}

// Following goes on after the rotation of a file.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir, "a", "one\n")
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan error)
	go func() { ended <- show(ctx, w, path, -1, true) }()
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil || string(got) != want {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	expect("one\n")
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("two\n"); err != nil {
		t.Fatal(err)
	}
	expect("two\n")
	if err := errors.Join(file.Close(), os.Rename(path, path+".1")); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "a", "three\n")
	expect("three\n")
	if err := os.WriteFile(path, []byte("4\n"), 0o600); err != nil { // truncated
		t.Fatal(err)
	}
	expect("4\n")
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
