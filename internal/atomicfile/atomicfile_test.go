package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What cannot be written as JSON leaves the file as it is, and the error names it.
func TestWriteJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := WriteJSON(path, map[string]int{"a": 1}, Durable); err != nil {
		t.Fatal(err)
	}
	err := WriteJSON(path, func() {}, Durable)
	if got := content(t, path); err == nil || !strings.Contains(err.Error(), path) || got != "{\n  \"a\": 1\n}\n" {
		t.Errorf("%v, the file is %q", err, got)
	}
}

// content returns what is in a file; "" if there is none.
func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

// interceptDisk calls f before each operation on the disk until the test ends.
func interceptDisk(t *testing.T, f func(operation, path string) error) {
	before := Fault
	t.Cleanup(func() { Fault = before })
	Fault = f
}

// The order decides what a power cut leaves. A reader sees the old content until the rename, and the new from then on.
func TestWriteSyncsInOrder(t *testing.T) {
	type operation struct{ Name, File, Reader string }
	for _, tt := range []struct {
		name       string
		durability Durability
		want       []operation
	}{
		{name: "volatile", durability: Volatile, want: []operation{
			{"create", "record.tmp", "the old content"}, {"write", "record.tmp", "the old content"}, {"rename", "record", "the old content"},
		}},
		{name: "durable", durability: Durable, want: []operation{
			{"create", "record.tmp", "the old content"}, {"write", "record.tmp", "the old content"}, {"sync", "record.tmp", "the old content"},
			{"rename", "record", "the old content"}, {"syncdir", ".", "new"},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "record")
			if err := Write(path, []byte("the old content"), tt.durability); err != nil {
				t.Fatal(err)
			}
			var got []operation
			interceptDisk(t, func(name, file string) error {
				relative, err := filepath.Rel(dir, file)
				got = append(got, operation{name, relative, content(t, path)})
				return err
			})
			if err := Write(path, []byte("new"), tt.durability); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("operations (-want +got):\n%s", diff)
			}
			if got := content(t, path); got != "new" {
				t.Errorf("the file has %q", got)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file has mode %v, error %v", info.Mode(), err)
			}
		})
	}
}

// Place makes the content durable before its name, and the name afterwards, also if it is repeated.
func TestPlaceSyncsInOrder(t *testing.T) {
	dir := t.TempDir()
	part, path := filepath.Join(dir, "disk.part"), filepath.Join(dir, "disk")
	if err := Place(part, path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without any file: %v", err)
	}
	if err := os.WriteFile(part, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	var got []string
	interceptDisk(t, func(name, file string) error {
		got = append(got, name+" "+filepath.Base(file))
		return nil
	})
	for _, want := range [][]string{{"sync disk.part", "rename disk", "syncdir " + filepath.Base(dir)}, {"sync disk.part", "syncdir " + filepath.Base(dir)}} {
		got = nil
		if err := Place(part, path); err != nil || content(t, path) != "new" {
			t.Errorf("the file has %q, %v", content(t, path), err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("operations (-want +got):\n%s", diff)
		}
	}
}

func TestWriteThatFailsLeavesTheOldFile(t *testing.T) {
	for _, failing := range []string{"create", "write", "sync", "rename"} {
		t.Run(failing, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "record")
			if err := Write(path, []byte("old"), Durable); err != nil {
				t.Fatal(err)
			}
			full := errors.New("no space left on device")
			interceptDisk(t, func(operation, _ string) error {
				if operation == failing {
					return full
				}
				return nil
			})
			if err := Write(path, []byte("new"), Durable); !errors.Is(err, full) {
				t.Errorf("the error is %v", err)
			}
			if got := content(t, path); got != "old" {
				t.Errorf("the file has %q", got)
			}
			if _, err := os.Stat(path + Suffix); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the temporary file is left: %v", err)
			}
		})
	}
}

// A directory cannot be replaced by a file, so the rename fails.
func TestErrorNamesTheFile(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	err := Write(folder, []byte("text"), Volatile)
	if err == nil || !strings.Contains(err.Error(), folder) {
		t.Errorf("error %v does not name the file", err)
	}
	if _, err := os.Stat(folder + Suffix); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary file is left: %v", err)
	}
}

func TestWriteUsesReservedSpace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record")
	if err := Reserve(path, 4096); err != nil {
		t.Fatal(err)
	}
	reserved, err := os.Stat(path + Suffix)
	if err != nil {
		t.Fatal(err)
	}
	if err := Write(path, []byte("short"), Durable); err != nil {
		t.Fatal(err)
	}
	written, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(reserved, written) {
		t.Error("the content was written to another file than the one with the reserved space")
	}
	if got := content(t, path); got != "short" {
		t.Errorf("the file has %q", got)
	}
}
