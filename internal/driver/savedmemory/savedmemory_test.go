package savedmemory

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	saved := Memory{QEMU: "7.2.0", CPU: "max", Shape: "a"}
	for _, test := range []struct{ name, version, cpu, shape, says string }{
		{"the same", "7.2.0", "max", "a", ""},
		{"before its QEMU runs", "", "max", "a", ""},
		{"another QEMU", "9.0.0", "max", "a", "QEMU 7.2.0 saved it, and this is 9.0.0"},
		{"other processors", "7.2.0", "qemu64", "a", `"max", and these are "qemu64"`},
		{"other devices", "7.2.0", "max", "b", "other devices"},
	} {
		err := saved.Check(test.version, test.cpu, test.shape)
		if IsUnusable(err) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", test.name, err, test.says)
		}
	}
}

func TestCheckFiles(t *testing.T) {
	for name, test := range map[string]struct {
		change func(path string) error
		says   string
	}{
		"unchanged": {func(string) error { return nil }, ""},
		"written":   {func(path string) error { return os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)) }, "a has changed since"},
		"grown":     {func(path string) error { return os.Truncate(path, 100) }, "a has changed since"},
		"gone":      {os.Remove, "other disks"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "a")
		if err := os.WriteFile(path, []byte("disk"), 0o600); err != nil {
			t.Fatal(err)
		}
		stamps, err := Stamp(dir, []string{path})
		if err != nil {
			t.Fatal(err)
		}
		saved := Memory{Files: stamps}
		if err := test.change(path); err != nil {
			t.Fatal(err)
		}
		err = saved.CheckFiles(dir, []string{path})
		if IsUnusable(err) != (test.says != "") || err != nil && !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
		if err := saved.CheckFiles(dir, nil); !IsUnusable(err) {
			t.Errorf("%s: without its disk: %v", name, err)
		}
	}
}

// What was written is read, and nothing else: a file that has changed is no memory.
func TestWriteAndRead(t *testing.T) {
	dir := t.TempDir()
	content := bytes.Repeat([]byte("memory"), 100_000)
	ours, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = theirs.Write(content) // the reader fails, too
		_ = theirs.Close()
	}()
	var saved Memory
	file, err := create(dir)
	if err != nil {
		t.Fatal(err)
	}
	saved.Size, saved.SHA256, err = write(t.Context(), file, ours, func(int64) error { return nil })
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Keep(dir); err != nil {
		t.Fatal(err)
	}
	got, err := readAll(t.Context(), &saved, dir)
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes were read, want %d, %v", len(got), len(content), err)
	}
	path := filepath.Join(dir, File)
	raw, err := os.ReadFile(path)
	if err != nil || int64(len(raw)) != saved.Size {
		t.Fatalf("the file has %d bytes, want %d, %v", len(raw), saved.Size, err)
	}
	raw[len(raw)/2] ^= 1
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(t.Context(), &saved, dir); !IsUnusable(err) {
		t.Errorf("a damaged file: %v", err)
	}
	Remove(dir)
	if _, err := readAll(t.Context(), &saved, dir); !IsUnusable(err) {
		t.Errorf("no file: %v", err)
	}
}

// readAll reads saved memory as QEMU does.
func readAll(ctx context.Context, saved *Memory, dir string) ([]byte, error) {
	theirs, stream, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	failed := make(chan error, 1)
	go func() {
		failed <- saved.read(ctx, dir, stream)
		_ = stream.Close()
	}()
	got, err := io.ReadAll(theirs)
	if readErr := <-failed; readErr != nil {
		return nil, readErr
	}
	return got, err
}
